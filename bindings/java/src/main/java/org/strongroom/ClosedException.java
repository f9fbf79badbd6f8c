package org.strongroom;

/** The room or the file was closed before. */
public final class ClosedException extends RoomException {
    private static final long serialVersionUID = 1;

    ClosedException(int errno, String message) {
        super(Kind.CLOSED, errno, message);
    }
}
