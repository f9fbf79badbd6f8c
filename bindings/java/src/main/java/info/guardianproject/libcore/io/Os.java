package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.FileDescriptor;
import java.nio.ByteBuffer;

/**
 * Calls of POSIX, on the mounted container.
 */
public interface Os extends OsRefused {
    /**
     * Whether a file may be used so, by the permission bits of its owner.
     *
     * @param path the path
     * @param mode permission bits
     * @return true: what may not be is an exception
     * @throws ErrnoException if it fails
     */
    public boolean access(String path, int mode) throws ErrnoException;

    /**
     * Sets the permission bits.
     *
     * @param path the path
     * @param mode permission bits
     * @throws ErrnoException if it fails
     */
    public void chmod(String path, int mode) throws ErrnoException;

    /**
     * Closes a file.
     *
     * @param fd the file
     * @throws ErrnoException if it fails
     */
    public void close(FileDescriptor fd) throws ErrnoException;

    /**
     * Attributes of an open file.
     *
     * @param fd the file
     * @return as they are now
     * @throws ErrnoException if it fails
     */
    public StructStat fstat(FileDescriptor fd) throws ErrnoException;

    /**
     * Space.
     *
     * @param fd the file
     * @return as it is now
     * @throws ErrnoException if it fails
     */
    public StructStatFs fstatfs(FileDescriptor fd) throws ErrnoException;

    /**
     * Makes what was written durable.
     *
     * @param fd the file
     * @throws ErrnoException if it fails
     */
    public void fsync(FileDescriptor fd) throws ErrnoException;

    /**
     * Sets the length of a file.
     *
     * @param fd the file
     * @param length bytes
     * @throws ErrnoException if it fails
     */
    public void ftruncate(FileDescriptor fd, long length) throws ErrnoException;

    /**
     * Creates a directory.
     *
     * @param path the path
     * @param mode permission bits
     * @throws ErrnoException if it fails
     */
    public void mkdir(String path, int mode) throws ErrnoException;

    /**
     * Opens a file.
     *
     * @param path the path
     * @param flags as in OsConstants
     * @param mode permission bits
     * @return the open file
     * @throws ErrnoException if it fails
     */
    public FileDescriptor open(String path, int flags, int mode) throws ErrnoException;

    /**
     * Reads at a place; the position stays.
     *
     * @param fd the file
     * @param buffer what remains of it
     * @param offset bytes from the start
     * @return bytes read; 0 at the end
     * @throws ErrnoException if it fails
     */
    public int pread(FileDescriptor fd, ByteBuffer buffer, long offset) throws ErrnoException;

    /**
     * Reads at a place; the position stays.
     *
     * @param fd the file
     * @param bytes the bytes
     * @param byteOffset index of the first
     * @param byteCount how many
     * @param offset bytes from the start
     * @return bytes read; 0 at the end
     * @throws ErrnoException if it fails
     */
    public int pread(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, long offset) throws ErrnoException;

    /**
     * Writes at a place; the position stays.
     *
     * @param fd the file
     * @param buffer what remains of it
     * @param offset bytes from the start
     * @param flags as in OsConstants
     * @return bytes written
     * @throws ErrnoException if it fails
     */
    public int pwrite(FileDescriptor fd, ByteBuffer buffer, long offset, int flags) throws ErrnoException;

    /**
     * Writes at a place; the position stays.
     *
     * @param fd the file
     * @param bytes the bytes
     * @param byteOffset index of the first
     * @param byteCount how many
     * @param offset bytes from the start
     * @param flags as in OsConstants
     * @return bytes written
     * @throws ErrnoException if it fails
     */
    public int pwrite(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, long offset, int flags) throws ErrnoException;

    /**
     * Reads at the position, and moves it.
     *
     * @param fd the file
     * @param buffer what remains of it
     * @return bytes read; 0 at the end
     * @throws ErrnoException if it fails
     */
    public int read(FileDescriptor fd, ByteBuffer buffer) throws ErrnoException;

    /**
     * Reads at the position, and moves it.
     *
     * @param fd the file
     * @param bytes the bytes
     * @param byteOffset index of the first
     * @param byteCount how many
     * @return bytes read; 0 at the end
     * @throws ErrnoException if it fails
     */
    public int read(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount) throws ErrnoException;

    /**
     * Removes a file or an empty directory.
     *
     * @param path the path
     * @throws ErrnoException if it fails
     */
    public void remove(String path) throws ErrnoException;

    /**
     * Renames, as rename(2) does.
     *
     * @param oldPath the old path, or what a link says
     * @param newPath the new path
     * @throws ErrnoException if it fails
     */
    public void rename(String oldPath, String newPath) throws ErrnoException;

    /**
     * Attributes of what is at a path.
     *
     * @param path the path
     * @return as they are now
     * @throws ErrnoException if it fails
     */
    public StructStat stat(String path) throws ErrnoException;

    /**
     * Space.
     *
     * @param path the path
     * @return as it is now
     * @throws ErrnoException if it fails
     */
    public StructStatFs statfs(String path) throws ErrnoException;

    /**
     * The text of an error number.
     *
     * @param errno the number
     * @return the text
     */
    public String strerror(int errno);

    /**
     * Makes a symbolic link.
     *
     * @param oldPath the old path, or what a link says
     * @param newPath the new path
     * @throws ErrnoException if it fails
     */
    public void symlink(String oldPath, String newPath) throws ErrnoException;

    /**
     * Writes at the position, and moves it.
     *
     * @param fd the file
     * @param buffer what remains of it
     * @param flags as in OsConstants
     * @return bytes written
     * @throws ErrnoException if it fails
     */
    public int write(FileDescriptor fd, ByteBuffer buffer, int flags) throws ErrnoException;

    /**
     * Writes at the position, and moves it.
     *
     * @param fd the file
     * @param bytes the bytes
     * @param byteOffset index of the first
     * @param byteCount how many
     * @param flags as in OsConstants
     * @return bytes written
     * @throws ErrnoException if it fails
     */
    public int write(FileDescriptor fd, byte[] bytes, int byteOffset, int byteCount, int flags) throws ErrnoException;
}
