package org.strongroom;

/** The passphrase or key is wrong for the room. */
public final class WrongKeyException extends RoomException {
    private static final long serialVersionUID = 1;

    WrongKeyException(int errno, String message) {
        super(Kind.WRONG_KEY, errno, message);
    }
}
