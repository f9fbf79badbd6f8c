package org.strongroom;

import java.nio.ByteBuffer;

/**
 * The native half, call by call. What it is passed is checked there; numbers of rooms and files that are closed or made up are
 * refused there.
 */
final class Native {
    /** Raised with each change of the methods below, here and in the native half. */
    private static final int INTERFACE = 3;

    static {
        Library.load();
        if (version() != INTERFACE) {
            throw new UnsatisfiedLinkError(
                    "the library strongroom_java is of another version than these classes: remove it from java.library.path, or"
                            + " put the one there that belongs to them");
        }
    }

    private Native() {}

    static native int version();

    static native long create(byte[] dir, int keyKind, byte[] secret, int memoryKib, int passes, int lanes, int flags,
            byte[] stateDir, long intervalMs) throws RoomException;

    static native long open(byte[] dir, int keyKind, byte[] secret, int flags, byte[] stateDir, long intervalMs)
            throws RoomException;

    static native void close(long room) throws RoomException;

    static native void abandon(long room) throws RoomException;

    static native void end() throws RoomException;

    static native boolean isOpen(long room);

    static native boolean isReadOnly(long room) throws RoomException;

    static native void sync(long room) throws RoomException;

    static native void begin(long room) throws RoomException;

    static native void complete(long room) throws RoomException;

    static native boolean inTransaction(long room) throws RoomException;

    static native String info(long room, long[] out) throws RoomException;

    static native int stat(long room, byte[] path, boolean follow, long[] out) throws RoomException;

    static native byte[] list(long room, byte[] path) throws RoomException;

    static native void makeDirectory(long room, byte[] path, int mode) throws RoomException;

    static native void makeDirectories(long room, byte[] path) throws RoomException;

    static native void removeFile(long room, byte[] path) throws RoomException;

    static native void removeDirectory(long room, byte[] path) throws RoomException;

    static native void rename(long room, byte[] from, byte[] to, int mode) throws RoomException;

    static native void link(long room, byte[] existing, byte[] path) throws RoomException;

    static native void symlink(long room, byte[] target, byte[] path) throws RoomException;

    static native byte[] readLink(long room, byte[] path) throws RoomException;

    static native void setAttributes(long room, byte[] path, boolean follow, long[] values) throws RoomException;

    static native byte[] xattr(long room, byte[] path, byte[] name) throws RoomException;

    static native void setXattr(long room, byte[] path, byte[] name, byte[] value, int mode) throws RoomException;

    static native void removeXattr(long room, byte[] path, byte[] name) throws RoomException;

    static native byte[] xattrNames(long room, byte[] path) throws RoomException;

    static native String slots(long room) throws RoomException;

    static native int addKey(long room, int keyKind, byte[] secret, int memoryKib, int passes, int lanes, byte[] label)
            throws RoomException;

    static native void changeKey(long room, int slot, int keyKind, byte[] secret, int memoryKib, int passes, int lanes)
            throws RoomException;

    static native void removeKey(long room, int slot) throws RoomException;

    static native String createSnapshot(long room, byte[] name) throws RoomException;

    static native String snapshots(long room) throws RoomException;

    static native long heldBySnapshots(long room) throws RoomException;

    static native void renameSnapshot(long room, byte[] from, byte[] to) throws RoomException;

    static native void deleteSnapshot(long room, byte[] name) throws RoomException;

    static native long openSnapshot(long room, byte[] name) throws RoomException;

    static native byte[] diffSnapshots(long room, byte[] earlier, byte[] later) throws RoomException;

    static native long restoreSnapshot(long room, byte[] name, byte[] path, byte[] to) throws RoomException;

    static native boolean snapshotPolicy(long room, long[] out) throws RoomException;

    static native void setSnapshotPolicy(long room, long[] values) throws RoomException;

    static native void clearSnapshotPolicy(long room) throws RoomException;

    static native String applySnapshotPolicy(long room, long[] out) throws RoomException;

    static native String pruneSnapshots(long room, boolean dryRun) throws RoomException;

    static native long openFile(long room, byte[] path, int flags, int mode) throws RoomException;

    static native void closeFile(long file);

    static native void statFile(long file, long[] out) throws RoomException;

    static native long length(long file) throws RoomException;

    static native void setLength(long file, long length) throws RoomException;

    static native void setFileAttributes(long file, long[] values) throws RoomException;

    static native void syncFile(long file) throws RoomException;

    static native int read(long file, long from, byte[] buffer, int at, int len) throws RoomException;

    static native int readDirect(long file, long from, ByteBuffer buffer, int at, int len) throws RoomException;

    static native long write(long file, long to, byte[] buffer, int at, int len) throws RoomException;

    static native long writeDirect(long file, long to, ByteBuffer buffer, int at, int len) throws RoomException;
}
