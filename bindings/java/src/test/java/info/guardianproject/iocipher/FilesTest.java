package info.guardianproject.iocipher;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.SyncFailedException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.NonReadableChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class FilesTest extends DropIn {
    @Test
    void paths_are_taken_apart() throws IOException {
        File file = new File("/a//b/");
        assertEquals("/a/b", file.getPath());
        assertEquals("/a/b", file.toString());
        assertEquals("b", file.getName());
        assertEquals("/a", file.getParent());
        assertEquals(new File("/a"), file.getParentFile());
        assertNull(new File("/").getParent());
        assertNull(new File("b").getParentFile());
        assertEquals(file, new File("/a", "b"));
        assertEquals(file, new File(new File("/a"), "b"));
        assertEquals(file, new File((java.io.File) new File("/a"), "b"));
        assertEquals("b", new File((String) null, "b").getPath());
        assertThrows(NullPointerException.class, () -> new File("/a", (String) null));
        assertTrue(file.isAbsolute());
        assertFalse(new File("b").isAbsolute());
        assertEquals("/b", new File("b").getAbsolutePath());
        assertEquals(new File("/b"), new File("b").getAbsoluteFile());
        assertTrue(file.equals(new File("/a/b")) && !file.equals(new File("/a/c")) && !file.equals(new java.io.File("/a/b")));
        assertEquals(file.hashCode(), new File("/a/b").hashCode());
        assertTrue(file.compareTo(new File("/a/c")) < 0);
        assertTrue(new File("/.x").isHidden() && !file.isHidden());
        assertEquals(file, new File(file.toURI()));
        assertEquals(new File("/a b%[1]"), new File(new File("/a b%[1]").toURI()));
        assertThrows(IllegalArgumentException.class, () -> new File(URI.create("http://host/a")));
        @SuppressWarnings("deprecation")
        String url = file.toURL().toString();
        assertEquals("file:/a/b", url);
    }

    @Test
    void canonical_paths_are_without_links_and_dots() throws IOException {
        assertTrue(new File("/d/e").mkdirs());
        info.guardianproject.libcore.io.Posix posix = new info.guardianproject.libcore.io.Posix();
        try {
            posix.symlink("d", "/l");
        } catch (info.guardianproject.libcore.io.ErrnoException e) {
            throw e.rethrowAsIOException();
        }
        assertEquals("/d/e", new File("/l/./e/../e").getCanonicalPath());
        assertEquals("/d/missing/too", new File("/l/missing/too").getCanonicalPath());
        assertEquals("/missing", new File("missing").getCanonicalPath());
        assertEquals("/d", new File("/l/x/..").getCanonicalPath());
        assertEquals(new File("/"), new File("/..").getCanonicalFile());
    }

    @Test
    void files_and_directories_are_made_found_renamed_and_deleted() throws IOException {
        File dir = new File("/dir");
        assertFalse(dir.exists());
        assertTrue(dir.mkdir());
        assertFalse(dir.mkdir());
        assertFalse(dir.mkdirs());
        assertTrue(dir.isDirectory() && dir.exists() && !dir.isFile());
        assertFalse(new File("/no/parent").mkdir());
        assertThrows(IOException.class, () -> new File("/no/parent").createNewFile());
        assertThrows(FileNotFoundException.class, () -> new FileOutputStream("/no/parent"));
        assertFalse(new File("/no").exists());
        assertTrue(new File("/dir/x/y").mkdirs());
        File file = new File(dir, "f");
        assertTrue(file.createNewFile());
        assertFalse(file.createNewFile());
        assertTrue(file.isFile() && file.canRead() && file.canWrite() && !file.canExecute());
        put("/dir/f", "12345");
        assertEquals(5, file.length());
        assertFalse(dir.delete());
        assertTrue(file.renameTo(new File("/g")));
        assertTrue(((java.io.File) new File("/g")).renameTo(new File("/h")));
        assertFalse(new File("/h").renameTo((java.io.File) temporary.resolve("host").toFile()));
        assertFalse(new File("/missing").renameTo(new File("/g")));
        assertEquals("12345", get("/h"));
        assertTrue(new File("/empty").mkdir());
        assertTrue(dir.renameTo(new File("/empty")));
        assertTrue(new File("/empty/x/y").isDirectory());
        assertTrue(new File("/h").delete());
        assertFalse(new File("/h").delete());
        assertThrows(UnsupportedOperationException.class, () -> dir.deleteOnExit());
    }

    /** What apps got used to. */
    @Test
    void what_is_missing_is_a_file_and_lists_nothing() throws IOException {
        File missing = new File("/missing");
        assertTrue(missing.isFile());
        assertFalse(missing.isDirectory());
        assertEquals(0, missing.list().length);
        assertEquals(0, missing.listFiles().length);
        assertEquals(0, missing.length());
        assertEquals(0, missing.lastModified());
        put("/f", "x");
        assertNull(new File("/f").list());
        assertNull(new File("/f").listFiles());
    }

    @Test
    void directories_are_listed_through_every_filter() throws IOException {
        for (String name : new String[] {"a[1]", "a1", "b", "*"}) {
            put("/" + name, name);
        }
        File root = new File("/");
        assertEquals(Set.of("a[1]", "a1", "b", "*"), new TreeSet<>(Arrays.asList(root.list())));
        assertEquals(4, root.listFiles().length);
        FilenameFilter names = (dir, name) -> dir.equals(root) && name.startsWith("a");
        FileFilter files = file -> file.length() == 2;
        assertTrue(names.accept(root, "a") && !files.accept(root));
        assertEquals(Set.of("a[1]", "a1"), Set.of(root.list(names)));
        assertEquals(Set.of(new File("/a[1]"), new File("/a1")), Set.of(root.listFiles(names)));
        assertArrayEquals(new File[] {new File("/a1")}, root.listFiles(files));
        java.io.FilenameFilter jdk = (dir, name) -> name.equals("b");
        assertArrayEquals(new String[] {"b"}, root.list(jdk));
        assertArrayEquals(new File[] {new File("/b")}, root.listFiles(jdk));
        assertArrayEquals(new File[] {new File("/b")}, root.listFiles((java.io.FileFilter) file -> file.getName().equals("b")));
        assertEquals(4, root.list((FilenameFilter) null).length);
        assertEquals(4, root.listFiles((FileFilter) null).length);
        assertTrue(new File("/a[1]").delete());
        assertEquals("a1", get("/a1"));
    }

    @Test
    void attributes_are_set_and_kept() throws IOException {
        File file = new File("/f");
        put("/f", "x");
        assertTrue(file.setLastModified(1_234_567_890_123L));
        assertTrue(file.setReadOnly());
        assertTrue(file.setExecutable(true));
        remount();
        assertEquals(1_234_567_890_123L, file.lastModified());
        assertTrue(!file.canWrite() && file.canExecute() && file.canRead());
        assertTrue(file.setWritable(true) && file.canWrite());
        assertTrue(file.setWritable(false, false) && !file.canWrite());
        assertTrue(file.setReadable(false) && file.setReadable(true, false) && file.canRead());
        assertTrue(file.setExecutable(false, false) && !file.canExecute());
        assertThrows(IllegalArgumentException.class, () -> file.setLastModified(-1));
        File missing = new File("/missing");
        assertFalse(missing.setLastModified(1) || missing.setReadOnly() || missing.setReadable(true) || missing.canRead());
        assertTrue(file.getTotalSpace() >= file.getFreeSpace() && file.getFreeSpace() >= file.getUsableSpace());
        assertTrue(file.getUsableSpace() > 0);
    }

    @Test
    void temporary_files_have_new_names() throws IOException {
        assertTrue(new File("/tmp dir").mkdir());
        File in = File.createTempFile("pre", null, new File("/tmp dir"));
        assertTrue(in.getName().startsWith("pre") && in.getName().endsWith(".tmp") && in.getParent().equals("/tmp dir"));
        File first = File.createTempFile("pre", ".x");
        assertNotEquals(first, File.createTempFile("pre", ".x"));
        assertTrue(first.exists() && first.length() == 0);
        assertThrows(IllegalArgumentException.class, () -> File.createTempFile("ab", null));
        assertThrows(IOException.class, () -> File.createTempFile("pre", null, new File("/missing")));
    }

    /** The host may have a file at the same path. What the JDK's streams do with it cannot be changed: they ask for its path only. */
    @Test
    void the_path_of_a_file_of_the_container_is_none_of_the_host() throws IOException {
        java.nio.file.Path host = Files.writeString(temporary.resolve("host"), "of the host");
        java.io.File file = new File(host.toString());
        assertFalse(file.exists() || file.canRead() || file.delete() || file.setReadOnly());
        assertEquals(0, file.length());
        assertThrows(InvalidPathException.class, file::toPath);
        assertFalse(new java.io.File(new File(temporary.toString()), "host").exists());
        assertEquals("of the host", Files.readString(host));
    }

    @Test
    void streams_write_and_read() throws IOException {
        File file = new File("/f");
        try (FileOutputStream out = new FileOutputStream(file)) {
            out.write(new byte[] {1, 2, 3, 4}, 1, 2);
            out.write(0x1FF);
            assertEquals(3, out.getFD().position);
            assertSame(out.getChannel(), out.getChannel());
            assertTrue(out.getFD().valid());
            out.getFD().sync();
            assertThrows(ArrayIndexOutOfBoundsException.class, () -> out.write(new byte[2], 1, 2));
        }
        try (FileOutputStream out = new FileOutputStream(file, true); FileOutputStream more = new FileOutputStream("/f", true)) {
            out.write(new byte[] {9});
            more.write(new byte[] {8});
            out.write(new byte[] {7});
        }
        try (FileInputStream in = new FileInputStream(file)) {
            assertEquals(6, in.available());
            assertEquals(2, in.read());
            byte[] two = new byte[2];
            assertEquals(2, in.read(two));
            assertArrayEquals(new byte[] {3, -1}, two);
            assertEquals(1, in.skip(1));
            assertEquals(8, FileInputStream.readSingleByte(in));
            assertEquals(1, in.read(new byte[10], 3, 7));
            assertEquals(-1, in.read());
            assertEquals(-1, FileInputStream.readSingleByte(in));
            assertEquals(0, in.available());
            assertEquals(0, in.skip(5));
            assertThrows(IOException.class, () -> in.skip(-1));
            assertThrows(ArrayIndexOutOfBoundsException.class, () -> in.read(new byte[2], -1, 2));
            in.getFD().position = 0;
            assertEquals(2, in.read());
            FileInputStream same = new FileInputStream(in.getFD());
            assertEquals(3, same.read());
            same.close();
            assertTrue(in.getFD().valid());
            assertSame(in.getChannel(), in.getChannel());
            assertTrue(in.getFD().toString().contains("/f"));
        }
        FileOutputStream cut = new FileOutputStream("/f");
        FileDescriptor fd = cut.getFD();
        new FileOutputStream(fd).write(5);
        cut.close();
        cut.close();
        assertFalse(fd.valid());
        assertThrows(IOException.class, () -> cut.write(1));
        assertThrows(SyncFailedException.class, fd::sync);
        FileDescriptor never = new FileDescriptor();
        assertFalse(never.valid());
        assertEquals(0, never.position);
        assertThrows(IOException.class, () -> new FileInputStream(never).read());
        assertThrows(NullPointerException.class, () -> new FileInputStream((FileDescriptor) null));
        assertThrows(NullPointerException.class, () -> new FileOutputStream((FileDescriptor) null));
        assertThrows(NullPointerException.class, () -> new FileInputStream((File) null));
        assertThrows(FileNotFoundException.class, () -> new FileInputStream("/missing"));
        assertThrows(FileNotFoundException.class, () -> new FileInputStream("/"));
        assertThrows(FileNotFoundException.class, () -> new FileOutputStream("/"));
        assertEquals(1, new File("/f").length());
    }

    @Test
    void text_is_read_and_written_in_utf_8() throws IOException {
        File file = new File("/t");
        try (FileWriter writer = new FileWriter(file)) {
            writer.write("grün\n");
        }
        try (FileWriter writer = new FileWriter(file, true)) {
            writer.write("two\n");
        }
        try (FileWriter writer = new FileWriter("/t", true)) {
            writer.write("\uD83D\uDD12\n");
        }
        try (BufferedReader reader = new BufferedReader(new FileReader(file))) {
            assertEquals("grün", reader.readLine());
            assertEquals("two", reader.readLine());
            assertEquals("\uD83D\uDD12", reader.readLine());
            assertNull(reader.readLine());
        }
        try (FileWriter writer = new FileWriter("/t"); FileReader reader = new FileReader("/t")) {
            assertEquals(-1, reader.read());
        }
        FileOutputStream out = new FileOutputStream("/t");
        FileWriter onto = new FileWriter(out.getFD());
        onto.write("x");
        onto.close();
        out.close();
        FileInputStream in = new FileInputStream("/t");
        assertEquals('x', new FileReader(in.getFD()).read());
        in.close();
        assertThrows(FileNotFoundException.class, () -> new FileReader("/missing"));
    }

    @Test
    void random_access_reads_what_it_wrote() throws IOException {
        File path = new File("/r");
        assertThrows(FileNotFoundException.class, () -> new RandomAccessFile(path, "r"));
        assertThrows(IllegalArgumentException.class, () -> new RandomAccessFile("/r", "w"));
        RandomAccessFile file = new RandomAccessFile(path, "rw");
        file.writeBoolean(true);
        file.writeByte(-2);
        file.writeBytes("ab");
        file.writeChar('ß');
        file.writeChars("日本");
        file.writeDouble(1.5);
        file.writeFloat(-2.5f);
        file.writeInt(-123456789);
        file.writeLong(Long.MIN_VALUE + 5);
        file.writeShort(-300);
        file.writeUTF("x\0\uD83D\uDD12");
        file.write(200);
        file.write(new byte[] {1, 2, 3});
        file.write(new byte[] {4, 5, 6}, 1, 2);
        long end = file.getFilePointer();
        assertEquals(end, file.length());
        file.seek(0);
        assertTrue(file.readBoolean());
        assertEquals(-2, file.readByte());
        byte[] ab = new byte[2];
        file.readFully(ab);
        assertArrayEquals("ab".getBytes(), ab);
        assertEquals('ß', file.readChar());
        assertEquals('日', file.readChar());
        assertEquals('本', file.readChar());
        assertEquals(1.5, file.readDouble());
        assertEquals(-2.5f, file.readFloat());
        assertEquals(-123456789, file.readInt());
        assertEquals(Long.MIN_VALUE + 5, file.readLong());
        assertEquals(-300, file.readShort());
        assertEquals("x\0\uD83D\uDD12", file.readUTF());
        assertEquals(200, file.readUnsignedByte());
        assertEquals(0x0102, file.readUnsignedShort());
        byte[] buffer = new byte[5];
        assertEquals(3, file.read(buffer, 1, 4));
        assertArrayEquals(new byte[] {0, 3, 5, 6, 0}, buffer);
        assertEquals(-1, file.read());
        assertEquals(-1, file.read(buffer));
        assertThrows(EOFException.class, file::readInt);
        file.seek(end - 2);
        assertThrows(EOFException.class, () -> file.readFully(buffer, 0, 3));
        file.seek(end - 2);
        assertEquals(2, file.skipBytes(100));
        assertEquals(0, file.skipBytes(-1));
        assertThrows(IOException.class, () -> file.seek(-1));
        file.setLength(10);
        assertEquals(10, file.getFilePointer());
        file.setLength(20);
        assertEquals(20, file.length());
        file.seek(19);
        assertEquals(0, file.read());
        assertThrows(IllegalArgumentException.class, () -> file.setLength(-1));
        assertSame(file.getChannel(), file.getChannel());
        FileDescriptor fd = file.getFD();
        file.close();
        file.close();
        assertFalse(fd.valid());
        assertThrows(IOException.class, file::length);
        put("/lines", "one\ntwo\r\nthree\rfour");
        RandomAccessFile lines = new RandomAccessFile("/lines", "rws");
        for (String line : new String[] {"one", "two", "three", "four", null}) {
            assertEquals(line, lines.readLine());
        }
        lines.writeBytes("!");
        assertEquals("one\ntwo\r\nthree\rfour!", get("/lines"));
        lines.close();
        RandomAccessFile reader = new RandomAccessFile("/lines", "r");
        assertThrows(IOException.class, () -> reader.write(1));
        reader.close();
    }

    @Test
    void channels_move_a_position_that_they_share() throws IOException {
        RandomAccessFile file = new RandomAccessFile("/c", "rw");
        IOCipherFileChannel c = file.getChannel();
        assertEquals(5, c.write(ByteBuffer.wrap("hello".getBytes())));
        assertEquals(5, c.position());
        assertEquals(5, file.getFilePointer());
        assertEquals(3, c.write(ByteBuffer.wrap("xyz".getBytes()), 10));
        assertEquals(13, c.size());
        assertEquals(5, c.position());
        assertEquals(2, c.lseek(2, 0));
        assertEquals(4, c.lseek(2, 1));
        assertEquals(10, c.lseek(-3, 2));
        assertThrows(IOException.class, () -> c.lseek(-1, 0));
        assertThrows(IOException.class, () -> c.lseek(0, 3));
        ByteBuffer three = ByteBuffer.allocateDirect(3);
        assertEquals(3, c.read(three));
        assertEquals(-1, c.read(ByteBuffer.allocate(1)));
        assertEquals(0, c.read(ByteBuffer.allocate(0)));
        ByteBuffer two = ByteBuffer.allocate(2);
        assertEquals(2, c.read(two, 1));
        assertEquals('e', two.get(0));
        assertSame(c, c.position(3));
        assertSame(c, c.truncate(2));
        assertEquals(2, c.position());
        c.truncate(100);
        assertEquals(2, c.size());
        c.force(true);
        assertEquals(4, c.transferFrom(Channels.newChannel(new ByteArrayInputStream("llo!".getBytes())), 2, 100));
        assertEquals(0, c.transferFrom(Channels.newChannel(new ByteArrayInputStream(new byte[1])), 100, 1));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        assertEquals(5, c.transferTo(1, 100, Channels.newChannel(out)));
        assertEquals("ello!", out.toString());
        assertThrows(IllegalArgumentException.class, () -> c.position(-1));
        c.close();
        assertFalse(c.isOpen() || file.getFD().valid());
        assertThrows(ClosedChannelException.class, c::size);
        FileInputStream in = new FileInputStream("/c");
        assertThrows(NonWritableChannelException.class, () -> in.getChannel().write(ByteBuffer.allocate(1)));
        in.close();
        FileOutputStream append = new FileOutputStream("/c", true);
        assertThrows(NonReadableChannelException.class, () -> append.getChannel().read(ByteBuffer.allocate(1)));
        IOCipherFileChannel own = new IOCipherFileChannel(null, append.getFD(), 1);
        own.write(ByteBuffer.wrap("?".getBytes()));
        own.close();
        assertTrue(append.getFD().valid());
        append.close();
        assertEquals("hello!?", get("/c"));
    }

    /** A channel closes its stream and a stream its channel: two threads that began at different ends waited for each other. */
    @Test
    void closing_a_channel_waits_for_nobody_who_holds_the_monitor_of_its_stream() throws Exception {
        put("/f", "x");
        FileOutputStream out = new FileOutputStream("/out");
        FileInputStream in = new FileInputStream("/f");
        RandomAccessFile both = new RandomAccessFile("/f", "rw");
        close(out, out.getChannel());
        close(in, in.getChannel());
        close(both, both.getChannel());
    }

    private static void close(java.io.Closeable stream, IOCipherFileChannel channel) throws Exception {
        Thread thread = new Thread(() -> {
            try {
                channel.close();
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        });
        synchronized (stream) {
            thread.start();
            // As long as it takes on a busy machine, where it does end.
            thread.join(60_000);
            assertFalse(thread.isAlive(), stream + ": its channel waits for its monitor");
            stream.close();
        }
        assertFalse(channel.isOpen());
    }
}
