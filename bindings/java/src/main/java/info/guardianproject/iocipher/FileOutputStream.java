package info.guardianproject.iocipher;

import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;

/**
 * Writes a file of the mounted container. What was written is durable after {@code getFD().sync()}, at the end of a transaction, after
 * unmounting, or within five seconds.
 */
public class FileOutputStream extends OutputStream implements Closeable {
    private final FileDescriptor fd;
    private final boolean ours;
    private final byte[] one = new byte[1];
    /** Set once, under the monitor. Read without it: closing may wait for nobody who holds it, and the channel closes the stream, too. */
    private volatile IOCipherFileChannel channel;

    /**
     * Makes a file, or cuts the one that is there to nothing.
     *
     * @param file the file
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileOutputStream(File file) throws FileNotFoundException {
        this(file, false);
    }

    /**
     * Makes a file, or opens the one that is there.
     *
     * @param file the file
     * @param append whether to write to its end instead of cutting it to nothing
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileOutputStream(File file, boolean append) throws FileNotFoundException {
        fd = Flags.open(file, Flags.WRITE | Flags.CREATE | (append ? Flags.APPEND : Flags.TRUNCATE));
        ours = true;
    }

    /**
     * Writes to what is open; closing the stream leaves it so.
     *
     * @param fd an open file
     */
    public FileOutputStream(FileDescriptor fd) {
        if (fd == null) {
            throw new NullPointerException("fd == null");
        }
        this.fd = fd;
        ours = false;
    }

    /**
     * Makes a file, or cuts the one that is there to nothing.
     *
     * @param path its path
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileOutputStream(String path) throws FileNotFoundException {
        this(new File(path), false);
    }

    /**
     * Makes a file, or opens the one that is there.
     *
     * @param path its path
     * @param append whether to write to its end instead of cutting it to nothing
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileOutputStream(String path, boolean append) throws FileNotFoundException {
        this(new File(path), append);
    }

    @Override
    public void close() throws IOException {
        if (ours) {
            Mount.close(fd);
        }
        IOCipherFileChannel now = channel;
        if (now != null) {
            now.close();
        }
    }

    /**
     * A channel on the same file and position.
     *
     * @return the same each time
     */
    public synchronized IOCipherFileChannel getChannel() {
        if (channel == null) {
            channel = new IOCipherFileChannel(this, fd, Flags.O_WRONLY);
        }
        return channel;
    }

    /**
     * The open file.
     *
     * @return its descriptor
     * @throws IOException never
     */
    public final FileDescriptor getFD() throws IOException {
        return fd;
    }

    @Override
    public void write(byte[] buffer, int byteOffset, int byteCount) throws IOException {
        Flags.write(fd, buffer, byteOffset, byteCount);
    }

    @Override
    public synchronized void write(int oneByte) throws IOException {
        one[0] = (byte) oneByte;
        Flags.write(fd, one, 0, 1);
    }
}
