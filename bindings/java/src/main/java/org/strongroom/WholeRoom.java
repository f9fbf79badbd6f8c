package org.strongroom;

import java.io.Closeable;
import java.io.File;
import java.util.ArrayList;
import java.util.List;

/** The part of {@link Room} for the room as a whole, and not for its files: keys, snapshots and their policy. */
abstract class WholeRoom implements Closeable {
    final File directory;
    final long number;

    WholeRoom(File directory, long number) {
        this.directory = directory;
        this.number = number;
    }

    /**
     * The keys that open the room.
     *
     * @return one for each, without the keys
     * @throws RoomException if it is closed
     */
    public List<KeySlot> keys() throws RoomException {
        String[] parts = Native.slots(number).split("\0", -1);
        List<KeySlot> slots = new ArrayList<>();
        for (int i = 0; i + 3 < parts.length; i += 4) {
            slots.add(new KeySlot(Integer.parseInt(parts[i]), parts[i + 1], Long.parseLong(parts[i + 2]), parts[i + 3]));
        }
        return slots;
    }

    /**
     * Adds a key.
     *
     * @param key the new one
     * @param label a word for people; may be empty
     * @param options the work of a passphrase
     * @return the number of its slot
     * @throws RoomException if it cannot be added
     */
    public int addKey(Key key, String label, RoomOptions options) throws RoomException {
        return Native.addKey(number, key.kind(), key.secret(), options.memoryKib, options.passes, options.lanes,
                Names.bytes(label));
    }

    /**
     * Replaces a key by another one. From then on the old key is refused.
     *
     * @param slot the number of its slot
     * @param key the new one
     * @param options the work of a passphrase
     * @throws RoomException if it cannot be changed
     */
    public void changeKey(int slot, Key key, RoomOptions options) throws RoomException {
        Native.changeKey(number, slot, key.kind(), key.secret(), options.memoryKib, options.passes, options.lanes);
    }

    /**
     * Removes a key. The last one stays.
     *
     * @param slot the number of its slot
     * @throws RoomException if it cannot be removed
     */
    public void removeKey(int slot) throws RoomException {
        Native.removeKey(number, slot);
    }

    /**
     * Creates a snapshot: the whole room at this moment. It copies nothing, and is durable when this returns.
     *
     * @param name 1 to 255 bytes of UTF-8, without /, @, : and control characters
     * @return the snapshot
     * @throws RoomBusyException within a transaction
     * @throws RoomException if there is one of this name, or it cannot be created
     */
    public Snapshot createSnapshot(String name) throws RoomException {
        return Snapshot.all(Native.createSnapshot(number, Names.bytes(name))).get(0);
    }

    /**
     * All snapshots, from the oldest.
     *
     * @return none where there never was one
     * @throws RoomException if the room is closed
     */
    public List<Snapshot> snapshots() throws RoomException {
        return Snapshot.all(Native.snapshots(number));
    }

    /**
     * The bytes that all snapshots together hold: what deleting all of them frees.
     *
     * @return bytes
     * @throws RoomException if the room is closed
     */
    public long heldBySnapshots() throws RoomException {
        return Native.heldBySnapshots(number);
    }

    /**
     * Gives a snapshot another name.
     *
     * @param from the snapshot
     * @param to its new name, as for {@link #createSnapshot}
     * @throws RoomException if there is no such snapshot, or one of the new name
     */
    public void renameSnapshot(String from, String to) throws RoomException {
        Native.renameSnapshot(number, Names.bytes(from), Names.bytes(to));
    }

    /**
     * Deletes a snapshot. What it alone holds is freed in the background.
     *
     * @param name the snapshot
     * @throws RoomException if there is none
     */
    public void deleteSnapshot(String name) throws RoomException {
        Native.deleteSnapshot(number, Names.bytes(name));
    }

