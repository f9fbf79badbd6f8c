package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.FileDescriptor;
import info.guardianproject.iocipher.Mount;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomFile;
import org.strongroom.Stat;

/** {@link Os} on the mounted container. */
public final class Posix implements Os {
    /** One, as {@link Libcore#os} is. */
    public Posix() {}

    private interface Call<T> {
        T run() throws IOException;
    }

    private static <T> T call(String name, Call<T> call) throws ErrnoException {
        try {
            return call.run();
        } catch (RoomException e) {
            throw new ErrnoException(name, e.errno(), e);
        } catch (IOException e) {
            throw new ErrnoException(name, OsConstants.EBADF, e);
        }
    }

    private static int changed(String name, FileDescriptor fd, int bytes) throws ErrnoException {
        call(name, () -> {
            Mount.changed(fd);
            return null;
        });
        return bytes;
    }

    private static UnsupportedOperationException refused(String name) {
        return new UnsupportedOperationException(name + ": not in a container");
    }

    @Override
    public boolean access(String path, int mode) throws ErrnoException {
        int bits = call("access", () -> Mount.room().stat(path, true)).mode();
        // Old containers have files of mode 0, which say nothing.
        if (bits != 0 && (bits >> 6 & mode & 7) != (mode & 7)) {
            throw new ErrnoException("access", OsConstants.EACCES);
        }
        return true;
    }

    @Override
    public void chmod(String path, int mode) throws ErrnoException {
        call("chmod", () -> {
            Mount.room().setMode(path, mode);
            return null;
        });
    }

    @Override
    public void close(FileDescriptor fd) throws ErrnoException {
        call("close", () -> {
            Mount.file(fd);
            Mount.close(fd);
            return null;
        });
    }

    @Override
    public void fsync(FileDescriptor fd) throws ErrnoException {
        call("fsync", () -> {
            Mount.file(fd).sync();
            return null;
        });
    }

    @Override
    public void ftruncate(FileDescriptor fd, long length) throws ErrnoException {
        call("ftruncate", () -> {
            Mount.file(fd).setLength(length);
            Mount.changed(fd);
            return null;
        });
    }

    /**
     * Gives a file a second name.
     *
     * @param from a path of it
     * @param to the new one
     * @throws ErrnoException if it fails
     */
    public void link(String from, String to) throws ErrnoException {
        call("link", () -> {
            Mount.room().link(from, to);
            return null;
        });
    }

    @Override
    public void mkdir(String path, int mode) throws ErrnoException {
        call("mkdir", () -> {
            Mount.room().makeDirectory(path, mode);
            return null;
        });
    }

    @Override
    public FileDescriptor open(String path, int flags, int mode) throws ErrnoException {
        int access = flags & OsConstants.O_ACCMODE;
        int ours = access == OsConstants.O_WRONLY ? RoomFile.WRITE
                : access == OsConstants.O_RDWR ? RoomFile.READ | RoomFile.WRITE : RoomFile.READ;
        if ((flags & OsConstants.O_APPEND) != 0) {
            ours |= RoomFile.APPEND;
        }
        if ((flags & OsConstants.O_CREAT) != 0) {
            ours |= (flags & OsConstants.O_EXCL) != 0 ? RoomFile.CREATE_NEW : RoomFile.CREATE;
        }
        if ((flags & OsConstants.O_TRUNC) != 0) {
            ours |= RoomFile.TRUNCATE;
        }
        int asked = ours;
        return call("open", () -> Mount.open(path, asked, mode));
    }

    @Override
    public int pread(FileDescriptor fd, ByteBuffer buffer, long offset) throws ErrnoException {
        return call("pread", () -> Mount.file(fd).readAt(offset, buffer));
    }

    @Override
    public int pread(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, long offset) throws ErrnoException {
        return call("pread", () -> Mount.file(fd).readAt(offset, bytes, byteOffset, byteCount));
    }

