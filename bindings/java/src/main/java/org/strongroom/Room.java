package org.strongroom;

import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * An open room. All methods may be called from many threads at once; after {@link #close} each is a {@link ClosedException}.
 *
 * <p>What was synced (by a file, by {@link #sync}, by completing a transaction, by closing) survives any crash; without that at
 * most the last commit interval is lost, and what is found is the whole state of one moment. A room that is open when the virtual
 * machine ends in order is closed then.
 *
 * <pre>{@code
 * try (Key key = Key.passphrase(console.readPassword());
 *         Room room = Room.open(new File("work.strongroom"), key, new RoomOptions());
 *         RoomFile file = room.openFile("/hello.txt", RoomFile.READ, 0)) {
 *     ...
 * }
 * }</pre>
 */
public final class Room extends WholeRoom {
    /** How {@link #rename} treats an existing target. */
    public enum RenameMode {
        /** Replace it. */
        REPLACE,
        /** Refuse. */
        NO_REPLACE,
        /** Swap the two. */
        EXCHANGE
    }

    /** How {@link #setXattr} treats an existing attribute. */
    public enum XattrMode {
        /** Set it either way. */
        ANY,
        /** Refuse one that is there. */
        CREATE,
        /** Refuse one that is missing. */
        REPLACE
    }

    private final LeakGuard guard;

    Room(File directory, long number) {
        super(directory, number);
        this.guard = LeakGuard.watch(this, number, true);
    }

    /**
     * Creates a room and opens it.
     *
     * @param directory must not exist, or be empty
     * @param key what will open it
     * @param options how
     * @return the open room
     * @throws RoomException if it cannot be made
     */
    public static Room create(File directory, Key key, RoomOptions options) throws RoomException {
        return new Room(directory, Native.create(Names.bytes(directory.getPath()), key.kind(), key.secret(), options.memoryKib,
                options.passes, options.lanes, options.flags(), options.stateBytes(), options.commitIntervalMs));
    }

    /**
     * Opens a room.
     *
     * @param directory where it is
     * @param key one that opens it
     * @param options how
     * @return the open room
     * @throws WrongKeyException if the key is wrong
     * @throws RoomBusyException if it is open already, here or in another process
     * @throws RoomException if it cannot be opened
     */
    public static Room open(File directory, Key key, RoomOptions options) throws RoomException {
        return new Room(directory, Native.open(Names.bytes(directory.getPath()), key.kind(), key.secret(), options.flags(),
                options.stateBytes(), options.commitIntervalMs));
    }

    /**
     * The directory that holds the room.
     *
     * @return as it was given
     */
    public File directory() {
        return directory;
    }

    /**
     * Waits for the calls under way, commits and closes. Closed already: nothing to do.
     *
     * @throws RoomBusyException within a transaction; the room stays open. See {@link #abandon}
     * @throws RoomException if the last commit failed; the room is closed
     */
    @Override
    public void close() throws RoomException {
        Native.close(number);
        guard.forget();
    }

    /**
     * Closes at once; an open transaction is as if it had never begun.
     *
     * @throws RoomException if the last commit failed; the room is closed
     */
    public void abandon() throws RoomException {
        Native.abandon(number);
        guard.forget();
    }

    /**
     * Whether it can be used.
     *
     * @return whether it was not closed
     */
    public boolean isOpen() {
        return Native.isOpen(number);
    }

    /**
     * Whether it was opened for reading only.
     *
     * @return whether changes are refused
     * @throws RoomException if it is closed
     */
    public boolean isReadOnly() throws RoomException {
        return Native.isReadOnly(number);
    }

    /**
     * Facts and space.
     *
     * @return as they are now
     * @throws RoomException if it is closed
     */
    public RoomInfo info() throws RoomException {
        long[] out = new long[RoomInfo.LENGTH];
        return new RoomInfo(Native.info(number, out), out);
    }

    /**
     * Makes everything done so far durable; within a transaction its completion does.
     *
     * @throws RoomException if the storage failed
     */
    public void sync() throws RoomException {
        Native.sync(number);
    }

    /**
     * Begins a transaction: what is done from now on, by any thread, becomes durable as a whole when {@link #complete} returns, and
     * after a crash before that none of it is there. They nest by count. There is no rollback but {@link #abandon}.
     *
     * @throws RoomException if the room is read-only or closed
     */
    public void begin() throws RoomException {
        Native.begin(number);
    }

    /**
     * Completes a transaction; the outermost completion makes it durable.
     *
     * @throws RoomException if none is open, or the storage failed
     */
    public void complete() throws RoomException {
        Native.complete(number);
    }

    /**
     * Whether a transaction is open.
     *
     * @return whether one is
     * @throws RoomException if it is closed
     */
    public boolean inTransaction() throws RoomException {
        return Native.inTransaction(number);
    }

    /**
     * Opens a regular file. Symbolic links are followed.
     *
     * @param path its path
     * @param flags of {@link RoomFile}, together
     * @param mode permission bits of a file that is made
     * @return the open file
     * @throws RoomException if it cannot be opened
     */
    public RoomFile openFile(String path, int flags, int mode) throws RoomException {
        return new RoomFile(this, Native.openFile(number, Names.bytes(path), flags, mode), flags);
    }

    /**
     * Attributes of what is at a path.
     *
     * @param path the path
     * @param follow through a symbolic link at its end
     * @return as they are now
     * @throws RoomException if there is nothing
     */
    public Stat stat(String path, boolean follow) throws RoomException {
        long[] out = new long[Stat.LENGTH];
        switch (Native.stat(number, Names.bytes(path), follow, out)) {
            case 0:
                return new Stat(out);
            case 1:
                throw new RoomException(RoomException.Kind.NOT_FOUND, 2, path + ": no such file or directory");
            default:
                throw new RoomException(RoomException.Kind.NOT_DIRECTORY, 20, path + ": not a directory on the way");
        }
    }

    /**
     * Attributes of what is at a path, or null where there is nothing.
     *
     * @param path the path
     * @param follow through a symbolic link at its end
     * @return as they are now, or null
     * @throws RoomException if that cannot be known
     */
    public Stat statIfExists(String path, boolean follow) throws RoomException {
        long[] out = new long[Stat.LENGTH];
        return Native.stat(number, Names.bytes(path), follow, out) == 0 ? new Stat(out) : null;
    }

    /**
     * Whether there is something at a path; a symbolic link that leads nowhere is nothing.
     *
     * @param path the path
     * @return whether there is
     * @throws RoomException if that cannot be known
     */
    public boolean exists(String path) throws RoomException {
        return statIfExists(path, true) != null;
    }

    /**
     * All names of a directory, in the order in which they were made.
     *
     * @param path the directory
     * @return the names, without . and ..
     * @throws RoomException if it is none
     */
    public List<Entry> list(String path) throws RoomException {
        byte[] packed = Native.list(number, Names.bytes(path));
        List<Entry> all = new ArrayList<>(packed.length / 16 + 1);
        for (int at = 0; at < packed.length; ) {
            int length = packed[at + 1] & 0xFF;
            all.add(new Entry(Names.text(packed, at + 2, length), FileKind.of(packed[at])));
            at += 2 + length;
        }
        return all;
    }

    /**
     * Creates a directory.
     *
     * @param path its path; those above it must be there
     * @param mode permission bits
     * @throws RoomException if it cannot be made
     */
    public void makeDirectory(String path, int mode) throws RoomException {
        Native.makeDirectory(number, Names.bytes(path), mode);
    }

    /**
     * Creates a directory and those above it that are missing. All there: nothing to do.
     *
     * @param path its path
     * @throws RoomException if one cannot be made
     */
    public void makeDirectories(String path) throws RoomException {
        Native.makeDirectories(number, Names.bytes(path));
    }

    /**
     * Removes a name that is not a directory's.
     *
     * @param path the path
     * @throws RoomException if it cannot be removed
     */
    public void removeFile(String path) throws RoomException {
        Native.removeFile(number, Names.bytes(path));
    }

    /**
     * Removes an empty directory.
     *
     * @param path the path
     * @throws RoomException if it cannot be removed
     */
    public void removeDirectory(String path) throws RoomException {
        Native.removeDirectory(number, Names.bytes(path));
    }

    /**
     * Renames, as rename(2) does.
     *
     * @param from the old path
     * @param to the new one
     * @param mode what happens to an existing target
     * @throws RoomException if it cannot be renamed; both are as they were
     */
    public void rename(String from, String to, RenameMode mode) throws RoomException {
        Native.rename(number, Names.bytes(from), Names.bytes(to), mode.ordinal());
    }

    /**
     * Gives a file a second name.
     *
     * @param existing a path of it
     * @param path the new one
     * @throws RoomException if it cannot
     */
    public void link(String existing, String path) throws RoomException {
        Native.link(number, Names.bytes(existing), Names.bytes(path));
    }

    /**
     * Makes a symbolic link.
     *
     * @param target what it says
     * @param path where it is
     * @throws RoomException if it cannot be made
     */
    public void symlink(String target, String path) throws RoomException {
        Native.symlink(number, Names.bytes(target), Names.bytes(path));
    }

    /**
     * What a symbolic link says.
     *
     * @param path the link
     * @return its target
     * @throws RoomException if there is none
     */
    public String readLink(String path) throws RoomException {
        return Names.text(Native.readLink(number, Names.bytes(path)));
    }

    /**
     * The path of what is at a path, without symbolic links, {@code .} and {@code ..}.
     *
     * @param path the path; one that does not begin with a slash is from the root
     * @return its real one, from the root
     * @throws RoomException if there is nothing
     */
    public String realPath(String path) throws RoomException {
        return RealPath.of(this, path);
    }

    /**
     * Sets the permission bits.
     *
     * @param path the path, followed
     * @param mode 0 to 07777
     * @throws RoomException if they cannot be changed
     */
    public void setMode(String path, int mode) throws RoomException {
        set(path, true, 1, mode, 0, 0, 0, 0, 0, 0, 0);
    }

    /**
     * Sets owner and group.
     *
     * @param path the path
     * @param follow through a symbolic link at its end
     * @param owner the number, or -1: stays
     * @param group the number, or -1: stays
     * @throws RoomException if they cannot be changed
     */
    public void setOwner(String path, boolean follow, long owner, long group) throws RoomException {
        set(path, follow, (owner == -1 ? 0 : 2) | (group == -1 ? 0 : 4), 0, owner, group, 0, 0, 0, 0, 0);
    }

    /**
     * Sets the length of a file.
     *
     * @param path the path, followed
     * @param length bytes, at least 0
     * @throws RoomException if it cannot be changed
     */
    public void setLength(String path, long length) throws RoomException {
        set(path, true, 8, 0, 0, 0, length, 0, 0, 0, 0);
    }

    /**
     * Sets the time of last access.
     *
     * @param path the path
     * @param follow through a symbolic link at its end
     * @param seconds since 1970
     * @param nanos 0 to 999,999,999
     * @throws RoomException if it cannot be changed
     */
    public void setAccessed(String path, boolean follow, long seconds, int nanos) throws RoomException {
        set(path, follow, 16, 0, 0, 0, 0, seconds, nanos, 0, 0);
    }

    /**
     * Sets the time of last change.
     *
     * @param path the path
     * @param follow through a symbolic link at its end
     * @param seconds since 1970
     * @param nanos 0 to 999,999,999
     * @throws RoomException if it cannot be changed
     */
    public void setModified(String path, boolean follow, long seconds, int nanos) throws RoomException {
        set(path, follow, 32, 0, 0, 0, 0, 0, 0, seconds, nanos);
    }

    private void set(String path, boolean follow, long... values) throws RoomException {
        Native.setAttributes(number, Names.bytes(path), follow, values);
    }

    /**
     * The value of an extended attribute.
     *
     * @param path the path, followed
     * @param name its name, such as {@code user.comment}
     * @return the value
     * @throws RoomException if there is none
     */
    public byte[] xattr(String path, String name) throws RoomException {
        return Native.xattr(number, Names.bytes(path), Names.bytes(name));
    }

    /**
     * Sets an extended attribute.
     *
     * @param path the path, followed
     * @param name its name, such as {@code user.comment}
     * @param value the value
     * @param mode whether it may exist
     * @throws RoomException if it cannot be set
     */
    public void setXattr(String path, String name, byte[] value, XattrMode mode) throws RoomException {
        Native.setXattr(number, Names.bytes(path), Names.bytes(name), value, mode.ordinal());
    }

    /**
     * Removes an extended attribute.
     *
     * @param path the path, followed
     * @param name its name
     * @throws RoomException if there is none
     */
    public void removeXattr(String path, String name) throws RoomException {
        Native.removeXattr(number, Names.bytes(path), Names.bytes(name));
    }

    /**
     * The names of all extended attributes, sorted.
     *
     * @param path the path, followed
     * @return the names
     * @throws RoomException if there is no such file
     */
    public List<String> xattrNames(String path) throws RoomException {
        byte[] packed = Native.xattrNames(number, Names.bytes(path));
        if (packed.length == 0) {
            return Collections.emptyList();
        }
        List<String> names = new ArrayList<>();
        Collections.addAll(names, Names.text(packed).split("\0"));
        return names;
    }

    /**
     * The bytes of a path or name, as the room has it.
     *
     * @param text a path or name
     * @return its bytes: UTF-8, but for lone surrogates from U+DC80 to U+DCFF, which are one odd byte each
     * @throws RoomException if it has a NUL or half a character in it
     */
    public static byte[] nameToBytes(String text) throws RoomException {
        return Names.bytes(text);
    }

    /**
     * The string of a path or name.
     *
     * @param bytes any bytes
     * @return a string from which {@link #nameToBytes} makes the same bytes
     */
    public static String nameToText(byte[] bytes) {
        return Names.text(bytes);
    }

    @Override
    public String toString() {
        return "Room(" + directory + ")";
    }
}