    /**
     * The room as it was in a snapshot: a room that reads, whose changes are refused as {@link RoomException.Kind#READ_ONLY}. Closing it
     * closes nothing else; it is closed with this room. When the snapshot is deleted, its calls are
     * {@link RoomException.Kind#NOT_FOUND}.
     *
     * @param name the snapshot
     * @return the room at that moment
     * @throws RoomException if there is none
     */
    public Room openSnapshot(String name) throws RoomException {
        return new Room(directory, Native.openSnapshot(number, Names.bytes(name)));
    }

    /**
     * What differs between two snapshots, or between one and now. Reads every directory of both moments.
     *
     * @param earlier a snapshot
     * @param later a later one, or null: now
     * @return the changes, by path
     * @throws RoomException if there is no such snapshot
     */
    public List<Change> diffSnapshots(String earlier, String later) throws RoomException {
        byte[] none = new byte[0];
        return Change.all(Native.diffSnapshots(number, Names.bytes(earlier), later == null ? none : Names.bytes(later)));
    }

    /**
     * Puts a file or directory back as it was in a snapshot. What is there now is replaced as a whole, in one step, and is gone: create a
     * snapshot first to keep it. After an exception nothing is replaced.
     *
     * @param name the snapshot
     * @param path what; {@code /} is the whole room
     * @param to where, or null: where it was
     * @return how many files
     * @throws RoomException if there is no such snapshot, or it has no such path
     */
    public long restoreSnapshot(String name, String path, String to) throws RoomException {
        return Native.restoreSnapshot(number, Names.bytes(name), Names.bytes(path), Names.bytes(to == null ? path : to));
    }

    /**
     * The room's policy for automatic snapshots.
     *
     * @return the policy, or null: there is none
     * @throws RoomException if a newer version set it, or the room is closed
     */
    public SnapshotPolicy snapshotPolicy() throws RoomException {
        long[] out = new long[SnapshotPolicy.LENGTH];
        return Native.snapshotPolicy(number, out) ? new SnapshotPolicy(out) : null;
    }

    /**
     * Sets the policy for automatic snapshots; durable when this returns. Nothing is created or deleted before
     * {@link #applySnapshotPolicy}, or before the room is mounted: the process of a mount applies it once a minute.
     *
     * @param policy keeps at least one snapshot
     * @throws RoomException if it keeps nothing or asks for more than 99 % of the storage, or the room is read-only
     */
    public void setSnapshotPolicy(SnapshotPolicy policy) throws RoomException {
        Native.setSnapshotPolicy(number, policy.values);
    }

    /**
     * Removes the policy. Its snapshots stay. A room without one: nothing to do.
     *
     * @throws RoomException if the room is read-only
     */
    public void clearSnapshotPolicy() throws RoomException {
        Native.clearSnapshotPolicy(number);
    }

    /**
     * Does what the policy asks for now: creates an automatic snapshot where the present hour, day or week has none, and deletes the
     * automatic ones that it does not keep. One created by {@link #createSnapshot} is never deleted. Without a policy nothing is done.
     *
     * <p>The library has no thread that does this. Call it when the files of the program belong together: after opening the room, in a
     * periodic job, or on Android in {@code onStop} or a {@code Worker}.
     *
     * @return what was done, and when the next one is due
     * @throws RoomBusyException within a transaction
     * @throws RoomException if the room is read-only, or there is no space
     */
    public PolicyReport applySnapshotPolicy() throws RoomException {
        long[] out = new long[PolicyReport.LENGTH];
        return new PolicyReport(Snapshot.all(Native.applySnapshotPolicy(number, out)), out);
    }

    /**
     * Deletes the automatic snapshots that the policy does not keep, and creates none.
     *
     * @param dryRun delete nothing, only return them
     * @return from the oldest; {@link Snapshot#exclusive} is what is freed with each
     * @throws RoomBusyException within a transaction
     * @throws RoomException if the room has no policy ({@link RoomException.Kind#NOT_FOUND}), or is read-only
     */
    public List<Snapshot> pruneSnapshots(boolean dryRun) throws RoomException {
        return Snapshot.all(Native.pruneSnapshots(number, dryRun));
    }
}