    @Override
    public int read(FileDescriptor fd, ByteBuffer buffer) throws ErrnoException {
        int n = pread(fd, buffer, fd.position);
        fd.position += n;
        return n;
    }

    @Override
    public int read(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount) throws ErrnoException {
        int n = pread(fd, bytes, byteOffset, byteCount, fd.position);
        fd.position += n;
        return n;
    }

    @Override
    public void remove(String path) throws ErrnoException {
        call("remove", () -> {
            Room room = Mount.room();
            if (room.stat(path, false).isDirectory()) {
                room.removeDirectory(path);
            } else {
                room.removeFile(path);
            }
            return null;
        });
    }

    @Override
    public void rename(String oldPath, String newPath) throws ErrnoException {
        call("rename", () -> {
            Mount.room().rename(oldPath, newPath, Room.RenameMode.REPLACE);
            return null;
        });
    }

    /**
     * Removes an empty directory.
     *
     * @param path the directory
     * @throws ErrnoException if it fails
     */
    public void rmdir(String path) throws ErrnoException {
        call("rmdir", () -> {
            Mount.room().removeDirectory(path);
            return null;
        });
    }

    @Override
    public StructStatFs statfs(String path) throws ErrnoException {
        return call("statfs", () -> {
            Mount.room().stat(path, true);
            return new StructStatFs(Mount.room().info());
        });
    }

    @Override
    public StructStatFs fstatfs(FileDescriptor fd) throws ErrnoException {
        return call("fstatfs", () -> new StructStatFs(Mount.file(fd).room().info()));
    }

    @Override
    public String strerror(int errno) {
        return OsConstants.text(errno);
    }

    @Override
    public void symlink(String oldPath, String newPath) throws ErrnoException {
        call("symlink", () -> {
            Mount.room().symlink(oldPath, newPath);
            return null;
        });
    }

    /**
     * Removes a name that is not a directory's.
     *
     * @param path the name
     * @throws ErrnoException if it fails
     */
    public void unlink(String path) throws ErrnoException {
        call("unlink", () -> {
            Mount.room().removeFile(path);
            return null;
        });
    }

    @Override
    public int write(FileDescriptor fd, ByteBuffer buffer, int flags) throws ErrnoException {
        int n = buffer.remaining();
        fd.position = n + call("write", () -> Mount.file(fd).writeAt(fd.position, buffer));
        return changed("write", fd, n);
    }

    @Override
    public int write(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, int flags) throws ErrnoException {
        fd.position = byteCount + call("write", () -> Mount.file(fd).writeAt(fd.position, bytes, byteOffset, byteCount));
        return changed("write", fd, byteCount);
    }

    @Override
    public int pwrite(FileDescriptor fd, ByteBuffer buffer, long offset, int flags) throws ErrnoException {
        int n = buffer.remaining();
        call("pwrite", () -> Mount.file(fd).writeAt(offset, buffer));
        return changed("pwrite", fd, n);
    }

    @Override
    public int pwrite(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, long offset, int flags)
            throws ErrnoException {
        call("pwrite", () -> Mount.file(fd).writeAt(offset, bytes, byteOffset, byteCount));
        return changed("pwrite", fd, byteCount);
    }

    @Override
    public StructStat stat(String path) throws ErrnoException {
        return call("stat", () -> of(Mount.room().stat(path, true)));
    }

    @Override
    public StructStat fstat(FileDescriptor fd) throws ErrnoException {
        return call("fstat", () -> of(Mount.file(fd).stat()));
    }

    private static StructStat of(Stat stat) {
        return new StructStat(0, stat.inode(), OsConstants.type(stat.kind()) | stat.mode(), stat.links(), (int) stat.owner(),
                (int) stat.group(), stat.device(), stat.size(), stat.accessedSeconds(), stat.modifiedSeconds(),
                stat.changedSeconds(), 4096, stat.blocks() * 8);
    }

    @Override
    public FileDescriptor dup(FileDescriptor oldFd) {
        throw refused("dup");
    }

