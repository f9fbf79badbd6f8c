package org.strongroom;

import java.io.IOException;

/** A call that failed. The message says what happened and what to do next; {@link #kind()} is what a program branches on. */
public class RoomException extends IOException {
    private static final long serialVersionUID = 1;

    /** Kinds of errors, each with something else to do about it. */
    public enum Kind {
        /** There is no such file. */
        NOT_FOUND,
        /** There is one already. */
        EXISTS,
        /** Not a directory. */
        NOT_DIRECTORY,
        /** Is a directory. */
        IS_DIRECTORY,
        /** A directory that is not empty. */
        NOT_EMPTY,
        /** Not allowed, whatever the key. */
        NOT_PERMITTED,
        /** The room or file was not opened for this. */
        READ_ONLY,
        /** An argument that makes no sense. */
        INVALID_ARGUMENT,
        /** Not there in this version, or for this kind of file. */
        NOT_SUPPORTED,
        /** No space where the room is stored. */
        NO_SPACE,
        /** Data is damaged or was replaced: restore it from a backup. */
        CORRUPT,
        /** The storage failed: open the room again. */
        IO,
        /** Wrong passphrase or key. */
        WRONG_KEY,
        /** The directory holds no room. */
        NOT_A_ROOM,
        /** Another process has the room open, or a transaction has it. */
        BUSY,
        /** The room is older than this machine saw it. */
        ROLLED_BACK,
        /** The room or file was closed before. */
        CLOSED,
        /** A fault of this library. */
        INTERNAL
    }

    /** What to do about it. */
    private final Kind kind;
    /** The nearest error number of POSIX. */
    private final int errno;

    RoomException(Kind kind, int errno, String message) {
        super(message);
        this.kind = kind;
        this.errno = errno;
    }

    /** Called by the native half. */
    static RoomException of(String kind, int errno, String message) {
        switch (Kind.valueOf(kind)) {
            case CORRUPT:
                return new CorruptException(errno, message);
            case WRONG_KEY:
                return new WrongKeyException(errno, message);
            case BUSY:
                return new RoomBusyException(errno, message);
            case CLOSED:
                return new ClosedException(errno, message);
            default:
                return new RoomException(Kind.valueOf(kind), errno, message);
        }
    }

    /**
     * The kind.
     *
     * @return the kind
     */
    public final Kind kind() {
        return kind;
    }

    /**
     * The nearest error number of POSIX, in Linux's numbering.
     *
     * @return the number, above 0
     */
    public final int errno() {
        return errno;
    }
}
