package info.guardianproject.libcore.io;

/** Attributes of a file. */
public final class StructStat {
    /** Always 0. */
    public final long st_dev;

    /** Inode number. */
    public final long st_ino;

    /** Kind and permission bits. */
    public final int st_mode;

    /** Number of names. */
    public final long st_nlink;

    /** Owner. */
    public final int st_uid;

    /** Group. */
    public final int st_gid;

    /** Number of a device node. */
    public final long st_rdev;

    /** Bytes. */
    public final long st_size;

    /** Last access, seconds since 1970. */
    public final long st_atime;

    /** Last change of data, seconds since 1970. */
    public final long st_mtime;

    /** Last change of attributes, seconds since 1970. */
    public final long st_ctime;

    /** Bytes in which data is kept. */
    public final long st_blksize;

    /** Space, in blocks of 512 bytes. */
    public final long st_blocks;

    StructStat(long st_dev, long st_ino, int st_mode, long st_nlink,
            int st_uid, int st_gid, long st_rdev, long st_size, long st_atime,
            long st_mtime, long st_ctime, long st_blksize, long st_blocks) {
        this.st_dev = st_dev;
        this.st_ino = st_ino;
        this.st_mode = st_mode;
        this.st_nlink = st_nlink;
        this.st_uid = st_uid;
        this.st_gid = st_gid;
        this.st_rdev = st_rdev;
        this.st_size = st_size;
        this.st_atime = st_atime;
        this.st_mtime = st_mtime;
        this.st_ctime = st_ctime;
        this.st_blksize = st_blksize;
        this.st_blocks = st_blocks;
    }
}
