package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.strongroom.Change;
import org.strongroom.Room;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;
import org.strongroom.RoomOptions;
import org.strongroom.Snapshot;

class SnapshotsTest extends Contract {
    private static byte[] bytes(String text) {
        return text.getBytes();
    }

    private static String text(Room room, String path) throws IOException {
        return new String(get(room, path));
    }

    @Test
    void snapshot_read() throws IOException {
        try (Room room = create(fresh())) {
            room.makeDirectories("/papers");
            put(room, "/papers/letter", bytes("first"));
            room.symlink("papers/letter", "/link");
            room.setXattr("/papers/letter", "user.a", bytes("1"), Room.XattrMode.ANY);
            room.createSnapshot("monday");
            put(room, "/papers/letter", bytes("second, and longer"));
            put(room, "/new", bytes(""));
            room.removeFile("/link");
            try (Room past = room.openSnapshot("monday")) {
                assertEquals("first", text(past, "/papers/letter"));
                assertEquals("first", text(past, "/link"));
                assertEquals("papers/letter", past.readLink("/link"));
                assertArrayEquals(bytes("1"), past.xattr("/papers/letter", "user.a"));
                assertFalse(past.exists("/new"));
                assertEquals(2, past.list("/").size());
                assertTrue(past.isReadOnly() && !room.isReadOnly());
                refused(Kind.READ_ONLY, () -> put(past, "/new", bytes("x")));
                refused(Kind.READ_ONLY, () -> past.makeDirectory("/d", 0755));
                refused(Kind.READ_ONLY, () -> past.removeFile("/link"));
                refused(Kind.READ_ONLY, () -> past.rename("/link", "/other", Room.RenameMode.REPLACE));
                refused(Kind.READ_ONLY, () -> past.setMode("/papers", 0700));
                refused(Kind.READ_ONLY, past::begin);
                refused(Kind.READ_ONLY, () -> past.createSnapshot("other"));
            }
            assertEquals("second, and longer", text(room, "/papers/letter"));
        }
    }

    @Test
    void snapshot_names() throws IOException {
        try (Room room = create(fresh())) {
            assertTrue(room.snapshots().isEmpty());
            assertEquals(0, room.heldBySnapshots());
            put(room, "/big", new byte[1 << 20]);
            assertEquals("monday", room.createSnapshot("monday").name());
            room.removeFile("/big");
            room.createSnapshot("tuesday");
            List<Snapshot> all = room.snapshots();
            assertEquals("[monday, tuesday]", all.toString());
            assertEquals(1 << 20, all.get(0).exclusive());
            assertEquals(0, all.get(1).exclusive());
            assertTrue(all.get(0).number() < all.get(1).number());
            assertTrue(all.get(0).createdSeconds() > 1_500_000_000L);
            assertFalse(all.get(0).isAutomatic());
            assertEquals(1 << 20, room.heldBySnapshots());
            refused(Kind.EXISTS, () -> room.createSnapshot("monday"));
            refused(Kind.EXISTS, () -> room.renameSnapshot("monday", "tuesday"));
            refused(Kind.INVALID_ARGUMENT, () -> room.createSnapshot("a/b"));
            refused(Kind.INVALID_ARGUMENT, () -> room.createSnapshot(""));
            refused(Kind.NOT_FOUND, () -> room.renameSnapshot("sunday", "x"));
            refused(Kind.NOT_FOUND, () -> room.deleteSnapshot("sunday"));
            assertTrue(refused(Kind.NOT_FOUND, () -> room.openSnapshot("sunday")).getMessage().contains("sunday"));
            room.begin();
            refused(Kind.BUSY, () -> room.createSnapshot("x"));
            room.complete();
            room.renameSnapshot("monday", "first");
            room.deleteSnapshot("tuesday");
            assertEquals("[first]", room.snapshots().toString());
        }
    }

    @Test
    void snapshot_deleted() throws IOException {
        try (Room room = create(fresh())) {
            put(room, "/a", bytes("a"));
            room.createSnapshot("monday");
            try (Room past = room.openSnapshot("monday");
                    RoomFile file = past.openFile("/a", R, 0)) {
                room.deleteSnapshot("monday");
                room.createSnapshot("monday");
                refused(Kind.NOT_FOUND, () -> part(file, 0, 1));
                refused(Kind.NOT_FOUND, () -> past.stat("/a", true));
            }
        }
    }

