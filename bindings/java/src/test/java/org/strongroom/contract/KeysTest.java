package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import org.junit.jupiter.api.Test;
import org.strongroom.Key;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomInfo;
import org.strongroom.RoomOptions;
import org.strongroom.WrongKeyException;

class KeysTest extends Contract {
    @Test
    void open_wrong_passphrase() throws IOException {
        File dir = fresh();
        Room.create(dir, phrase("correct horse"), cheap()).close();
        for (String wrong : new String[] {"wrong", "correct horse ", "Correct horse"}) {
            assertThrows(WrongKeyException.class, () -> Room.open(dir, phrase(wrong), new RoomOptions()));
        }
        refused(Kind.INVALID_ARGUMENT, () -> Room.open(dir, phrase(""), new RoomOptions()));
        Room.open(dir, Key.passphrase("correct horse".getBytes()), new RoomOptions()).close();
        char[] mine = "correct horse".toCharArray();
        Key key = Key.passphrase(mine);
        assertArrayEquals(new char[mine.length], mine);
        key.close();
        refused(Kind.CLOSED, () -> Room.open(dir, key, new RoomOptions()));
    }

    @Test
    void open_wrong_raw_key() throws IOException {
        File dir = fresh();
        create(dir).close();
        assertThrows(WrongKeyException.class, () -> Room.open(dir, raw(1), new RoomOptions()));
        for (int length : new int[] {0, 1, 16, 31, 33}) {
            refused(Kind.INVALID_ARGUMENT, () -> Room.open(dir, Key.raw(new byte[length]), new RoomOptions()));
            File other = fresh();
            refused(Kind.INVALID_ARGUMENT, () -> Room.create(other, Key.raw(new byte[length]), new RoomOptions()));
            assertFalse(other.exists());
        }
        open(dir).close();
    }

    @Test
    void open_not_a_room() throws IOException {
        File empty = fresh();
        Files.createDirectory(empty.toPath());
        refused(Kind.NOT_A_ROOM, () -> open(empty));
        assertThrows(RoomException.class, () -> open(fresh()));
        File file = fresh();
        Files.write(file.toPath(), new byte[100]);
        assertThrows(RoomException.class, () -> open(file));
        assertEquals(100, file.length());
    }

    @Test
    void create_existing_room() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", "stays".getBytes());
        }
        refused(Kind.EXISTS, () -> create(dir));
        File full = fresh();
        Files.createDirectory(full.toPath());
        Files.write(full.toPath().resolve("x"), new byte[1]);
        refused(Kind.EXISTS, () -> create(full));
        try (Room room = open(dir)) {
            assertEquals("stays", new String(get(room, "/f")));
        }
    }

    @Test
    void change_key_open() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/f", "before".getBytes());
            room.changeKey(room.keys().get(0).number(), raw(7), new RoomOptions());
            put(room, "/g", "after".getBytes());
        }
        assertThrows(WrongKeyException.class, () -> open(dir));
        try (Room room = Room.open(dir, raw(7), new RoomOptions())) {
            assertEquals("before", new String(get(room, "/f")));
            assertEquals("after", new String(get(room, "/g")));
        }
    }

    @Test
    void change_key_closed() throws IOException {
        File dir = fresh();
        create(dir).close();
        for (int n = 0; n < 2; n++) {
            try (Room room = Room.open(dir, raw(n), new RoomOptions())) {
                room.changeKey(room.keys().get(0).number(), raw(n + 1), new RoomOptions());
            }
        }
        assertThrows(WrongKeyException.class, () -> open(dir));
        assertThrows(WrongKeyException.class, () -> Room.open(dir, raw(1), new RoomOptions()));
        Room.open(dir, raw(2), new RoomOptions()).close();
    }

    @Test
    void add_remove_key() throws IOException {
        File dir = fresh();
        int slot;
        try (Room room = create(dir)) {
            slot = room.addKey(Key.file("content of a file".getBytes()), "a file", new RoomOptions());
            assertEquals(2, room.keys().size());
            assertEquals("KEY_FILE", room.keys().get(1).kind());
            assertEquals("a file", room.keys().get(1).label());
            assertTrue(room.keys().get(1).createdSeconds() > 1_600_000_000);
        }
        try (Room room = Room.open(dir, Key.file("content of a file".getBytes()), new RoomOptions())) {
            room.removeKey(slot);
            assertThrows(RoomException.class, () -> room.removeKey(room.keys().get(0).number()));
            assertThrows(RoomException.class, () -> room.removeKey(-1));
        }
        assertThrows(WrongKeyException.class, () -> Room.open(dir, Key.file("content of a file".getBytes()), new RoomOptions()));
        open(dir).close();
    }

    @Test
    void room_info() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            assertEquals(dir, room.directory());
            put(room, "/f", new byte[100_000]);
            put(room, "/g", pattern(100_000, 1));
            room.sync();
            RoomInfo info = room.info();
            assertTrue(info.id().matches("[0-9a-f]{32}"));
            assertTrue(info.suite().equals("aes-256-gcm") || info.suite().equals("chacha20-poly1305"), info.suite());
            assertTrue(info.format() >= 1 && info.generation() >= 1 && info.keyEpoch() >= 0);
            assertEquals(1, info.keySlots());
            assertTrue(info.segments() >= 1);
            assertTrue(info.live() >= 100_000, "live " + info.live());
            assertTrue(info.stored() >= info.live());
            assertTrue(info.files() >= 2);
            assertTrue(info.total() >= info.free() && info.free() >= info.available() && info.available() > 0);
            assertTrue(info.createdSeconds() > 1_600_000_000);
        }
    }
}
