package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.strongroom.Child;
import org.strongroom.CorruptException;
import org.strongroom.Key;
import org.strongroom.Room;
import org.strongroom.RoomBusyException;
import org.strongroom.RoomException;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;
import org.strongroom.RoomOptions;

class FaultsTest extends Contract {
    private static void flip(Path file, long from, long step) throws IOException {
        try (RandomAccessFile bytes = new RandomAccessFile(file.toFile(), "rw")) {
            for (long at = from; at < bytes.length(); at += step) {
                bytes.seek(at);
                int b = bytes.read();
                bytes.seek(at);
                bytes.write(b ^ 0x10);
            }
        }
    }

    @Test
    void damaged_segment() throws IOException {
        File dir = fresh();
        byte[] bytes = pattern(300_000, 1);
        try (Room room = create(dir)) {
            put(room, "/f", bytes);
        }
        try (Stream<Path> segments = Files.list(dir.toPath().resolve("segments"))) {
            for (Path segment : segments.toList()) {
                flip(segment, 4096 + 100, 1024);
            }
        }
        try (Room room = open(dir); RoomFile file = room.openFile("/f", RW, 0)) {
            byte[] buffer = new byte[4096];
            for (int at = 0; at < bytes.length; at += 4096) {
                int from = at;
                CorruptException e = assertThrows(CorruptException.class, () -> file.readAt(from, buffer, 0, 4096));
                assertEquals(Kind.CORRUPT, e.kind());
            }
            assertThrows(CorruptException.class, () -> file.readAt(0, ByteBuffer.allocateDirect(300_000)));
            assertThrows(CorruptException.class, () -> file.readAt(0, new byte[300_000], 0, 300_000));
            assertEquals(300_000, file.length());
            put(room, "/g", bytes);
            assertArrayEquals(bytes, get(room, "/g"));
        }
    }

