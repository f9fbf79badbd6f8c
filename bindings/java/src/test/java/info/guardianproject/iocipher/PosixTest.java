package info.guardianproject.iocipher;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import info.guardianproject.libcore.io.ErrnoException;
import info.guardianproject.libcore.io.IoBridge;
import info.guardianproject.libcore.io.IoUtils;
import info.guardianproject.libcore.io.Libcore;
import info.guardianproject.libcore.io.Os;
import info.guardianproject.libcore.io.OsConstants;
import info.guardianproject.libcore.io.Posix;
import info.guardianproject.libcore.io.StructStat;
import info.guardianproject.libcore.io.StructStatFs;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class PosixTest extends DropIn {
    private static final int RW = OsConstants.O_RDWR | OsConstants.O_CREAT;

    private static void refused(int errno, Executable call) {
        ErrnoException e = assertThrows(ErrnoException.class, call);
        assertEquals(errno, e.errno, e.toString());
        assertFalse(e.getMessage().isEmpty());
    }

    @Test
    void the_calls_of_posix_work_by_their_interface() throws Exception {
        Os os = Libcore.os;
        FileDescriptor fd = os.open("/f", RW, 0640);
        assertEquals(3, os.write(fd, new byte[] {0, 1, 2, 3}, 1, 3, 0));
        assertEquals(2, os.write(fd, ByteBuffer.wrap(new byte[] {4, 5}), 0));
        assertEquals(5, fd.position);
        assertEquals(1, os.pwrite(fd, new byte[] {9}, 0, 1, 0, 0));
        assertEquals(1, os.pwrite(fd, ByteBuffer.wrap(new byte[] {8}), 6, 0));
        byte[] five = new byte[5];
        assertEquals(5, os.pread(fd, five, 0, 5, 0));
        assertArrayEquals(new byte[] {9, 2, 3, 4, 5}, five);
        assertEquals(2, os.pread(fd, ByteBuffer.allocate(10), 5));
        assertEquals(5, fd.position);
        assertEquals(2, os.read(fd, five, 0, 5));
        assertEquals(0, os.read(fd, ByteBuffer.allocate(4)));
        os.fsync(fd);
        os.ftruncate(fd, 3);
        assertEquals(3, os.fstat(fd).st_size);
        assertTrue(os.fstatfs(fd).f_blocks > 0 && os.statfs("/").f_bavail > 0);
        os.close(fd);
        refused(OsConstants.EBADF, () -> os.close(fd));
        os.chmod("/f", 0400);
        assertTrue(os.access("/f", OsConstants.R_OK) && os.access("/f", OsConstants.F_OK));
        refused(OsConstants.EACCES, () -> os.access("/f", OsConstants.W_OK));
        refused(OsConstants.ENOENT, () -> os.access("/missing", OsConstants.F_OK));
        os.mkdir("/d", 0700);
        refused(OsConstants.EEXIST, () -> os.mkdir("/d", 0700));
        os.rename("/f", "/d/f");
        refused(OsConstants.ENOTEMPTY, () -> os.remove("/d"));
        os.symlink("d/f", "/l");
        assertEquals(3, os.stat("/l").st_size);
        os.remove("/l");
        os.remove("/d/f");
        os.remove("/d");
        refused(OsConstants.ENOENT, () -> os.stat("/d"));
        assertEquals("No such file or directory", os.strerror(OsConstants.ENOENT));
        assertEquals("Unknown error 4711", os.strerror(4711));
    }

    @Test
    void the_calls_of_posix_work_by_their_class() throws Exception {
        Posix posix = new Posix();
        FileDescriptor fd = posix.open("/f", RW | OsConstants.O_EXCL, 0600);
        refused(OsConstants.EEXIST, () -> posix.open("/f", RW | OsConstants.O_EXCL, 0600));
        assertEquals(3, posix.write(fd, "abc".getBytes(), 0, 3, 0));
        assertEquals(1, posix.write(fd, ByteBuffer.wrap("d".getBytes()), 0));
        posix.pwrite(fd, "A".getBytes(), 0, 1, 0, 0);
        posix.pwrite(fd, ByteBuffer.wrap("B".getBytes()), 1, 0);
        fd.position = 0;
        byte[] four = new byte[4];
        assertEquals(2, posix.read(fd, four, 0, 2));
        ByteBuffer rest = ByteBuffer.allocate(9);
        assertEquals(2, posix.read(fd, rest));
        assertEquals('c', rest.get(0));
        assertEquals(4, posix.pread(fd, four, 0, 4, 0));
        assertEquals("ABcd", new String(four));
        assertEquals(1, posix.pread(fd, ByteBuffer.allocate(3), 3));
        posix.fsync(fd);
        posix.ftruncate(fd, 2);
        posix.link("/f", "/g");
        StructStat stat = posix.fstat(fd);
        assertEquals(2, stat.st_nlink);
        assertEquals(2, stat.st_size);
        assertEquals(OsConstants.S_IFREG | 0600, stat.st_mode);
        assertTrue(stat.st_ino > 0 && stat.st_dev == 0 && stat.st_rdev == 0 && stat.st_blksize == 4096);
        assertTrue(stat.st_mtime > 1_600_000_000 && stat.st_ctime > 1_600_000_000 && stat.st_atime > 1_600_000_000);
        assertEquals(stat.st_uid, posix.stat("/").st_uid);
        assertEquals(stat.st_gid, posix.stat("/").st_gid);
        assertTrue(stat.st_blocks >= 0);
        posix.close(fd);
        assertEquals(OsConstants.S_IFDIR, posix.stat("/").st_mode & OsConstants.S_IFMT);
        posix.chmod("/f", 0644);
        assertTrue(posix.access("/f", OsConstants.W_OK));
        posix.mkdir("/d", 0755);
        refused(OsConstants.ENOTDIR, () -> posix.rmdir("/f"));
        refused(OsConstants.ENOENT, () -> posix.mkdir("/no/d", 0755));
        posix.rename("/f", "/d/f");
        posix.unlink("/d/f");
        posix.rmdir("/d");
        posix.symlink("g", "/l");
        posix.remove("/l");
        StructStatFs fs = posix.statfs("/");
        assertEquals(4096, fs.f_bsize);
        assertEquals(4096, fs.f_frsize);
        assertTrue(fs.f_blocks >= fs.f_bfree && fs.f_bfree >= fs.f_bavail && fs.f_bavail > 0);
        assertTrue(fs.f_files >= 2 && fs.f_ffree > 0);
        assertEquals(255, fs.f_namemax);
        FileDescriptor append = posix.open("/g", OsConstants.O_WRONLY | OsConstants.O_APPEND, 0);
        assertEquals(fs.f_bsize, posix.fstatfs(append).f_bsize);
        posix.write(append, "!".getBytes(), 0, 1, 0);
        posix.close(append);
        assertEquals("AB!", get("/g"));
        posix.close(posix.open("/g", OsConstants.O_WRONLY | OsConstants.O_TRUNC, 0));
        assertEquals("", get("/g"));
        assertEquals("Success", posix.strerror(0));
        refused(OsConstants.EISDIR, () -> posix.open("/", OsConstants.O_RDWR, 0));
        vfs.unmount();
        refused(OsConstants.EBADF, () -> posix.stat("/"));
    }

    @Test
    void neighbouring_functions_work() throws Exception {
        FileDescriptor fd = IoBridge.open("/f", RW);
        IoBridge.write(fd, "hello".getBytes(), 0, 5, 0);
        fd.position = 0;
        byte[] ten = new byte[10];
        assertEquals(5, IoBridge.read(fd, ten, 0, 10));
        assertEquals(-1, IoBridge.read(fd, ten, 0, 10));
        assertEquals(0, IoBridge.read(fd, ten, 0, 0));
        assertThrows(ArrayIndexOutOfBoundsException.class, () -> IoBridge.read(fd, ten, 5, 6));
        assertThrows(FileNotFoundException.class, () -> IoBridge.open("/missing", OsConstants.O_RDONLY));
        IoBridge.checkOffsetAndCount(10, 5, 5);
        assertThrows(ArrayIndexOutOfBoundsException.class, () -> IoBridge.checkOffsetAndCount(10, 5, 6));
        assertThrows(ArrayIndexOutOfBoundsException.class, () -> IoBridge.checkOffsetAndCount(10, -1, 1));
        assertThrows(UnsupportedOperationException.class, () -> IoUtils.setBlocking(fd, true));
        IoUtils.close(fd);
        assertFalse(fd.valid());
        IoUtils.close(fd);
        IoUtils.close(null);
        assertThrows(IOException.class, () -> IoBridge.read(fd, ten, 0, 10));
        assertThrows(IOException.class, () -> IoBridge.write(fd, ten, 0, 10, 0));
        IoUtils.closeQuietly(IoBridge.open("/f", OsConstants.O_RDONLY));
        IoUtils.closeQuietly((FileDescriptor) null);
        Socket socket = new Socket();
        IoUtils.closeQuietly(socket);
        assertTrue(socket.isClosed());
        assertTrue(new File("/d/e/f").mkdirs());
        put("/d/g", "x");
        put("/kept", "x");
        new Posix().symlink("/kept", "/d/e/link");
        IoUtils.deleteContents(new File("/d"));
        assertEquals(0, new File("/d").list().length);
        assertTrue(new File("/d").isDirectory() && new File("/kept").exists());
        assertThrows(IllegalArgumentException.class, () -> IoUtils.deleteContents(new File("/kept")));
        // What failed: where a link to a directory could not be deleted, what is in that directory was.
        assertTrue(new File("/elsewhere").mkdir());
        put("/elsewhere/kept", "x");
        new Posix().symlink("/elsewhere", "/d/link");
        File refused = new File("/d/link") {
            @Override
            public boolean delete() {
                return false;
            }
        };
        File withLink = new File("/d") {
            @Override
            public File[] listFiles() {
                return new File[] {refused};
            }
        };
        assertThrows(IOException.class, () -> IoUtils.deleteContents(withLink));
        assertTrue(new File("/elsewhere/kept").exists());
        ErrnoException e = new ErrnoException("open", OsConstants.ENOENT);
        assertTrue(e.getMessage().contains("No such file"));
        assertSame(e, assertThrows(IOException.class, e::rethrowAsIOException).getCause());
        IOException cause = new IOException("why");
        assertSame(cause, new ErrnoException("open", OsConstants.EIO, cause).getCause());
        assertInstanceOf(Posix.class, Libcore.os);
    }
}
