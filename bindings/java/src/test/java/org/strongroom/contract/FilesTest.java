package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.strongroom.Room;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;
import org.strongroom.nio.RoomFileSystemProvider;

class FilesTest extends Contract {
    private static final int[] BOUNDARIES = boundaries();

    private static int[] boundaries() {
        int[] all = new int[10];
        for (int n = 1; n <= 4; n++) {
            all[n - 1] = n * 4096;
            all[n + 3] = n * 8192;
        }
        all[8] = 1 << 20;
        all[9] = 2 << 20;
        return all;
    }

    @Test
    void create_write_read() throws IOException {
        File dir = fresh();
        byte[] bytes = pattern(10_000, 1);
        try (Room room = create(dir)) {
            put(room, "/f", bytes);
            assertArrayEquals(bytes, get(room, "/f"));
        }
        try (Room room = open(dir)) {
            assertArrayEquals(bytes, get(room, "/f"));
        }
    }

    @Test
    void getattr_create_truncate() throws IOException {
        String f = at + "/f";
        assertFalse(room.exists(f));
        refused(Kind.NOT_FOUND, () -> room.stat(f, true));
        room.openFile(f, NEW, 0644).close();
        assertEquals(0, room.stat(f, true).size());
        for (long length : new long[] {0, 100_000, 0}) {
            room.setLength(f, length);
            assertEquals(length, room.stat(f, true).size());
        }
    }

    @Test
    void write_read_sizes() throws IOException {
        for (int size = 10; size <= 1_000_000; size *= 10) {
            String f = at + "/s" + size;
            byte[] bytes = pattern(size, size);
            put(room, f, bytes);
            assertArrayEquals(bytes, get(room, f));
            room.setLength(f, 0);
            assertEquals(0, room.stat(f, true).size());
            put(room, f, bytes);
            room.openFile(f, W | RoomFile.TRUNCATE, 0).close();
            assertEquals(0, room.stat(f, true).size());
        }
    }

    @Test
    void read_single_bytes() throws IOException {
        long seed = System.nanoTime();
        System.out.println("read_single_bytes: seed " + seed);
        byte[] bytes = pattern(1_000_000, seed);
        put(room, at + "/f", bytes);
        Random random = new Random(seed);
        byte[] one = new byte[1];
        try (RoomFile file = room.openFile(at + "/f", R, 0)) {
            for (int i = 0; i < 10_000; i++) {
                int place = random.nextInt(bytes.length);
                assertEquals(1, file.readAt(place, one, 0, 1));
                assertEquals(bytes[place], one[0]);
            }
        }
    }

    @Test
    void read_beyond_end() throws IOException {
        put(room, at + "/f", pattern(100, 2));
        try (RoomFile file = room.openFile(at + "/f", R, 0)) {
            assertEquals(30, part(file, 70, 1000).length);
            assertEquals(0, part(file, 100, 10).length);
            assertEquals(0, part(file, 1_000_000, 10).length);
        }
    }

    @Test
    void read_bigger_than_file() throws IOException {
        byte[] bytes = pattern(800, 3);
        put(room, at + "/f", bytes);
        try (RoomFile file = room.openFile(at + "/f", R, 0)) {
            assertArrayEquals(Arrays.copyOfRange(bytes, 200, 400), part(file, 200, 200));
            assertArrayEquals(bytes, part(file, 0, 2000));
        }
    }

    @Test
    void truncate_down() throws IOException {
        byte[] bytes = pattern(20_000, 4);
        for (int length : new int[] {19_999, 8192, 8191, 4097, 1, 0}) {
            put(room, at + "/f", bytes);
            room.setLength(at + "/f", length);
            assertArrayEquals(Arrays.copyOf(bytes, length), get(room, at + "/f"));
            room.setLength(at + "/f", 20_000);
            assertArrayEquals(Arrays.copyOf(Arrays.copyOf(bytes, length), 20_000), get(room, at + "/f"));
        }
    }

