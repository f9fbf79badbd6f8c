package org.strongroom;

import java.io.Closeable;
import java.io.File;
import java.util.ArrayList;
import java.util.List;

/** The part of {@link Room} for the room as a whole, and not for its files: keys and snapshots. */
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
}
