package org.strongroom;

/** Data is damaged or was replaced, and is not returned: restore it from a backup. The rest of the room stays readable. */
public final class CorruptException extends RoomException {
    private static final long serialVersionUID = 1;

    CorruptException(int errno, String message) {
        super(Kind.CORRUPT, errno, message);
    }
}
