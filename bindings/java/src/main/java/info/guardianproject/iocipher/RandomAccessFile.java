package info.guardianproject.iocipher;

import java.io.Closeable;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;

/** A file of the mounted container, read and written anywhere. Numbers are big-endian, as in {@link DataInput}. */
public class RandomAccessFile implements DataInput, DataOutput, Closeable {
    private final FileDescriptor fd;
    private final int mode;
    private final byte[] scratch = new byte[8];
    /** Set once, under the monitor. Read without it: closing may wait for nobody who holds it, and the channel closes the stream, too. */
    private volatile IOCipherFileChannel channel;

    /**
     * Opens a file.
     *
     * @param file the file
     * @param mode {@code r}; {@code rw}, which makes it when it is missing; {@code rws} or {@code rwd}: each write and each
     *     change of the length durable at once, through channel and descriptor too
     * @throws FileNotFoundException if it cannot be opened
     * @throws IllegalArgumentException if the mode is none of these
     */
    public RandomAccessFile(File file, String mode) throws FileNotFoundException {
        switch (mode) {
            case "r":
                this.mode = Flags.O_RDONLY;
                break;
            case "rw":
            case "rws":
            case "rwd":
                this.mode = Flags.O_RDWR;
                break;
            default:
                throw new IllegalArgumentException("a mode of '" + mode + "': not r, rw, rws or rwd");
        }
        fd = Flags.open(file, this.mode == Flags.O_RDONLY ? Flags.READ : Flags.READ | Flags.WRITE | Flags.CREATE);
        fd.durable = mode.length() == 3;
    }

    /**
     * Opens a file.
     *
     * @param fileName its path
     * @param mode as for {@link #RandomAccessFile(File, String)}
     * @throws FileNotFoundException if it cannot be opened
     */
    public RandomAccessFile(String fileName, String mode) throws FileNotFoundException {
        this(new File(fileName), mode);
    }

