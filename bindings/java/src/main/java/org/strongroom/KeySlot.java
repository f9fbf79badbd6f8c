package org.strongroom;

/** One of the keys that open a room, without the key. */
public final class KeySlot {
    private final int number;
    private final String kind;
    private final long createdSeconds;
    private final String label;

    KeySlot(int number, String kind, long createdSeconds, String label) {
        this.number = number;
        this.kind = kind;
        this.createdSeconds = createdSeconds;
        this.label = label;
    }

    /**
     * Its number, by which it is changed and removed.
     *
     * @return 0 to 31
     */
    public int number() {
        return number;
    }

    /**
     * Its kind.
     *
     * @return PASSPHRASE, KEY_FILE, RAW_KEY or OTHER
     */
    public String kind() {
        return kind;
    }

    /**
     * When it was made.
     *
     * @return seconds since 1970
     */
    public long createdSeconds() {
        return createdSeconds;
    }

    /**
     * What its owner calls it.
     *
     * @return the label; may be empty
     */
    public String label() {
        return label;
    }
}
