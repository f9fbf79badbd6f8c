package org.strongroom;

/** Facts about a room, and its space, as they were at one moment. */
public final class RoomInfo {
    static final int LENGTH = 12;

    private final String id;
    private final String suite;
    private final long[] values;

    RoomInfo(String text, long[] values) {
        int cut = text.indexOf('\0');
        this.id = text.substring(0, cut);
        this.suite = text.substring(cut + 1);
        this.values = values;
    }

    /**
     * The room's identity.
     *
     * @return 32 hexadecimal digits
     */
    public String id() {
        return id;
    }

    /**
     * The cipher suite of file data.
     *
     * @return its name
     */
    public String suite() {
        return suite;
    }

    /**
     * Version of the format.
     *
     * @return the version
     */
    public long format() {
        return values[0];
    }

    /**
     * Commits since it was made.
     *
     * @return the number
     */
    public long generation() {
        return values[1];
    }

    /**
     * Rises with each rekey.
     *
     * @return the number
     */
    public long keyEpoch() {
        return values[2];
    }

    /**
     * When it was made.
     *
     * @return seconds since 1970
     */
    public long createdSeconds() {
        return values[3];
    }

    /**
     * Keys that open it.
     *
     * @return the number
     */
    public long keySlots() {
        return values[4];
    }

    /**
     * Segment files.
     *
     * @return the number
     */
    public long segments() {
        return values[5];
    }

    /**
     * Size of the storage that holds the room.
     *
     * @return bytes
     */
    public long total() {
        return values[6];
    }

    /**
     * Free space of that storage.
     *
     * @return bytes
     */
    public long free() {
        return values[7];
    }

    /**
     * Free space that may be used.
     *
     * @return bytes
     */
    public long available() {
        return values[8];
    }

    /**
     * File data in the room.
     *
     * @return bytes
     */
    public long live() {
        return values[9];
    }

    /**
     * What all segments take.
     *
     * @return bytes
     */
    public long stored() {
        return values[10];
    }

    /**
     * Files of any kind.
     *
     * @return the number
     */
    public long files() {
        return values[11];
    }
}