    @Test
    void snapshot_closed() throws IOException {
        File dir = fresh();
        Room room = create(dir);
        put(room, "/a", bytes("a"));
        room.createSnapshot("monday");
        Room one = room.openSnapshot("monday");
        Room other = room.openSnapshot("monday");
        RoomFile file = other.openFile("/a", R, 0);
        one.close();
        one.close();
        refused(Kind.CLOSED, () -> one.stat("/a", true));
        assertEquals(1, part(file, 0, 1).length);
        room.close();
        refused(Kind.CLOSED, () -> part(file, 0, 1));
        refused(Kind.CLOSED, () -> other.stat("/a", true));
        try (Room again = open(dir)) {
            assertEquals("[monday]", again.snapshots().toString());
        }
        file.close();
        other.close();
    }

    @Test
    void snapshot_read_only() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            put(room, "/a", bytes("then"));
            room.createSnapshot("monday");
            put(room, "/a", bytes("now"));
        }
        try (Room room = Room.open(dir, raw(0), new RoomOptions().readOnly(true))) {
            assertEquals(1, room.snapshots().size());
            try (Room past = room.openSnapshot("monday")) {
                assertEquals("then", text(past, "/a"));
            }
            assertEquals(1, room.diffSnapshots("monday", null).size());
            refused(Kind.READ_ONLY, () -> room.createSnapshot("x"));
            refused(Kind.READ_ONLY, () -> room.renameSnapshot("monday", "x"));
            refused(Kind.READ_ONLY, () -> room.deleteSnapshot("monday"));
            refused(Kind.READ_ONLY, () -> room.restoreSnapshot("monday", "/a", null));
        }
    }

    @Test
    void snapshot_diff() throws IOException {
        try (Room room = create(fresh())) {
            put(room, "/changed", bytes("1"));
            put(room, "/kept", bytes("1"));
            put(room, "/removed", bytes("123"));
            room.createSnapshot("monday");
            put(room, "/changed", bytes("22"));
            room.rename("/kept", "/renamed", Room.RenameMode.REPLACE);
            room.removeFile("/removed");
            room.createSnapshot("tuesday");
            put(room, "/new", bytes(""));
            List<Change> all = room.diffSnapshots("monday", "tuesday");
            assertEquals("[CONTENTS /changed, REMOVED /removed, RENAMED /renamed]", all.toString());
            assertEquals(1, all.get(0).before());
            assertEquals(2, all.get(0).after());
            assertNull(all.get(0).from());
            assertEquals(-1, all.get(1).after());
            assertEquals("/kept", all.get(2).from());
            assertEquals("[ADDED /new]", room.diffSnapshots("tuesday", null).toString());
            refused(Kind.NOT_FOUND, () -> room.diffSnapshots("monday", "sunday"));
        }
    }

    @Test
    void snapshot_restore() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            room.makeDirectories("/papers");
            put(room, "/papers/letter", bytes("then"));
            room.setMode("/papers/letter", 0640);
            room.createSnapshot("monday");
            put(room, "/papers/letter", bytes("spoiled"));
            room.setMode("/papers/letter", 0600);
            put(room, "/papers/later", bytes(""));
            assertEquals(1, room.restoreSnapshot("monday", "/papers/letter", "/first"));
            assertEquals("then", text(room, "/first"));
            assertEquals("spoiled", text(room, "/papers/letter"));
            refused(Kind.NOT_FOUND, () -> room.restoreSnapshot("monday", "/papers/later", null));
            refused(Kind.INVALID_ARGUMENT, () -> room.restoreSnapshot("monday", "/papers", ""));
            assertTrue(room.exists("/papers/later"));
            room.restoreSnapshot("monday", "/papers", null);
            assertEquals("then", text(room, "/papers/letter"));
            assertEquals(0640, room.stat("/papers/letter", true).mode());
            assertFalse(room.exists("/papers/later"));
            room.restoreSnapshot("monday", "/", null);
        }
        try (Room room = open(dir)) {
            assertEquals("[papers]", room.list("/").toString());
        }
    }

    @Test
    void snapshot_threads() throws Exception {
        try (Room room = create(fresh())) {
            put(room, "/a", bytes("a"));
            AtomicBoolean ended = new AtomicBoolean();
            Thread writer = new Thread(() -> {
                try {
                    for (byte i = 0; !ended.get(); i++) {
                        byte[] data = new byte[100_000];
                        java.util.Arrays.fill(data, i);
                        put(room, "/a", data);
                    }
                } catch (IOException e) {
                    throw new AssertionError(e);
                }
            });
            writer.start();
            for (int i = 0; i < 10; i++) {
                room.createSnapshot("s");
                try (Room past = room.openSnapshot("s")) {
                    assertArrayEquals(get(past, "/a"), get(past, "/a"));
                }
                room.deleteSnapshot("s");
            }
            ended.set(true);
            writer.join();
        }
    }
}
