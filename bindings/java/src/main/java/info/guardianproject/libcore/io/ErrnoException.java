package info.guardianproject.libcore.io;

import java.io.IOException;

/** A call of POSIX that failed. */
public final class ErrnoException extends Exception {
    private static final long serialVersionUID = 1;

    /** The error number, in Linux's numbering. */
    public final int errno;

    /**
     * A failed call.
     *
     * @param functionName which call
     * @param errno its error number
     */
    public ErrnoException(String functionName, int errno) {
        this(functionName, errno, null);
    }

    /**
     * A failed call.
     *
     * @param functionName which call
     * @param errno its error number
     * @param cause what says more; may be null
     */
    public ErrnoException(String functionName, int errno, Throwable cause) {
        super(functionName + " failed: " + (cause == null ? OsConstants.text(errno) : cause.getMessage()), cause);
        this.errno = errno;
    }

    /**
     * Throws it as another kind of exception.
     *
     * @return never
     * @throws IOException always, with this as its cause
     */
    public IOException rethrowAsIOException() throws IOException {
        throw new IOException(getMessage(), this);
    }
}
