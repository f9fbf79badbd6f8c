package org.strongroom;

/** Another process or another opening has the room, or a transaction keeps it from being closed. */
public final class RoomBusyException extends RoomException {
    private static final long serialVersionUID = 1;

    RoomBusyException(int errno, String message) {
        super(Kind.BUSY, errno, message);
    }
}
