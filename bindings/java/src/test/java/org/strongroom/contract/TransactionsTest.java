package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import org.junit.jupiter.api.Test;
import org.strongroom.Child;
import org.strongroom.Room;
import org.strongroom.RoomException.Kind;

class TransactionsTest extends Contract {
    @Test
    void transaction_complete() throws IOException {
        File dir = fresh();
        Room room = create(dir);
        room.begin();
        assertTrue(room.inTransaction());
        put(room, "/f", "x".getBytes());
        room.complete();
        assertFalse(room.inTransaction());
        assertEquals("x", new String(get(room, "/f")));
        room.close();
        try (Room again = open(dir)) {
            assertEquals("x", new String(get(again, "/f")));
        }
    }

    @Test
    void transaction_nested() throws IOException {
        room.begin();
        room.begin();
        room.complete();
        assertTrue(room.inTransaction());
        room.complete();
        assertFalse(room.inTransaction());
        refused(Kind.INVALID_ARGUMENT, () -> room.complete());
    }

    @Test
    void transaction_close() throws IOException {
        File dir = fresh();
        Room room = create(dir);
        put(room, "/before", "kept".getBytes());
        room.begin();
        put(room, "/within", "gone".getBytes());
        put(room, "/before", "gone".getBytes());
        refused(Kind.BUSY, room::close);
        assertEquals("gone", new String(get(room, "/within")));
        room.abandon();
        assertFalse(room.isOpen());
        try (Room again = open(dir)) {
            assertFalse(again.exists("/within"));
            assertEquals("kept", new String(get(again, "/before")));
        }
    }

    @Test
    void transaction_killed() throws Exception {
        File dir = fresh();
        create(dir).close();
        try (Child child = new Child(Child.class, "transaction", dir.getPath())) {
            child.says("within");
            child.kill();
        }
        try (Room room = open(dir)) {
            assertFalse(room.exists("/t0"));
            assertFalse(room.exists("/t49"));
            assertTrue(!room.exists("/child") || room.stat("/child", true).size() == 0);
        }
        try (Child child = new Child(Child.class, "transaction", dir.getPath(), "complete")) {
            child.says("completed");
            child.kill();
        }
        try (Room room = open(dir)) {
            assertEquals(50, room.list("/").size() - 1);
            assertEquals(5_000_000, get(room, "/child").length);
        }
    }

    @Test
    void sync_survives_kill() throws Exception {
        File dir = fresh();
        create(dir).close();
        try (Child child = new Child(Child.class, "sync", dir.getPath())) {
            child.says("synced");
            child.kill();
        }
        try (Room room = open(dir)) {
            assertEquals("synced", new String(get(room, "/child")));
        }
    }
}
