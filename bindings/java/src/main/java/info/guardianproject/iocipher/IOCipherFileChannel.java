package info.guardianproject.iocipher;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.NonReadableChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.channels.spi.AbstractInterruptibleChannel;

/**
 * A channel on an open file, sharing the position of its descriptor. Not a {@code java.nio.channels.FileChannel}: there is no map and
 * no lock.
 */
public class IOCipherFileChannel extends AbstractInterruptibleChannel implements ByteChannel {
    private static final int MODE = 3;
    private static final int PIECE = 1 << 20;

    private final Object stream;
    private final FileDescriptor fd;
    private final int mode;

    /**
     * A channel on what a stream has open.
     *
     * @param stream closed with the channel, if it can be
     * @param fd what it has open
     * @param mode as for open(2): 0 reading, 1 writing, 2 both
     */
    public IOCipherFileChannel(Object stream, FileDescriptor fd, int mode) {
        this.stream = stream;
        this.fd = fd;
        this.mode = mode & MODE;
    }

    private void checkOpen() throws ClosedChannelException {
        if (!isOpen()) {
            throw new ClosedChannelException();
        }
    }

    private void checkReadable() throws ClosedChannelException {
        checkOpen();
        if (mode == Flags.O_WRONLY) {
            throw new NonReadableChannelException();
        }
    }

    private void checkWritable() throws ClosedChannelException {
        checkOpen();
        if (mode == Flags.O_RDONLY) {
            throw new NonWritableChannelException();
        }
    }

    private static void checkPosition(long position) {
        if (position < 0) {
            throw new IllegalArgumentException("a position of " + position);
        }
    }

    @Override
    protected void implCloseChannel() throws IOException {
        if (stream instanceof Closeable) {
            ((Closeable) stream).close();
        }
    }

    /**
     * Makes what was written durable.
     *
     * @param metadata of no meaning: both are always
     * @throws IOException if the storage failed
     */
    public void force(boolean metadata) throws IOException {
        checkOpen();
        Mount.file(fd).sync();
    }

    /**
     * Moves the position.
     *
     * @param offset by how much
     * @param whence from where: 0 the start, 1 the present position, 2 the end
     * @return the new one
     * @throws IOException if that is before the start
     */
    public long lseek(long offset, int whence) throws IOException {
        checkOpen();
        long base;
        switch (whence) {
            case 0:
                base = 0;
                break;
            case 1:
                base = fd.position;
                break;
            case 2:
                base = size();
                break;
            default:
                throw new IOException("lseek from " + whence + ": not 0, 1 or 2");
        }
        long to = base + offset;
        if (to < 0) {
            throw new IOException("a position before the start of the file or beyond 2^63");
        }
        fd.position = to;
        return to;
    }

    /**
     * The position.
     *
     * @return bytes from the start
     * @throws IOException if it is closed
     */
    public long position() throws IOException {
        checkOpen();
        return fd.position;
    }

    /**
     * Sets the position. It may be behind the end.
     *
     * @param newPosition bytes from the start
     * @return this
     * @throws IOException if it is closed
     */
    public IOCipherFileChannel position(long newPosition) throws IOException {
        checkPosition(newPosition);
        lseek(newPosition, 0);
        return this;
    }

    @Override
    public int read(ByteBuffer buffer) throws IOException {
        checkReadable();
        if (!buffer.hasRemaining()) {
            return 0;
        }
        int n = Mount.file(fd).readAt(fd.position, buffer);
        fd.position += n;
        return n == 0 ? -1 : n;
    }

    /**
     * Reads at a place; the position stays.
     *
     * @param buffer where to
     * @param position bytes from the start
     * @return bytes read; -1 at the end
     * @throws IOException if it cannot be read
     */
    public int read(ByteBuffer buffer, long position) throws IOException {
        checkPosition(position);
        checkReadable();
        if (!buffer.hasRemaining()) {
            return 0;
        }
        int n = Mount.file(fd).readAt(position, buffer);
        return n == 0 ? -1 : n;
    }

    /**
     * The length of the file.
     *
     * @return bytes
     * @throws IOException if it is closed
     */
    public long size() throws IOException {
        checkOpen();
        return Mount.file(fd).length();
    }

    @Override
    public int write(ByteBuffer src) throws IOException {
        checkWritable();
        int n = src.remaining();
        fd.position = Mount.file(fd).writeAt(fd.position, src) + n;
        Mount.changed(fd);
        return n;
    }

    /**
     * Copies from another channel into the file; the position stays.
     *
     * @param src where from
     * @param position where to: bytes from the start; behind the end nothing is copied
     * @param count bytes
     * @return bytes copied: fewer when the other had no more
     * @throws IOException if one of the two failed
     */
    public long transferFrom(ReadableByteChannel src, long position, long count) throws IOException {
        checkPosition(position);
        checkPosition(count);
        checkWritable();
        if (position > size()) {
            return 0;
        }
        ByteBuffer piece = ByteBuffer.allocate((int) Math.min(count, PIECE));
        long done = 0;
        while (done < count) {
            ((java.nio.Buffer) piece).clear();
            ((java.nio.Buffer) piece).limit((int) Math.min(count - done, piece.capacity()));
            if (src.read(piece) <= 0) {
                break;
            }
            ((java.nio.Buffer) piece).flip();
            done += write(piece, position + done);
        }
        return done;
    }

    /**
     * Copies from the file into another channel; the position stays.
     *
     * @param position where from: bytes from the start
     * @param count bytes
     * @param target where to
     * @return bytes copied: fewer at the end of the file, or when the other took no more
     * @throws IOException if one of the two failed
     */
    public long transferTo(long position, long count, WritableByteChannel target) throws IOException {
        checkPosition(position);
        checkPosition(count);
        checkReadable();
        if (!target.isOpen()) {
            throw new ClosedChannelException();
        }
        ByteBuffer piece = ByteBuffer.allocate((int) Math.min(count, PIECE));
        long done = 0;
        while (done < count) {
            ((java.nio.Buffer) piece).clear();
            ((java.nio.Buffer) piece).limit((int) Math.min(count - done, piece.capacity()));
            if (read(piece, position + done) <= 0) {
                break;
            }
            ((java.nio.Buffer) piece).flip();
            int n = target.write(piece);
            done += n;
            if (piece.hasRemaining()) {
                break;
            }
        }
        return done;
    }

    /**
     * Cuts the file; a position behind the new end moves there. A file that is shorter stays as it is.
     *
     * @param size bytes
     * @return this
     * @throws IOException if it cannot be cut
     */
    public IOCipherFileChannel truncate(long size) throws IOException {
        checkPosition(size);
        checkWritable();
        if (size < size()) {
            Mount.file(fd).setLength(size);
            Mount.changed(fd);
        }
        fd.position = Math.min(fd.position, size);
        return this;
    }

    /**
     * Writes at a place; the position stays.
     *
     * @param buffer where from
     * @param position bytes from the start
     * @return bytes written: all
     * @throws IOException if it cannot be written
     */
    public int write(ByteBuffer buffer, long position) throws IOException {
        checkPosition(position);
        checkWritable();
        int n = buffer.remaining();
        Mount.file(fd).writeAt(position, buffer);
        Mount.changed(fd);
        return n;
    }
}
