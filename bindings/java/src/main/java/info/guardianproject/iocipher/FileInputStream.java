package info.guardianproject.iocipher;

import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;

/** Reads a file of the mounted container. Each call reads from it: put a {@code BufferedInputStream} around it for single bytes. */
public class FileInputStream extends InputStream implements Closeable {
    private final FileDescriptor fd;
    private final boolean ours;
    private final byte[] one = new byte[1];
    /** Set once, under the monitor. Read without it: closing may wait for nobody who holds it, and the channel closes the stream, too. */
    private volatile IOCipherFileChannel channel;

    /**
     * Opens a file.
     *
     * @param file the file
     * @throws FileNotFoundException if it is missing, a directory, or cannot be opened
     */
    public FileInputStream(File file) throws FileNotFoundException {
        fd = Flags.open(file, Flags.READ);
        ours = true;
    }

    /**
     * Reads from what is open; closing the stream leaves it so.
     *
     * @param fd an open file
     */
    public FileInputStream(FileDescriptor fd) {
        if (fd == null) {
            throw new NullPointerException("fd == null");
        }
        this.fd = fd;
        ours = false;
    }

    /**
     * Opens a file.
     *
     * @param path its path
     * @throws FileNotFoundException if it is missing, a directory, or cannot be opened
     */
    public FileInputStream(String path) throws FileNotFoundException {
        this(new File(path));
    }

    /** Bytes from the position to the end, as many as an int holds. */
    @Override
    public int available() throws IOException {
        return (int) Math.min(Math.max(Mount.file(fd).length() - fd.position, 0), Integer.MAX_VALUE);
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
            channel = new IOCipherFileChannel(this, fd, Flags.O_RDONLY);
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

    /**
     * Reads one byte of a stream by its method for many.
     *
     * @param in the stream
     * @return 0 to 255; -1 at the end
     * @throws IOException if it cannot be read
     */
    public static int readSingleByte(InputStream in) throws IOException {
        byte[] one = new byte[1];
        int n = in.read(one, 0, 1);
        return n == -1 ? -1 : one[0] & 0xFF;
    }

    @Override
    public synchronized int read() throws IOException {
        return Flags.read(fd, one, 0, 1) == -1 ? -1 : one[0] & 0xFF;
    }

    @Override
    public int read(byte[] b) throws IOException {
        return read(b, 0, b.length);
    }

    @Override
    public int read(byte[] buffer, int byteOffset, int byteCount) throws IOException {
        return Flags.read(fd, buffer, byteOffset, byteCount);
    }

    /** Moves the position on, at most to the end; how far it did. */
    @Override
    public long skip(long byteCount) throws IOException {
        if (byteCount < 0) {
            throw new IOException("skipping " + byteCount + " bytes");
        }
        long n = Math.min(byteCount, Math.max(Mount.file(fd).length() - fd.position, 0));
        fd.position += n;
        return n;
    }
}
