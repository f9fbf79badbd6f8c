package org.strongroom;

import java.io.Closeable;
import java.nio.ByteBuffer;

/**
 * An open file of a room, read and written at places. May be used from many threads; it outlives its name. After it or its room was
 * closed, every call is a {@link ClosedException}.
 */
public final class RoomFile implements Closeable {
    /** Open for reading. */
    public static final int READ = 1;
    /** Open for writing. */
    public static final int WRITE = 2;
    /** Each write goes to the end, wherever it says. With {@link #WRITE}. */
    public static final int APPEND = 4;
    /** Make the file where it is missing. With {@link #WRITE}. */
    public static final int CREATE = 8;
    /** Make the file, and refuse one that is there. With {@link #WRITE}. */
    public static final int CREATE_NEW = 16;
    /** Cut the file to nothing. With {@link #WRITE}. */
    public static final int TRUNCATE = 32;

    private final Room room;
    private final int flags;
    private final LeakGuard guard;
    private volatile long number;

    RoomFile(Room room, long number, int flags) {
        this.room = room;
        this.number = number;
        this.flags = flags;
        this.guard = LeakGuard.watch(this, number, false);
    }

    /**
     * The room it is of.
     *
     * @return the room
     */
    public Room room() {
        return room;
    }

    /**
     * For what it was opened.
     *
     * @return flags
     */
    public int flags() {
        return flags;
    }

    /**
     * Reads.
     *
     * @param position offset in the file, at least 0
     * @param buffer where to
     * @param at index in the buffer
     * @param length bytes
     * @return bytes read; fewer than asked for only at the end of the file, 0 there
     * @throws RoomException if it cannot be read
     */
    public int readAt(long position, byte[] buffer, int at, int length) throws RoomException {
        return Native.read(number, position, buffer, at, length);
    }

    /**
     * Reads into what remains of a buffer, and moves its position.
     *
     * @param position offset in the file, at least 0
     * @param buffer where to
     * @return bytes read; fewer than remained only at the end of the file, 0 there
     * @throws RoomException if it cannot be read
     */
    public int readAt(long position, ByteBuffer buffer) throws RoomException {
        int at = buffer.position();
        int length = buffer.remaining();
        int n;
        if (buffer.isReadOnly()) {
            throw new IllegalArgumentException("a buffer that is read-only");
        } else if (buffer.isDirect()) {
            n = Native.readDirect(number, position, buffer, at, length);
        } else {
            n = Native.read(number, position, buffer.array(), buffer.arrayOffset() + at, length);
        }
        ((java.nio.Buffer) buffer).position(at + n);
        return n;
    }

    /**
     * Writes all of it.
     *
     * @param position offset in the file, at least 0; of no meaning where it was opened for appending
     * @param buffer where from
     * @param at index in the buffer
     * @param length bytes
     * @return the offset it was written to
     * @throws RoomException if it cannot be written
     */
    public long writeAt(long position, byte[] buffer, int at, int length) throws RoomException {
        return Native.write(number, position, buffer, at, length);
    }

    /**
     * Writes all that remains of a buffer, and moves its position.
     *
     * @param position offset in the file, at least 0; of no meaning where it was opened for appending
     * @param buffer where from
     * @return the offset it was written to
     * @throws RoomException if it cannot be written
     */
    public long writeAt(long position, ByteBuffer buffer) throws RoomException {
        int at = buffer.position();
        int length = buffer.remaining();
        long went;
        if (buffer.isDirect()) {
            went = Native.writeDirect(number, position, buffer, at, length);
        } else if (buffer.hasArray()) {
            went = Native.write(number, position, buffer.array(), buffer.arrayOffset() + at, length);
        } else {
            byte[] copy = new byte[length];
            buffer.duplicate().get(copy);
            went = Native.write(number, position, copy, 0, length);
        }
        ((java.nio.Buffer) buffer).position(at + length);
        return went;
    }

    /**
     * The length.
     *
     * @return bytes
     * @throws RoomException if it is closed
     */
    public long length() throws RoomException {
        return Native.length(number);
    }

    /**
     * Cuts the file, or makes it longer with zeros that take no space.
     *
     * @param length bytes, at least 0
     * @throws RoomException if it cannot be changed
     */
    public void setLength(long length) throws RoomException {
        Native.setLength(number, length);
    }

    /**
     * The attributes.
     *
     * @return as they are now
     * @throws RoomException if it is closed
     */
    public Stat stat() throws RoomException {
        long[] out = new long[Stat.LENGTH];
        Native.statFile(number, out);
        return new Stat(out);
    }

    /**
     * Sets the permission bits.
     *
     * @param mode 0 to 07777
     * @throws RoomException if they cannot be changed
     */
    public void setMode(int mode) throws RoomException {
        Native.setFileAttributes(number, new long[] {1, mode, 0, 0, 0, 0, 0, 0, 0});
    }

    /**
     * Makes what was written durable; within a transaction its completion does.
     *
     * @throws RoomException if the storage failed
     */
    public void sync() throws RoomException {
        Native.syncFile(number);
    }

    /**
     * Whether it can be used.
     *
     * @return whether neither it nor its room was closed
     */
    public boolean isOpen() {
        return number != 0 && room.isOpen();
    }

    /** Closes it. Closed already: nothing to do. Makes nothing durable: {@link #sync} does. */
    @Override
    public void close() {
        long now;
        synchronized (guard) {
            now = number;
            number = 0;
        }
        if (now != 0) {
            guard.forget();
            Native.closeFile(now);
        }
    }
}
