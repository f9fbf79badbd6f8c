package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.strongroom.Key;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;
import org.strongroom.RoomOptions;

/** What the cases share: one room for those that need no other, in which each has a directory, and small helpers. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class Contract {
    static final int R = RoomFile.READ;
    static final int W = RoomFile.WRITE;
    static final int RW = RoomFile.READ | RoomFile.WRITE;
    static final int NEW = RoomFile.READ | RoomFile.WRITE | RoomFile.CREATE;
    private static final AtomicInteger NEXT = new AtomicInteger();

    Path temporary;
    Room room;
    /** A directory of the room, fresh for each case. */
    String at;

    @BeforeAll
    void begin() throws IOException {
        temporary = Files.createTempDirectory("strongroom-test");
        room = Room.create(temporary.resolve("shared").toFile(), raw(0), new RoomOptions());
    }

    @AfterAll
    void end() throws IOException {
        room.abandon();
        try (Stream<Path> all = Files.walk(temporary)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    @BeforeEach
    void directory() throws IOException {
        at = "/d" + NEXT.incrementAndGet();
        room.makeDirectory(at, 0755);
    }

    static Key raw(int n) {
        byte[] key = new byte[32];
        Arrays.fill(key, (byte) n);
        return Key.raw(key);
    }

    static Key phrase(String text) {
        return Key.passphrase(text.toCharArray());
    }

    /** The least work there is: its cost is not under test. */
    static RoomOptions cheap() {
        return new RoomOptions().argon2(8192, 1, 1);
    }

    File fresh() {
        return temporary.resolve("room" + NEXT.incrementAndGet()).toFile();
    }

    static Room create(File dir) throws IOException {
        return Room.create(dir, raw(0), new RoomOptions());
    }

    static Room open(File dir) throws IOException {
        return Room.open(dir, raw(0), new RoomOptions());
    }

    static byte[] pattern(int length, long seed) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    static void put(Room room, String path, byte[] bytes) throws IOException {
        try (RoomFile file = room.openFile(path, W | RoomFile.CREATE | RoomFile.TRUNCATE, 0644)) {
            file.writeAt(0, bytes, 0, bytes.length);
        }
    }

    static byte[] get(Room room, String path) throws IOException {
        try (RoomFile file = room.openFile(path, R, 0)) {
            byte[] bytes = new byte[Math.toIntExact(file.length())];
            assertEquals(bytes.length, file.readAt(0, bytes, 0, bytes.length));
            return bytes;
        }
    }

    static byte[] part(RoomFile file, long from, int length) throws IOException {
        byte[] bytes = new byte[length];
        return Arrays.copyOf(bytes, file.readAt(from, bytes, 0, length));
    }

    static RoomException refused(Kind kind, Executable call) {
        RoomException e = assertThrows(RoomException.class, call);
        assertEquals(kind, e.kind(), e.toString());
        assertFalse(e.getMessage().isEmpty());
        return e;
    }
}