    @Test
    void damaged_catalog() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", pattern(100_000, 1));
        }
        flip(dir.toPath().resolve("catalog.db"), 50, 512);
        RoomException e = assertThrows(RoomException.class, () -> {
            try (Room room = open(dir)) {
                get(room, "/f");
                room.list("/");
            }
        });
        assertTrue(e.kind() == Kind.CORRUPT || e.kind() == Kind.ROLLED_BACK, e.kind() + " " + e);
    }

    @Test
    void damaged_header() throws IOException {
        File dir = fresh();
        create(dir).close();
        Files.write(dir.toPath().resolve("header.json"), new byte[1000]);
        open(dir).close();
        Files.write(dir.toPath().resolve("header.json"), new byte[1000]);
        Files.write(dir.toPath().resolve("header.backup.json"), new byte[1000]);
        refused(Kind.CORRUPT, () -> open(dir));
    }

    private static List<Executable> callsOf(RoomFile file) {
        return List.of(
                () -> file.readAt(0, new byte[1], 0, 1),
                () -> file.readAt(0, new byte[5000], 0, 5000),
                () -> file.readAt(0, ByteBuffer.allocateDirect(10)),
                () -> file.readAt(0, ByteBuffer.allocate(10)),
                () -> file.writeAt(0, new byte[1], 0, 1),
                () -> file.writeAt(0, ByteBuffer.allocateDirect(10)),
                file::length, file::stat, file::sync, () -> file.setLength(0), () -> file.setMode(0600));
    }

    private static List<Executable> callsOf(Room room) {
        return List.of(
                () -> room.stat("/", true), () -> room.exists("/"), () -> room.list("/"), () -> room.openFile("/x", NEW, 0644),
                () -> room.makeDirectory("/d", 0755), () -> room.makeDirectories("/d/e"), () -> room.removeFile("/x"),
                () -> room.removeDirectory("/d"), () -> room.rename("/x", "/y", Room.RenameMode.REPLACE),
                () -> room.link("/x", "/y"), () -> room.symlink("x", "/y"), () -> room.readLink("/y"), () -> room.realPath("/"),
                () -> room.setMode("/", 0755), () -> room.setOwner("/", true, 1, 1), () -> room.setLength("/x", 1),
                () -> room.setModified("/", true, 0, 0), () -> room.setAccessed("/", true, 0, 0),
                () -> room.xattr("/", "user.a"), () -> room.setXattr("/", "user.a", new byte[0], Room.XattrMode.ANY),
                () -> room.removeXattr("/", "user.a"), () -> room.xattrNames("/"), room::info, room::sync, room::begin,
                room::complete, room::inTransaction, room::isReadOnly, room::keys,
                () -> room.addKey(raw(5), "", new RoomOptions()), () -> room.changeKey(0, raw(5), new RoomOptions()),
                () -> room.removeKey(0));
    }

    @Test
    void closed_file() throws IOException {
        RoomFile file = room.openFile(at + "/f", NEW, 0644);
        file.close();
        assertFalse(file.isOpen());
        for (Executable call : callsOf(file)) {
            refused(Kind.CLOSED, call);
        }
        file.close();
    }

    @Test
    void closed_room() throws IOException {
        Room room = create(fresh());
        RoomFile file = room.openFile("/f", NEW, 0644);
        room.close();
        assertFalse(room.isOpen());
        for (Executable call : callsOf(room)) {
            refused(Kind.CLOSED, call);
        }
        for (Executable call : callsOf(file)) {
            refused(Kind.CLOSED, call);
        }
        room.close();
        room.abandon();
        file.close();
    }

    @Test
    void close_room_with_files_open() throws IOException {
        File dir = fresh();
        Room room = create(dir);
        RoomFile file = room.openFile("/f", NEW, 0644);
        file.writeAt(0, "kept".getBytes(), 0, 4);
        room.removeFile("/f");
        RoomFile second = room.openFile("/g", NEW, 0644);
        second.writeAt(0, "kept".getBytes(), 0, 4);
        room.close();
        refused(Kind.CLOSED, () -> file.length());
        refused(Kind.CLOSED, () -> second.writeAt(0, new byte[1], 0, 1));
        assertFalse(file.isOpen());
        file.close();
        second.close();
        try (Room again = open(dir)) {
            assertEquals("kept", new String(get(again, "/g")));
            assertFalse(again.exists("/f"));
        }
    }

    @Test
    void close_room_while_used() throws Exception {
        File dir = fresh();
        Room room = create(dir);
        AtomicInteger[] done = new AtomicInteger[ThreadsTest.THREADS];
        AtomicInteger begun = new AtomicInteger();
        ThreadsTest.eight(thread -> {
            done[thread] = new AtomicInteger();
            try (RoomFile file = room.openFile("/f" + thread, NEW, 0644)) {
                for (int i = 0; i < 1_000_000; i++) {
                    file.writeAt(i * 4L, new byte[] {1, 2, 3, (byte) i}, 0, 4);
                    done[thread].set(i + 1);
                    if (thread == 0 && begun.incrementAndGet() == 200) {
                        room.close();
                    }
                }
            } catch (RoomException e) {
                assertEquals(Kind.CLOSED, e.kind());
            }
        });
        try (Room again = open(dir)) {
            for (int thread = 0; thread < ThreadsTest.THREADS; thread++) {
                int n = done[thread].get();
                if (n > 0) {
                    byte[] bytes = get(again, "/f" + thread);
                    assertTrue(bytes.length >= n * 4, bytes.length + " of " + n * 4);
                    assertEquals((byte) (n - 1), bytes[n * 4 - 1]);
                }
            }
        }
    }

    @Test
    void handle_never_existed() throws Exception {
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(null, R, 0));
        refused(Kind.INVALID_ARGUMENT, () -> room.list(null));
        assertThrows(NullPointerException.class, () -> room.openFile(at + "/f", NEW, 0644).readAt(0, (ByteBuffer) null));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/f", NEW, 0644).readAt(0, null, 0, 1));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/f", NEW, 0644).writeAt(0, null, 0, 1));
        assertThrows(IllegalArgumentException.class,
                () -> room.openFile(at + "/f", NEW, 0644).readAt(0, ByteBuffer.allocate(1).asReadOnlyBuffer()));
        Invented.check(room);
    }

    @Test
    void exit_with_room_open() throws Exception {
        for (String[] how : new String[][] {{}, {"begin"}, {"begin", "exit"}}) {
            File dir = fresh();
            create(dir).close();
            List<String> arguments = new ArrayList<>(List.of("exit", dir.getPath()));
            arguments.addAll(List.of(how));
            try (Child child = new Child(Child.class, arguments.toArray(new String[0]))) {
                child.says("ending");
                assertEquals("", child.ends(how.length > 1 ? 7 : 0));
            }
            try (Room room = open(dir)) {
                // Closed in order, it has what was not synced too. A transaction at the end commits what was before it first.
                assertEquals("synced and not", new String(get(room, "/child")));
            }
        }
    }

    /** Java cannot fork: a child is another process, which inherits nothing of the room. */
    @Test
    void fork() throws Exception {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", "x".getBytes());
            try (Child child = new Child(Child.class, "open", dir.getPath())) {
                assertEquals("busy", child.ends(0));
            }
            // One that lives on keeps no lock of the room.
            Process sleeper = new ProcessBuilder("sleep", "60").start();
            try {
                room.close();
                open(dir).close();
            } finally {
                sleeper.destroyForcibly();
            }
        }
    }

    @Test
    void second_opener() throws Exception {
        File dir = fresh();
        try (Room room = create(dir)) {
            assertThrows(RoomBusyException.class, () -> open(dir));
            try (Child child = new Child(Child.class, "open", dir.getPath())) {
                assertEquals("busy", child.ends(0));
            }
            put(room, "/f", "goes on".getBytes());
            assertEquals("goes on", new String(get(room, "/f")));
        }
        try (Child child = new Child(Child.class, "open", dir.getPath())) {
            child.says("opened");
        }
    }

    @Test
    void read_only_room() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", "read".getBytes());
            room.makeDirectory("/d", 0755);
        }
        try (Room room = Room.open(dir, raw(0), new RoomOptions().readOnly(true))) {
            assertTrue(room.isReadOnly());
            assertEquals("read", new String(get(room, "/f")));
            assertEquals(2, room.list("/").size());
            List<Executable> changes = List.of(
                    () -> room.openFile("/f", W, 0), () -> room.openFile("/n", NEW, 0644), () -> room.makeDirectory("/x", 0755),
                    () -> room.removeFile("/f"), () -> room.removeDirectory("/d"), () -> room.setMode("/f", 0600),
                    () -> room.setLength("/f", 0), () -> room.rename("/f", "/g", Room.RenameMode.REPLACE),
                    () -> room.link("/f", "/g"), () -> room.symlink("f", "/g"), room::begin,
                    () -> room.setXattr("/f", "user.a", new byte[0], Room.XattrMode.ANY));
            for (Executable change : changes) {
                refused(Kind.READ_ONLY, change);
            }
            assertThrows(RoomException.class, () -> room.addKey(raw(3), "", new RoomOptions()));
        }
    }

    @Test
    void disk_full() throws Exception {
        boolean root = new ProcessBuilder("id", "-u").start().inputReader().readLine().equals("0");
        Path disk = temporary.resolve("disk");
        Files.createDirectories(disk);
        boolean mounted = root && run("mount", "-t", "tmpfs", "-o", "size=24m", "none", disk.toString());
        if (!mounted) {
            System.out.println("disk_full: skipped, for it needs root and the right to mount");
        }
        assumeTrue(mounted);
        try {
            File dir = disk.resolve("room").toFile();
            try (Room room = create(dir)) {
                put(room, "/before", "kept".getBytes());
                room.sync();
                byte[] mib = pattern(1 << 20, 1);
                RoomException full = assertThrows(RoomException.class, () -> {
                    try (RoomFile file = room.openFile("/big", NEW, 0644)) {
                        for (long i = 0; i < 64; i++) {
                            file.writeAt(i << 20, mib, 0, mib.length);
                            file.sync();
                        }
                    }
                });
                assertEquals(Kind.NO_SPACE, full.kind(), full.toString());
                assertEquals("kept", new String(get(room, "/before")));
                room.removeFile("/big");
                room.sync();
                // Space is free again when the deletion was committed and its segments were released.
                boolean works = false;
                for (int i = 0; i < 300 && !works; i++) {
                    try {
                        put(room, "/after", mib);
                        room.sync();
                        works = true;
                    } catch (RoomException e) {
                        assertEquals(Kind.NO_SPACE, e.kind(), e.toString());
                        Thread.sleep(100);
                    }
                }
                assertArrayEquals(mib, get(room, "/after"));
            }
            try (Room room = open(dir)) {
                assertEquals("kept", new String(get(room, "/before")));
            }
        } finally {
            assertTrue(run("umount", disk.toString()));
        }
    }

    private static boolean run(String... command) throws Exception {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getInputStream().readAllBytes();
        return process.waitFor(60, TimeUnit.SECONDS) && process.exitValue() == 0;
    }

    @Test
    void errors_have_text() throws IOException {
        File dir = fresh();
        Room.create(dir, phrase("a secret phrase"), cheap()).close();
        List<RoomException> all = new ArrayList<>();
        all.add(refused(Kind.NOT_FOUND, () -> room.openFile(at + "/x", R, 0)));
        all.add(refused(Kind.EXISTS, () -> room.makeDirectory(at, 0755)));
        all.add(refused(Kind.IS_DIRECTORY, () -> room.openFile(at, R, 0)));
        all.add(refused(Kind.INVALID_ARGUMENT, () -> room.stat("", true)));
        all.add(refused(Kind.WRONG_KEY, () -> Room.open(dir, phrase("another secret phrase"), new RoomOptions())));
        all.add(refused(Kind.NOT_A_ROOM, () -> open(temporary.toFile())));
        all.add(refused(Kind.BUSY, () -> open(temporary.resolve("shared").toFile())));
        all.add(refused(Kind.CLOSED, () -> {
            Key closed = raw(0);
            closed.close();
            Room.open(dir, closed, new RoomOptions());
        }));
        Set<String> texts = new HashSet<>();
        for (RoomException e : all) {
            assertFalse(e.getMessage().contains("secret phrase"), e.getMessage());
            assertTrue(texts.add(e.getMessage()), "twice: " + e.getMessage());
            assertTrue(e.errno() > 0);
        }
        assertFalse(phrase("a secret phrase").toString().contains("secret"));
    }
}
