package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.File;
import info.guardianproject.iocipher.FileDescriptor;
import info.guardianproject.iocipher.Mount;
import java.io.IOException;
import java.net.Socket;

/** Small things around files. */
public final class IoUtils {
    private IoUtils() {}

    /**
     * Closes a file.
     *
     * @param fd the file; null or closed: nothing to do
     * @throws IOException if it fails
     */
    public static void close(FileDescriptor fd) throws IOException {
        if (fd == null || !fd.valid()) {
            return;
        }
        try {
            Libcore.os.close(fd);
        } catch (ErrnoException e) {
            throw e.rethrowAsIOException();
        }
    }

    /**
     * Closes a file, whatever happens.
     *
     * @param fd the file; may be null
     */
    public static void closeQuietly(FileDescriptor fd) {
        try {
            close(fd);
        } catch (IOException e) {
            // Asked for.
        }
    }

    /**
     * Closes a socket, whatever happens.
     *
     * @param socket the socket; may be null
     */
    public static void closeQuietly(Socket socket) {
        try {
            if (socket != null) {
                socket.close();
            }
        } catch (IOException e) {
            // Asked for.
        }
    }

    /**
     * Refused: files of a container never block.
     *
     * @param fd unused
     * @param blocking unused
     * @throws IOException never
     */
    public static void setBlocking(FileDescriptor fd, boolean blocking) throws IOException {
        throw new UnsupportedOperationException("setBlocking: not in a container");
    }

    /**
     * Deletes everything in a directory, and in those in it. The directory stays.
     *
     * @param dir the directory
     * @throws IOException if something cannot be deleted
     */
    public static void deleteContents(File dir) throws IOException {
        File[] files = dir.isDirectory() ? dir.listFiles() : null;
        if (files == null) {
            throw new IllegalArgumentException("not a directory: " + dir);
        }
        for (File file : files) {
            // A link to a directory is deleted, and not what it leads to.
            if (!file.delete()) {
                if (Mount.room().stat(file.getAbsolutePath(), false).isDirectory()) {
                    deleteContents(file);
                }
                if (!file.delete()) {
                    throw new IOException("cannot delete " + file);
                }
            }
        }
    }
}
