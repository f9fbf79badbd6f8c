package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.FileDescriptor;
import java.io.FileNotFoundException;
import java.io.IOException;

/** What streams are made of. */
public final class IoBridge {
    private IoBridge() {}

    /**
     * Checks a part of an array.
     *
     * @param arrayLength elements it has
     * @param offset first of the part
     * @param count elements of the part
     * @throws ArrayIndexOutOfBoundsException if it is not within
     */
    public static void checkOffsetAndCount(int arrayLength, int offset, int count) {
        if ((offset | count) < 0 || offset > arrayLength || arrayLength - offset < count) {
            throw new ArrayIndexOutOfBoundsException(count + " elements at " + offset + " of an array of " + arrayLength);
        }
    }

    /**
     * Opens a file; one that is made may be read and written by its owner.
     *
     * @param path its path
     * @param flags as in {@link OsConstants}
     * @return the open file
     * @throws FileNotFoundException if it cannot be opened
     */
    public static FileDescriptor open(String path, int flags) throws FileNotFoundException {
        try {
            return Libcore.os.open(path, flags, 0600);
        } catch (ErrnoException e) {
            FileNotFoundException missing = new FileNotFoundException(path + ": " + e.getMessage());
            missing.initCause(e);
            throw missing;
        }
    }

    /**
     * Reads at the position.
     *
     * @param fd the file
     * @param bytes where to
     * @param byteOffset index in it
     * @param byteCount how many at most
     * @return how many; -1 at the end
     * @throws IOException if it fails
     */
    public static int read(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount) throws IOException {
        checkOffsetAndCount(bytes.length, byteOffset, byteCount);
        if (byteCount == 0) {
            return 0;
        }
        try {
            int n = Libcore.os.read(fd, bytes, byteOffset, byteCount);
            return n == 0 ? -1 : n;
        } catch (ErrnoException e) {
            throw e.rethrowAsIOException();
        }
    }

    /**
     * Writes all at the position.
     *
     * @param fd the file
     * @param bytes where from
     * @param byteOffset index in it
     * @param byteCount how many
     * @param flags unused
     * @throws IOException if it fails
     */
    public static void write(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, int flags) throws IOException {
        checkOffsetAndCount(bytes.length, byteOffset, byteCount);
        try {
            Libcore.os.write(fd, bytes, byteOffset, byteCount, flags);
        } catch (ErrnoException e) {
            throw e.rethrowAsIOException();
        }
    }
}
