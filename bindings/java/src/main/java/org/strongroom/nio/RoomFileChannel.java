package org.strongroom.nio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.NonReadableChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;
import org.strongroom.RoomException;
import org.strongroom.RoomFile;

/** An open file as a channel. Reads and writes at places go side by side; those at the position take turns. */
final class RoomFileChannel extends FileChannel {
    private static final int PIECE = 1 << 20;

    private final RoomPath path;
    private final RoomFile file;
    private final boolean readable;
    private final boolean writable;
    private final boolean append;
    private final boolean sync;
    private final boolean deleteOnClose;
    private final Object turn = new Object();
    private long position;

    RoomFileChannel(RoomPath path, RoomFile file, boolean sync, boolean deleteOnClose) {
        this.path = path;
        this.file = file;
        this.readable = (file.flags() & RoomFile.READ) != 0;
        this.writable = (file.flags() & RoomFile.WRITE) != 0;
        this.append = (file.flags() & RoomFile.APPEND) != 0;
        this.sync = sync;
        this.deleteOnClose = deleteOnClose;
    }

    private void checkReadable() throws IOException {
        checkOpen();
        if (!readable) {
            throw new NonReadableChannelException();
        }
    }

    private void checkWritable() throws IOException {
        checkOpen();
        if (!writable) {
            throw new NonWritableChannelException();
        }
    }

    private void checkOpen() throws IOException {
        if (!isOpen()) {
            throw new ClosedChannelException();
        }
    }

    private static void checkPart(int whole, int at, int count) {
        if ((at | count) < 0 || count > whole - at) {
            throw new IndexOutOfBoundsException(count + " buffers at " + at + " of " + whole);
        }
    }

    private int readAt(ByteBuffer dst, long at) throws IOException {
        if (dst.isReadOnly()) {
            throw new IllegalArgumentException("a buffer that is read-only");
        }
        if (!dst.hasRemaining()) {
            return 0;
        }
        try {
            int n = file.readAt(at, dst);
            return n == 0 ? -1 : n;
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    /** Where it went. */
    private long writeAt(ByteBuffer src, long at) throws IOException {
        try {
            long went = file.writeAt(at, src);
            if (sync) {
                file.sync();
            }
            return went;
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    @Override
    public int read(ByteBuffer dst) throws IOException {
        checkReadable();
        synchronized (turn) {
            int n = readAt(dst, position);
            position += Math.max(n, 0);
            return n;
        }
    }

    @Override
    public long read(ByteBuffer[] dsts, int offset, int length) throws IOException {
        checkPart(dsts.length, offset, length);
        checkReadable();
        synchronized (turn) {
            long done = 0;
            for (int i = offset; i < offset + length; i++) {
                int wanted = dsts[i].remaining();
                int n = readAt(dsts[i], position);
                if (n == -1) {
                    return done == 0 ? -1 : done;
                }
                position += n;
                done += n;
                if (n < wanted) {
                    break;
                }
            }
            return done;
        }
    }

    @Override
    public int read(ByteBuffer dst, long at) throws IOException {
        checkPosition(at);
        checkReadable();
        return readAt(dst, at);
    }

    @Override
    public int write(ByteBuffer src) throws IOException {
        checkWritable();
        synchronized (turn) {
            int n = src.remaining();
            position = writeAt(src, position) + n;
            return n;
        }
    }

    @Override
    public long write(ByteBuffer[] srcs, int offset, int length) throws IOException {
        checkPart(srcs.length, offset, length);
        checkWritable();
        synchronized (turn) {
            long done = 0;
            for (int i = offset; i < offset + length; i++) {
                int n = srcs[i].remaining();
                position = writeAt(srcs[i], position) + n;
                done += n;
            }
            return done;
        }
    }

    @Override
    public int write(ByteBuffer src, long at) throws IOException {
        checkPosition(at);
        checkWritable();
        int n = src.remaining();
        writeAt(src, at);
        return n;
    }

    private static void checkPosition(long position) {
        if (position < 0) {
            throw new IllegalArgumentException("a position, length or count of " + position);
        }
    }

    @Override
    public long position() throws IOException {
        checkOpen();
        synchronized (turn) {
            return append ? size() : position;
        }
    }

    @Override
    public FileChannel position(long newPosition) throws IOException {
        checkOpen();
        checkPosition(newPosition);
        synchronized (turn) {
            position = newPosition;
        }
        return this;
    }

    @Override
    public long size() throws IOException {
        checkOpen();
        try {
            return file.length();
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    @Override
    public FileChannel truncate(long size) throws IOException {
        checkPosition(size);
        checkWritable();
        synchronized (turn) {
            try {
                if (size < file.length()) {
                    file.setLength(size);
                }
            } catch (RoomException e) {
                throw Errors.of(e, path);
            }
            position = Math.min(position, size);
        }
        return this;
    }

    @Override
    public void force(boolean metaData) throws IOException {
        checkOpen();
        try {
            file.sync();
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    @Override
    public long transferTo(long from, long count, WritableByteChannel target) throws IOException {
        checkPosition(from);
        checkPosition(count);
        checkReadable();
        if (!target.isOpen()) {
            throw new ClosedChannelException();
        }
        ByteBuffer piece = ByteBuffer.allocate((int) Math.min(count, PIECE));
        long done = 0;
        while (done < count) {
            piece.clear().limit((int) Math.min(count - done, piece.capacity()));
            if (readAt(piece, from + done) <= 0) {
                break;
            }
            piece.flip();
            done += target.write(piece);
            if (piece.hasRemaining()) {
                break;
            }
        }
        return done;
    }

    @Override
    public long transferFrom(ReadableByteChannel src, long to, long count) throws IOException {
        checkPosition(to);
        checkPosition(count);
        checkWritable();
        if (!src.isOpen()) {
            throw new ClosedChannelException();
        }
        if (to > size()) {
            return 0;
        }
        ByteBuffer piece = ByteBuffer.allocate((int) Math.min(count, PIECE));
        long done = 0;
        while (done < count) {
            piece.clear().limit((int) Math.min(count - done, piece.capacity()));
            int n = src.read(piece);
            if (n <= 0) {
                break;
            }
            piece.flip();
            writeAt(piece, to + done);
            done += n;
        }
        return done;
    }

    @Override
    public MappedByteBuffer map(MapMode mode, long from, long size) {
        throw new UnsupportedOperationException("a file of a room is not mapped into memory: read it");
    }

    @Override
    public FileLock lock(long from, long size, boolean shared) throws IOException {
        return tryLock(from, size, shared);
    }

    /** Nobody else has the room open, so a lock waits for nobody: one that this virtual machine holds is refused as overlapping. */
    @Override
    public FileLock tryLock(long from, long size, boolean shared) throws IOException {
        if (shared) {
            checkReadable();
        } else {
            checkWritable();
        }
        long inode;
        try {
            inode = file.stat().inode();
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
        RoomFileSystem fs = path.getFileSystem();
        FileLock lock = new FileLock(this, from, size, shared) {
            private volatile boolean released;

            @Override
            public boolean isValid() {
                return !released && acquiredBy().isOpen();
            }

            @Override
            public void release() throws IOException {
                checkOpen();
                released = true;
                fs.unlock(inode, this);
            }
        };
        fs.lock(inode, lock);
        return lock;
    }

    @Override
    protected void implCloseChannel() throws IOException {
        file.close();
        if (deleteOnClose && path.getFileSystem().isOpen()) {
            path.getFileSystem().provider().deleteIfExists(path);
        }
    }
}
