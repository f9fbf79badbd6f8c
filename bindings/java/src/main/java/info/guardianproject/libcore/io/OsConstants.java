package info.guardianproject.libcore.io;

import org.strongroom.FileKind;

/** Numbers of open(2), stat(2) and errors, as Linux has them. */
public final class OsConstants {
    /** Mask of how a file is opened. */
    public static final int O_ACCMODE = 3;
    /** Open for reading. */
    public static final int O_RDONLY = 0;
    /** Open for writing. */
    public static final int O_WRONLY = 1;
    /** Open for both. */
    public static final int O_RDWR = 2;
    /** Make it where it is missing. */
    public static final int O_CREAT = 0100;
    /** With O_CREAT: refuse one that is there. */
    public static final int O_EXCL = 0200;
    /** Cut it to nothing. */
    public static final int O_TRUNC = 01000;
    /** Write to its end. */
    public static final int O_APPEND = 02000;
    /** Access: is there. */
    public static final int F_OK = 0;
    /** Access: execute. */
    public static final int X_OK = 1;
    /** Access: write. */
    public static final int W_OK = 2;
    /** Access: read. */
    public static final int R_OK = 4;
    /** Mask of the kind of a file. */
    public static final int S_IFMT = 0170000;
    /** A directory. */
    public static final int S_IFDIR = 0040000;
    /** A regular file. */
    public static final int S_IFREG = 0100000;
    /** A symbolic link. */
    public static final int S_IFLNK = 0120000;
    /** No such file or directory. */
    public static final int ENOENT = 2;
    /** Input/output error. */
    public static final int EIO = 5;
    /** Bad file descriptor. */
    public static final int EBADF = 9;
    /** Permission denied. */
    public static final int EACCES = 13;
    /** Device or resource busy. */
    public static final int EBUSY = 16;
    /** File exists. */
    public static final int EEXIST = 17;
    /** Not a directory. */
    public static final int ENOTDIR = 20;
    /** Is a directory. */
    public static final int EISDIR = 21;
    /** Invalid argument. */
    public static final int EINVAL = 22;
    /** No space left. */
    public static final int ENOSPC = 28;
    /** Read-only file system. */
    public static final int EROFS = 30;
    /** File name too long. */
    public static final int ENAMETOOLONG = 36;
    /** Directory not empty. */
    public static final int ENOTEMPTY = 39;

    private OsConstants() {}

    static int type(FileKind kind) {
        switch (kind) {
            case DIRECTORY:
                return S_IFDIR;
            case SYMLINK:
                return S_IFLNK;
            case FIFO:
                return 0010000;
            case SOCKET:
                return 0140000;
            case CHARACTER_DEVICE:
                return 0020000;
            case BLOCK_DEVICE:
                return 0060000;
            default:
                return S_IFREG;
        }
    }

    static String text(int errno) {
        switch (errno) {
            case 0:
                return "Success";
            case 1:
                return "Operation not permitted";
            case ENOENT:
                return "No such file or directory";
            case EIO:
                return "Input/output error";
            case EBADF:
                return "Bad file descriptor";
            case EACCES:
                return "Permission denied";
            case EBUSY:
                return "Device or resource busy";
            case EEXIST:
                return "File exists";
            case ENOTDIR:
                return "Not a directory";
            case EISDIR:
                return "Is a directory";
            case EINVAL:
                return "Invalid argument";
            case 27:
                return "File too large";
            case ENOSPC:
                return "No space left on device";
            case EROFS:
                return "Read-only file system";
            case 31:
                return "Too many links";
            case ENAMETOOLONG:
                return "File name too long";
            case ENOTEMPTY:
                return "Directory not empty";
            case 40:
                return "Too many levels of symbolic links";
            case 95:
                return "Operation not supported";
            case 116:
                return "Stale file handle";
            default:
                return "Unknown error " + errno;
        }
    }
}