    @Test
    void truncate_up() throws IOException {
        byte[] bytes = pattern(10, 5);
        put(room, at + "/f", bytes);
        room.setLength(at + "/f", 10_000);
        assertArrayEquals(Arrays.copyOf(bytes, 10_000), get(room, at + "/f"));
    }

    @Test
    void truncate_sparse() throws IOException {
        long size = 5L * 1000 * 1000 * 1000;
        room.sync();
        long before = room.info().stored();
        try (RoomFile file = room.openFile(at + "/f", NEW, 0644)) {
            file.setLength(size);
            file.sync();
            assertEquals(size, file.length());
            assertArrayEquals(new byte[1], part(file, size - 1, 10));
        }
        assertTrue(room.info().stored() - before < 1 << 20);
        room.removeFile(at + "/f");
    }

    @Test
    void write_block_boundaries() throws IOException {
        for (int boundary : BOUNDARIES) {
            for (int size = boundary - 1; size <= boundary + 1; size++) {
                byte[] bytes = pattern(size, size);
                put(room, at + "/f", bytes);
                assertArrayEquals(bytes, get(room, at + "/f"));
            }
        }
    }

    @Test
    void write_across_boundaries() throws IOException {
        byte[] bytes = pattern((2 << 20) + 4096, 6);
        put(room, at + "/f", bytes);
        byte[] mark = {1, 2, 3};
        try (RoomFile file = room.openFile(at + "/f", RW, 0)) {
            for (int boundary : BOUNDARIES) {
                for (int place = boundary - 4; place <= boundary + 1; place++) {
                    file.writeAt(place, mark, 0, 3);
                    System.arraycopy(mark, 0, bytes, place, 3);
                }
            }
        }
        assertArrayEquals(bytes, get(room, at + "/f"));
    }

    @Test
    void write_gaps() throws IOException {
        byte[] bytes = pattern(50, 7);
        for (int gap : new int[] {100, 10_000, 1_000_000}) {
            byte[] whole = new byte[gap + 50];
            System.arraycopy(bytes, 0, whole, 0, 50);
            System.arraycopy(bytes, 0, whole, gap, 50);
            try (RoomFile file = room.openFile(at + "/f" + gap, NEW, 0644)) {
                file.writeAt(0, bytes, 0, 50);
                file.writeAt(gap, bytes, 0, 50);
            }
            assertArrayEquals(whole, get(room, at + "/f" + gap));
        }
    }

    @Test
    void write_empty() throws IOException {
        put(room, at + "/f", pattern(10, 8));
        try (RoomFile file = room.openFile(at + "/f", RW, 0)) {
            file.writeAt(100, new byte[0], 0, 0);
            file.writeAt(100, ByteBuffer.allocateDirect(0));
            assertEquals(10, file.length());
        }
    }

    @Test
    void append() throws IOException {
        put(room, at + "/f", "one".getBytes());
        try (RoomFile file = room.openFile(at + "/f", W | RoomFile.APPEND, 0)) {
            assertEquals(3, file.writeAt(0, "two".getBytes(), 0, 3));
            assertEquals(6, file.writeAt(1, ByteBuffer.wrap("three".getBytes())));
        }
        assertEquals("onetwothree", new String(get(room, at + "/f")));
    }

    @Test
    void append_new() throws IOException {
        try (RoomFile file = room.openFile(at + "/f", W | RoomFile.APPEND | RoomFile.CREATE, 0644)) {
            file.writeAt(7, "x".getBytes(), 0, 1);
        }
        assertEquals("x", new String(get(room, at + "/f")));
    }

    /** A room as a file system: positions are the channels'. */
    private FileSystem nio() throws IOException {
        return FileSystems.newFileSystem(RoomFileSystemProvider.uri(fresh().toPath()),
                Map.of("key", new byte[32], "createRoom", true));
    }