    @Override
    public FileDescriptor dup2(FileDescriptor oldFd, int newFd) {
        throw refused("dup2");
    }

    @Override
    public String[] environ() {
        throw refused("environ");
    }

    @Override
    public int fcntlVoid(FileDescriptor fd, int cmd) {
        throw refused("fcntlVoid");
    }

    @Override
    public int fcntlLong(FileDescriptor fd, int cmd, long arg) {
        throw refused("fcntlLong");
    }

    @Override
    public int fcntlFlock(FileDescriptor fd, int cmd, StructFlock arg) {
        throw refused("fcntlFlock");
    }

    @Override
    public void fdatasync(FileDescriptor fd) {
        throw refused("fdatasync");
    }

    @Override
    public String gai_strerror(int error) {
        throw refused("gai_strerror");
    }

    @Override
    public int getegid() {
        throw refused("getegid");
    }

    @Override
    public int geteuid() {
        throw refused("geteuid");
    }

    @Override
    public int getgid() {
        throw refused("getgid");
    }

    @Override
    public String getenv(String name) {
        throw refused("getenv");
    }

    @Override
    public int getpid() {
        throw refused("getpid");
    }

    @Override
    public int getppid() {
        throw refused("getppid");
    }

    @Override
    public StructPasswd getpwnam(String name) {
        throw refused("getpwnam");
    }

    @Override
    public StructPasswd getpwuid(int uid) {
        throw refused("getpwuid");
    }

    @Override
    public int getuid() {
        throw refused("getuid");
    }

    @Override
    public int ioctlInt(FileDescriptor fd, int cmd, int arg) {
        throw refused("ioctlInt");
    }

    @Override
    public boolean isatty(FileDescriptor fd) {
        throw refused("isatty");
    }

    @Override
    public void kill(int pid, int signal) {
        throw refused("kill");
    }

    @Override
    public void listen(FileDescriptor fd, int backlog) {
        throw refused("listen");
    }

    @Override
    public StructStat lstat(String path) {
        throw refused("lstat");
    }

    @Override
    public void mincore(long address, long byteCount, byte[] vector) {
        throw refused("mincore");
    }

    @Override
    public void mlock(long address, long byteCount) {
        throw refused("mlock");
    }

    @Override
    public long mmap(long address, long byteCount, int prot, int flags, FileDescriptor fd, long offset) {
        throw refused("mmap");
    }

    @Override
    public void msync(long address, long byteCount, int flags) {
        throw refused("msync");
    }

    @Override
    public void munlock(long address, long byteCount) {
        throw refused("munlock");
    }

    @Override
    public void munmap(long address, long byteCount) {
        throw refused("munmap");
    }

    @Override
    public FileDescriptor[] pipe() {
        throw refused("pipe");
    }

    @Override
    public int poll(StructPollfd[] fds, int timeoutMs) {
        throw refused("poll");
    }

    @Override
    public int readv(FileDescriptor fd, Object[] buffers, int[] offsets, int[] byteCounts) {
        throw refused("readv");
    }

    @Override
    public void setegid(int egid) {
        throw refused("setegid");
    }

    @Override
    public void seteuid(int euid) {
        throw refused("seteuid");
    }

    @Override
    public void setgid(int gid) {
        throw refused("setgid");
    }

    @Override
    public void setuid(int uid) {
        throw refused("setuid");
    }

    @Override
    public void shutdown(FileDescriptor fd, int how) {
        throw refused("shutdown");
    }

    @Override
    public FileDescriptor socket(int domain, int type, int protocol) {
        throw refused("socket");
    }

    @Override
    public long sysconf(int name) {
        throw refused("sysconf");
    }

    @Override
    public StructUtsname uname() {
        throw refused("uname");
    }

    @Override
    public int waitpid(int pid, int status, int options) {
        throw refused("waitpid");
    }

    @Override
    public int writev(FileDescriptor fd, Object[] buffers, int[] offsets, int[] byteCounts) {
        throw refused("writev");
    }
}
