package info.guardianproject.libcore.io;

/** Space of the storage that holds the container. */
public final class StructStatFs {
    /** Bytes of a block. */
    public final long f_bsize;

    /** Blocks of the storage. */
    public final long f_blocks;

    /** Free blocks. */
    public final long f_bfree;

    /** Free blocks that may be used. */
    public final long f_bavail;

    /** Files. */
    public final long f_files;

    /** Files that can be made: no limit is known. */
    public final long f_ffree;

    /** Bytes of a name. */
    public final long f_namemax;

    /** Bytes of a block. */
    public final long f_frsize;

    StructStatFs(org.strongroom.RoomInfo info) {
        f_bsize = 4096;
        f_blocks = info.total() / f_bsize;
        f_bfree = info.free() / f_bsize;
        f_bavail = info.available() / f_bsize;
        f_files = info.files();
        f_ffree = Integer.MAX_VALUE;
        f_namemax = 255;
        f_frsize = f_bsize;
    }
}