    @Test
    void seek() throws IOException {
        try (FileSystem fs = nio()) {
            Path path = fs.getPath("/f");
            Files.write(path, pattern(100, 9));
            try (SeekableByteChannel channel = Files.newByteChannel(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                assertEquals(0, channel.position());
                ByteBuffer ten = ByteBuffer.allocate(10);
                channel.read(ten);
                assertEquals(10, channel.position());
                channel.position(channel.position() + 5).write(ByteBuffer.wrap(new byte[] {1}));
                assertEquals(16, channel.position());
                channel.position(channel.size() + 10);
                assertEquals(110, channel.position());
                assertThrows(IllegalArgumentException.class, () -> channel.position(-1));
                assertEquals(110, channel.position());
            }
        }
    }

    @Test
    void positional_io() throws IOException {
        try (FileSystem fs = nio()) {
            try (var channel = java.nio.channels.FileChannel.open(fs.getPath("/f"), StandardOpenOption.READ,
                    StandardOpenOption.WRITE, StandardOpenOption.CREATE)) {
                channel.write(ByteBuffer.wrap(new byte[50]));
                channel.position(20);
                channel.write(ByteBuffer.wrap(new byte[] {7}), 40);
                ByteBuffer one = ByteBuffer.allocate(1);
                assertEquals(1, channel.read(one, 40));
                assertEquals(7, one.get(0));
                assertEquals(20, channel.position());
            }
        }
    }

    @Test
    void open_missing() throws IOException {
        refused(Kind.NOT_FOUND, () -> room.openFile(at + "/f", R, 0));
        refused(Kind.NOT_FOUND, () -> room.openFile(at + "/f", RW, 0));
        assertTrue(room.list(at).isEmpty());
    }

    @Test
    void create_existing() throws IOException {
        put(room, at + "/f", "stays".getBytes());
        room.openFile(at + "/f", NEW, 0644).close();
        assertEquals("stays", new String(get(room, at + "/f")));
    }

    @Test
    void create_truncate_new() throws IOException {
        room.openFile(at + "/f", NEW | RoomFile.TRUNCATE, 0644).close();
        assertEquals(0, room.stat(at + "/f", true).size());
    }

    @Test
    void create_truncate_existing() throws IOException {
        put(room, at + "/f", "goes".getBytes());
        room.openFile(at + "/f", NEW | RoomFile.TRUNCATE, 0644).close();
        assertEquals(0, room.stat(at + "/f", true).size());
    }

    @Test
    void create_exclusive() throws IOException {
        put(room, at + "/f", "stays".getBytes());
        room.symlink("nowhere", at + "/l");
        refused(Kind.EXISTS, () -> room.openFile(at + "/f", W | RoomFile.CREATE_NEW, 0644));
        refused(Kind.EXISTS, () -> room.openFile(at + "/l", W | RoomFile.CREATE_NEW, 0644));
        assertEquals("stays", new String(get(room, at + "/f")));
        assertFalse(room.exists(at + "/nowhere"));
    }

    @Test
    void open_directory() {
        refused(Kind.IS_DIRECTORY, () -> room.openFile(at, R, 0));
        refused(Kind.IS_DIRECTORY, () -> room.openFile(at, RW, 0));
    }

    @Test
    void read_only_handle() throws IOException {
        put(room, at + "/f", "x".getBytes());
        try (RoomFile reader = room.openFile(at + "/f", R, 0); RoomFile writer = room.openFile(at + "/f", W, 0)) {
            refused(Kind.READ_ONLY, () -> reader.writeAt(0, new byte[1], 0, 1));
            refused(Kind.READ_ONLY, () -> reader.setLength(0));
            refused(Kind.READ_ONLY, () -> writer.readAt(0, new byte[1], 0, 1));
        }
        assertEquals("x", new String(get(room, at + "/f")));
    }

    @Test
    void unlink_open() throws IOException {
        put(room, at + "/f", "alive".getBytes());
        try (RoomFile file = room.openFile(at + "/f", RW, 0)) {
            room.removeFile(at + "/f");
            assertFalse(room.exists(at + "/f"));
            assertEquals("alive", new String(part(file, 0, 10)));
            file.writeAt(5, "!".getBytes(), 0, 1);
            assertEquals(6, file.length());
        }
    }

    @Test
    void big_io() throws IOException {
        int size = 64 << 20;
        byte[] bytes = pattern(size, 10);
        try (RoomFile file = room.openFile(at + "/f", NEW, 0644)) {
            assertEquals(0, file.writeAt(0, bytes, 0, size));
            byte[] back = new byte[size];
            assertEquals(size, file.readAt(0, back, 0, size));
            assertTrue(Arrays.equals(bytes, back));
            for (int[] bad : new int[][] {{-1, 1}, {0, -1}, {1, size}, {size + 1, 0}, {Integer.MAX_VALUE, 1}, {1, Integer.MAX_VALUE}}) {
                refused(Kind.INVALID_ARGUMENT, () -> file.readAt(0, back, bad[0], bad[1]));
                refused(Kind.INVALID_ARGUMENT, () -> file.writeAt(0, back, bad[0], bad[1]));
            }
            refused(Kind.INVALID_ARGUMENT, () -> file.readAt(-1, back, 0, 1));
            refused(Kind.INVALID_ARGUMENT, () -> file.writeAt(Long.MIN_VALUE, back, 0, 1));
            refused(Kind.INVALID_ARGUMENT, () -> file.setLength(-1));
            assertThrows(IOException.class, () -> file.writeAt(Long.MAX_VALUE, back, 0, 1));
        }
        room.removeFile(at + "/f");
    }

    @Test
    void attributes() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", new byte[1]);
            room.setMode("/f", 04751);
            room.setOwner("/f", true, 12, 34);
            room.setMode("/f", 04751);
            room.setAccessed("/f", true, 1_000_000_000, 123_456_789);
            room.setModified("/f", true, -5, 999_999_999);
        }
        try (Room room = open(dir)) {
            var stat = room.stat("/f", true);
            assertEquals(04751, stat.mode());
            assertEquals(12, stat.owner());
            assertEquals(34, stat.group());
            assertEquals(1_000_000_000, stat.accessedSeconds());
            assertEquals(123_456_789, stat.accessedNanos());
            assertEquals(-5, stat.modifiedSeconds());
            assertEquals(999_999_999, stat.modifiedNanos());
        }
        refused(Kind.INVALID_ARGUMENT, () -> room.setModified(at, true, 0, 1_000_000_000));
    }

    @Test
    void xattrs() throws IOException {
        put(room, at + "/f", new byte[0]);
        String f = at + "/f";
        assertTrue(room.xattrNames(f).isEmpty());
        refused(Kind.INVALID_ARGUMENT, () -> room.xattr(f, "user.a"));
        room.setXattr(f, "user.b", new byte[] {1, 0, 2}, Room.XattrMode.CREATE);
        room.setXattr(f, "user.a", new byte[0], Room.XattrMode.ANY);
        assertEquals(java.util.List.of("user.a", "user.b"), room.xattrNames(f));
        assertArrayEquals(new byte[] {1, 0, 2}, room.xattr(f, "user.b"));
        refused(Kind.EXISTS, () -> room.setXattr(f, "user.b", new byte[1], Room.XattrMode.CREATE));
        room.setXattr(f, "user.b", new byte[] {9}, Room.XattrMode.REPLACE);
        assertArrayEquals(new byte[] {9}, room.xattr(f, "user.b"));
        refused(Kind.INVALID_ARGUMENT, () -> room.setXattr(f, "user.c", new byte[1], Room.XattrMode.REPLACE));
        room.removeXattr(f, "user.b");
        refused(Kind.INVALID_ARGUMENT, () -> room.removeXattr(f, "user.b"));
        assertEquals(java.util.List.of("user.a"), room.xattrNames(f));
    }
}
