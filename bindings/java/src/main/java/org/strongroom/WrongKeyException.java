package org.strongroom;

/** A passphrase or key that does not open the room. */
public final class WrongKeyException extends RoomException {
    private static final long serialVersionUID = 1;

    WrongKeyException(int errno, String message) {
        super(Kind.WRONG_KEY, errno, message);
    }
}
