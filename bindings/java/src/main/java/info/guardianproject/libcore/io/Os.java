package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.FileDescriptor;
import java.nio.ByteBuffer;

/**
 * Calls of POSIX, on the mounted container. Those that have nothing to do with files in a container were never there: they throw
 * {@link UnsupportedOperationException}.
 */
public interface Os {
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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param oldFd unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public FileDescriptor dup(FileDescriptor oldFd) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param oldFd unused
     * @param newFd unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public FileDescriptor dup2(FileDescriptor oldFd, int newFd) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public String[] environ();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param cmd unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int fcntlVoid(FileDescriptor fd, int cmd) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param cmd unused
     * @param arg unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int fcntlLong(FileDescriptor fd, int cmd, long arg) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param cmd unused
     * @param arg unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int fcntlFlock(FileDescriptor fd, int cmd, StructFlock arg) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @throws ErrnoException if it fails
     */
    public void fdatasync(FileDescriptor fd) throws ErrnoException;

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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param error unused
     * @return nothing
     */
    public String gai_strerror(int error);

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int getegid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int geteuid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int getgid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param name unused
     * @return nothing
     */
    public String getenv(String name);

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int getpid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int getppid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param name unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public StructPasswd getpwnam(String name) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param uid unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public StructPasswd getpwuid(int uid) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public int getuid();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param cmd unused
     * @param arg unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int ioctlInt(FileDescriptor fd, int cmd, int arg) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @return nothing
     */
    public boolean isatty(FileDescriptor fd);

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param pid unused
     * @param signal unused
     * @throws ErrnoException if it fails
     */
    public void kill(int pid, int signal) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param backlog unused
     * @throws ErrnoException if it fails
     */
    public void listen(FileDescriptor fd, int backlog) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param path unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public StructStat lstat(String path) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @param vector unused
     * @throws ErrnoException if it fails
     */
    public void mincore(long address, long byteCount, byte[] vector) throws ErrnoException;

    /**
     * Creates a directory.
     *
     * @param path the path
     * @param mode permission bits
     * @throws ErrnoException if it fails
     */
    public void mkdir(String path, int mode) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @throws ErrnoException if it fails
     */
    public void mlock(long address, long byteCount) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @param prot unused
     * @param flags unused
     * @param fd unused
     * @param offset unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public long mmap(long address, long byteCount, int prot, int flags, FileDescriptor fd, long offset) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @param flags unused
     * @throws ErrnoException if it fails
     */
    public void msync(long address, long byteCount, int flags) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @throws ErrnoException if it fails
     */
    public void munlock(long address, long byteCount) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param address unused
     * @param byteCount unused
     * @throws ErrnoException if it fails
     */
    public void munmap(long address, long byteCount) throws ErrnoException;

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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public FileDescriptor[] pipe() throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fds unused
     * @param timeoutMs unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int poll(StructPollfd[] fds, int timeoutMs) throws ErrnoException;

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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param buffers unused
     * @param offsets unused
     * @param byteCounts unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int readv(FileDescriptor fd, Object[] buffers, int[] offsets, int[] byteCounts) throws ErrnoException;

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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param egid unused
     * @throws ErrnoException if it fails
     */
    public void setegid(int egid) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param euid unused
     * @throws ErrnoException if it fails
     */
    public void seteuid(int euid) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param gid unused
     * @throws ErrnoException if it fails
     */
    public void setgid(int gid) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param uid unused
     * @throws ErrnoException if it fails
     */
    public void setuid(int uid) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param how unused
     * @throws ErrnoException if it fails
     */
    public void shutdown(FileDescriptor fd, int how) throws ErrnoException;

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param domain unused
     * @param type unused
     * @param protocol unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public FileDescriptor socket(int domain, int type, int protocol) throws ErrnoException;

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
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param name unused
     * @return nothing
     */
    public long sysconf(int name);

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @return nothing
     */
    public StructUtsname uname();

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param pid unused
     * @param status unused
     * @param options unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int waitpid(int pid, int status, int options) throws ErrnoException;

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

    /**
     * Refused by {@link Posix}: nothing a container has.
     *
     * @param fd unused
     * @param buffers unused
     * @param offsets unused
     * @param byteCounts unused
     * @return nothing
     * @throws ErrnoException if it fails
     */
    public int writev(FileDescriptor fd, Object[] buffers, int[] offsets, int[] byteCounts) throws ErrnoException;
}