    @Override
    public void close() throws IOException {
        Mount.close(fd);
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
    public final synchronized IOCipherFileChannel getChannel() {
        if (channel == null) {
            channel = new IOCipherFileChannel(this, fd, mode);
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
     * The position.
     *
     * @return bytes from the start
     * @throws IOException if it is closed
     */
    public long getFilePointer() throws IOException {
        Mount.file(fd);
        return fd.position;
    }

    /**
     * The length.
     *
     * @return bytes
     * @throws IOException if it is closed
     */
    public long length() throws IOException {
        return Mount.file(fd).length();
    }

    /**
     * Reads a byte.
     *
     * @return 0 to 255; -1 at the end
     * @throws IOException if it cannot be read
     */
    public int read() throws IOException {
        synchronized (scratch) {
            return Flags.read(fd, scratch, 0, 1) == -1 ? -1 : scratch[0] & 0xFF;
        }
    }

    /**
     * Reads bytes.
     *
     * @param buffer where to
     * @return how many; -1 at the end
     * @throws IOException if they cannot be read
     */
    public int read(byte[] buffer) throws IOException {
        return read(buffer, 0, buffer.length);
    }

    /**
     * Reads bytes.
     *
     * @param buffer where to
     * @param byteOffset index in it
     * @param byteCount how many at most
     * @return how many; -1 at the end
     * @throws IOException if they cannot be read
     */
    public int read(byte[] buffer, int byteOffset, int byteCount) throws IOException {
        return Flags.read(fd, buffer, byteOffset, byteCount);
    }

    @Override
    public final void readFully(byte[] dst) throws IOException {
        readFully(dst, 0, dst.length);
    }

    @Override
    public final void readFully(byte[] dst, int offset, int byteCount) throws IOException {
        Flags.check(dst.length, offset, byteCount);
        for (int done = 0; done < byteCount; ) {
            int n = read(dst, offset + done, byteCount - done);
            if (n == -1) {
                throw new EOFException("the file ends after " + done + " of " + byteCount + " bytes");
            }
            done += n;
        }
    }

    /** A number of so many bytes, in the low bits. */
    private long number(int bytes) throws IOException {
        synchronized (scratch) {
            readFully(scratch, 0, bytes);
            long value = 0;
            for (int i = 0; i < bytes; i++) {
                value = value << 8 | scratch[i] & 0xFF;
            }
            return value;
        }
    }

    private void number(long value, int bytes) throws IOException {
        synchronized (scratch) {
            for (int i = 0; i < bytes; i++) {
                scratch[i] = (byte) (value >>> 8 * (bytes - 1 - i));
            }
            write(scratch, 0, bytes);
        }
    }

    @Override
    public final boolean readBoolean() throws IOException {
        return number(1) != 0;
    }

    @Override
    public final byte readByte() throws IOException {
        return (byte) number(1);
    }

    @Override
    public final char readChar() throws IOException {
        return (char) number(2);
    }

    @Override
    public final double readDouble() throws IOException {
        return Double.longBitsToDouble(number(8));
    }

    @Override
    public final float readFloat() throws IOException {
        return Float.intBitsToFloat((int) number(4));
    }

    @Override
    public final int readInt() throws IOException {
        return (int) number(4);
    }

    @Override
    public final String readLine() throws IOException {
        StringBuilder line = new StringBuilder();
        byte[] piece = new byte[256];
        while (true) {
            long start = getFilePointer();
            int n = read(piece, 0, piece.length);
            if (n == -1) {
                return line.length() == 0 ? null : line.toString();
            }
            for (int i = 0; i < n; i++) {
                char c = (char) (piece[i] & 0xFF);
                if (c == '\n' || c == '\r') {
                    fd.position = start + i + 1;
                    if (c == '\r' && read() != '\n') {
                        fd.position = start + i + 1;
                    }
                    return line.toString();
                }
                line.append(c);
            }
        }
    }

    @Override
    public final long readLong() throws IOException {
        return number(8);
    }

    @Override
    public final short readShort() throws IOException {
        return (short) number(2);
    }

    @Override
    public final int readUnsignedByte() throws IOException {
        return (int) number(1);
    }

    @Override
    public final int readUnsignedShort() throws IOException {
        return (int) number(2);
    }

    @Override
    public final String readUTF() throws IOException {
        return DataInputStream.readUTF(this);
    }

    /**
     * Sets the position. It may be behind the end.
     *
     * @param offset bytes from the start
     * @throws IOException if it is below 0
     */
    public void seek(long offset) throws IOException {
        if (offset < 0) {
            throw new IOException("a position of " + offset + ": before the start of the file");
        }
        Mount.file(fd);
        fd.position = offset;
    }

    /**
     * Cuts the file, or makes it longer with zeros that take no space. A position behind the new end moves there.
     *
     * @param newLength bytes
     * @throws IOException if it cannot be changed
     */
    public void setLength(long newLength) throws IOException {
        if (newLength < 0) {
            throw new IllegalArgumentException("a length of " + newLength);
        }
        Mount.file(fd).setLength(newLength);
        fd.position = Math.min(fd.position, newLength);
        Mount.changed(fd);
    }

    /** Moves the position on, at most to the end; how far it did. */
    @Override
    public int skipBytes(int count) throws IOException {
        int n = (int) Math.max(Math.min(count, length() - fd.position), 0);
        fd.position += n;
        return n;
    }

    @Override
    public void write(byte[] buffer) throws IOException {
        write(buffer, 0, buffer.length);
    }

    @Override
    public void write(byte[] buffer, int byteOffset, int byteCount) throws IOException {
        Flags.write(fd, buffer, byteOffset, byteCount);
    }

    @Override
    public void write(int oneByte) throws IOException {
        number(oneByte, 1);
    }

    @Override
    public final void writeBoolean(boolean val) throws IOException {
        number(val ? 1 : 0, 1);
    }

    @Override
    public final void writeByte(int val) throws IOException {
        number(val, 1);
    }

    @Override
    public final void writeBytes(String str) throws IOException {
        byte[] bytes = new byte[str.length()];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) str.charAt(i);
        }
        write(bytes);
    }

    @Override
    public final void writeChar(int val) throws IOException {
        number(val, 2);
    }

    @Override
    public final void writeChars(String str) throws IOException {
        byte[] bytes = new byte[str.length() * 2];
        for (int i = 0; i < str.length(); i++) {
            bytes[2 * i] = (byte) (str.charAt(i) >>> 8);
            bytes[2 * i + 1] = (byte) str.charAt(i);
        }
        write(bytes);
    }

    @Override
    public final void writeDouble(double val) throws IOException {
        number(Double.doubleToLongBits(val), 8);
    }

    @Override
    public final void writeFloat(float val) throws IOException {
        number(Float.floatToIntBits(val), 4);
    }

    @Override
    public final void writeInt(int val) throws IOException {
        number(val, 4);
    }

    @Override
    public final void writeLong(long val) throws IOException {
        number(val, 8);
    }

    @Override
    public final void writeShort(int val) throws IOException {
        number(val, 2);
    }

    @Override
    public final void writeUTF(String str) throws IOException {
        java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
        new java.io.DataOutputStream(bytes).writeUTF(str);
        write(bytes.toByteArray());
    }
}
