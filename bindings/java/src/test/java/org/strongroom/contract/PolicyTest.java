package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.strongroom.PolicyReport;
import org.strongroom.Room;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomInfo;
import org.strongroom.RoomOptions;
import org.strongroom.Snapshot;
import org.strongroom.SnapshotPolicy;

/** Policies for automatic snapshots. */
class PolicyTest extends Contract {
    @Test
    void snapshot_policy() throws IOException {
        File dir = fresh();
        try (Room room = create(dir)) {
            assertNull(room.snapshotPolicy());
            refused(Kind.NOT_FOUND, () -> room.pruneSnapshots(false));
            PolicyReport report = room.applySnapshotPolicy();
            assertNull(report.created());
            assertTrue(report.deleted().isEmpty());
            assertEquals(-1, report.nextDueSeconds());
            for (SnapshotPolicy malformed : List.of(new SnapshotPolicy(), new SnapshotPolicy().weekly(1).minFreePercent(100),
                    new SnapshotPolicy().weekly(-1), new SnapshotPolicy().weekly(1L << 32), new SnapshotPolicy().weekly(1).minFreePercent(-1))) {
                refused(Kind.INVALID_ARGUMENT, () -> room.setSnapshotPolicy(malformed));
            }
            assertNull(room.snapshotPolicy());
            room.setSnapshotPolicy(new SnapshotPolicy().weekly(5).minFreePercent(10));
        }
        try (Room room = Room.open(dir, raw(0), new RoomOptions().readOnly(true))) {
            SnapshotPolicy policy = room.snapshotPolicy();
            assertEquals("hourly 0, daily 0, weekly 5, min free 10 %", policy.toString());
            assertEquals(List.of(0L, 0L, 5L, 10L),
                    List.of(policy.hourly(), policy.daily(), policy.weekly(), (long) policy.minFreePercent()));
            assertTrue(room.pruneSnapshots(true).isEmpty());
            refused(Kind.READ_ONLY, () -> room.setSnapshotPolicy(policy));
            refused(Kind.READ_ONLY, room::clearSnapshotPolicy);
            refused(Kind.READ_ONLY, room::applySnapshotPolicy);
            refused(Kind.READ_ONLY, () -> room.pruneSnapshots(false));
        }
        try (Room room = open(dir)) {
            room.clearSnapshotPolicy();
            room.clearSnapshotPolicy();
            assertNull(room.snapshotPolicy());
            assertTrue(room.snapshots().isEmpty());
        }
    }

    @Test
    void snapshot_policy_apply() throws IOException {
        try (Room room = create(fresh())) {
            put(room, "/big", new byte[1 << 20]);
            SnapshotPolicy policy = new SnapshotPolicy().weekly(5);
            room.setSnapshotPolicy(policy);
            PolicyReport first = room.applySnapshotPolicy();
            Snapshot automatic = first.created();
            assertTrue(automatic.isAutomatic() && automatic.name().startsWith("auto-"), automatic.name());
            assertEquals(List.of(automatic.name()), names(room));
            assertTrue(first.deleted().isEmpty());
            assertTrue(first.nextDueSeconds() > automatic.createdSeconds());
            PolicyReport second = room.applySnapshotPolicy();
            assertTrue(second.created() == null || second.nextDueSeconds() > first.nextDueSeconds());
            room.removeFile("/big");
            room.createSnapshot("mine");
            room.begin();
            refused(Kind.BUSY, room::applySnapshotPolicy);
            refused(Kind.BUSY, () -> room.pruneSnapshots(false));
            room.complete();
            assertTrue(room.pruneSnapshots(false).isEmpty());
            RoomInfo space = room.info();
            if (space.available() / 99 < space.total() / 100) {
                room.setSnapshotPolicy(policy.minFreePercent(99));
                Snapshot goes = room.pruneSnapshots(true).get(0);
                assertEquals(automatic.name(), goes.name());
                assertEquals(1 << 20, goes.exclusive());
                assertTrue(names(room).contains(automatic.name()));
                PolicyReport report = room.applySnapshotPolicy();
                assertNull(report.created());
                assertEquals(automatic.name(), report.deleted().get(0).name());
                assertFalse(names(room).contains(automatic.name()));
            }
            assertTrue(names(room).contains("mine"));
        }
    }

    private static List<String> names(Room room) throws IOException {
        return room.snapshots().stream().map(Snapshot::name).toList();
    }
}
