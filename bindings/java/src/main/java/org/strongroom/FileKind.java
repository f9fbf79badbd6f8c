package org.strongroom;

/** What kind of file something is. */
public enum FileKind {
    /** A regular file. */
    REGULAR,
    /** A directory. */
    DIRECTORY,
    /** A symbolic link. */
    SYMLINK,
    /** A named pipe. */
    FIFO,
    /** A socket. */
    SOCKET,
    /** A character device. */
    CHARACTER_DEVICE,
    /** A block device. */
    BLOCK_DEVICE;

    private static final FileKind[] ALL = values();

    static FileKind of(long number) {
        return ALL[(int) number];
    }
}
