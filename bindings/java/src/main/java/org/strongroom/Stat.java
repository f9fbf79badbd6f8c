package org.strongroom;

/** Attributes of a file, as they were at one moment. Times are seconds since 1970 and nanoseconds (0 to 999,999,999). */
public final class Stat {
    /** Longs that the native half fills. */
    static final int LENGTH = 17;

    private final long[] values;

    Stat(long[] values) {
        this.values = values;
    }

    /**
     * The inode number: what two names of one file share.
     *
     * @return the number
     */
    public long inode() {
        return values[0];
    }

    /**
     * What it is.
     *
     * @return the kind
     */
    public FileKind kind() {
        return FileKind.of(values[1]);
    }

    /**
     * Whether it is a directory.
     *
     * @return whether it is
     */
    public boolean isDirectory() {
        return kind() == FileKind.DIRECTORY;
    }

    /**
     * Permission bits with set-id and sticky.
     *
     * @return 0 to 07777
     */
    public int mode() {
        return (int) values[2];
    }

    /**
     * The owner's number.
     *
     * @return 0 to 2^32 - 1
     */
    public long owner() {
        return values[3];
    }

    /**
     * The group's number.
     *
     * @return 0 to 2^32 - 1
     */
    public long group() {
        return values[4];
    }

    /**
     * Number of names; of a directory 2 and one for each directory in it.
     *
     * @return the number; 0 of a file that is only open any more
     */
    public long links() {
        return values[5];
    }

    /**
     * Length.
     *
     * @return bytes
     */
    public long size() {
        return values[6];
    }

    /**
     * Space that its data takes.
     *
     * @return blocks of 4096 bytes
     */
    public long blocks() {
        return values[7];
    }

    /**
     * Number of a device node.
     *
     * @return the number, as makedev(3) makes it
     */
    public long device() {
        return values[8];
    }

    /**
     * Time of last access.
     *
     * @return seconds since 1970
     */
    public long accessedSeconds() {
        return values[9];
    }

    /**
     * Time of last access, below the second.
     *
     * @return nanoseconds
     */
    public int accessedNanos() {
        return (int) values[10];
    }

    /**
     * Time of last change of data.
     *
     * @return seconds since 1970
     */
    public long modifiedSeconds() {
        return values[11];
    }

    /**
     * Time of last change of data, below the second.
     *
     * @return nanoseconds
     */
    public int modifiedNanos() {
        return (int) values[12];
    }

    /**
     * Time of last change of attributes.
     *
     * @return seconds since 1970
     */
    public long changedSeconds() {
        return values[13];
    }

    /**
     * Time of last change of attributes, below the second.
     *
     * @return nanoseconds
     */
    public int changedNanos() {
        return (int) values[14];
    }

    /**
     * Time of birth.
     *
     * @return seconds since 1970
     */
    public long createdSeconds() {
        return values[15];
    }

    /**
     * Time of birth, below the second.
     *
     * @return nanoseconds
     */
    public int createdNanos() {
        return (int) values[16];
    }
}
