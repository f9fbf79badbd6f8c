package info.guardianproject.libcore.io;

import info.guardianproject.iocipher.FileDescriptor;

/**
 * Calls of POSIX that have nothing to do with files in a container. They were never there: they throw
 * {@link UnsupportedOperationException}.
 */
interface OsRefused {
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
