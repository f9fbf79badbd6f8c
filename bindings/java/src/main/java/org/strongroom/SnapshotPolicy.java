package org.strongroom;

/**
 * How many automatic snapshots a room keeps. Of an hour, a day and a week the newest is kept; only those that have one count. Each method
 * with an argument changes the object and returns it.
 *
 * <pre>{@code
 * room.setSnapshotPolicy(new SnapshotPolicy().hourly(24).daily(7).weekly(5).minFreePercent(10));
 * }</pre>
 */
public final class SnapshotPolicy {
    static final int LENGTH = 4;

    /** As the native half has it: hours, days, weeks, percent. */
    final long[] values;

    /** One that keeps nothing yet: {@link Room#setSnapshotPolicy} refuses it so. */
    public SnapshotPolicy() {
        this(new long[LENGTH]);
    }

    SnapshotPolicy(long[] values) {
        this.values = values;
    }

    private SnapshotPolicy set(int at, long value) {
        values[at] = value;
        return this;
    }

    /**
     * Keep one for each of so many hours.
     *
     * @param hours 0 to 4,294,967,295
     * @return this
     */
    public SnapshotPolicy hourly(long hours) {
        return set(0, hours);
    }

    /**
     * Keep one for each of so many days in UTC.
     *
     * @param days 0 to 4,294,967,295
     * @return this
     */
    public SnapshotPolicy daily(long days) {
        return set(1, days);
    }

    /**
     * Keep one for each of so many weeks, from Monday in UTC.
     *
     * @param weeks 0 to 4,294,967,295
     * @return this
     */
    public SnapshotPolicy weekly(long weeks) {
        return set(2, weeks);
    }

    /**
     * With less than this part of the storage free, delete the oldest earlier, and create none.
     *
     * @param percent 0 to 99
     * @return this
     */
    public SnapshotPolicy minFreePercent(int percent) {
        return set(3, percent);
    }

    /**
     * Hours of which one is kept.
     *
     * @return the number
     */
    public long hourly() {
        return values[0];
    }

    /**
     * Days of which one is kept.
     *
     * @return the number
     */
    public long daily() {
        return values[1];
    }

    /**
     * Weeks of which one is kept.
     *
     * @return the number
     */
    public long weekly() {
        return values[2];
    }

    /**
     * The part of the storage that is to be free.
     *
     * @return percent
     */
    public int minFreePercent() {
        return (int) values[3];
    }

    @Override
    public String toString() {
        return "hourly " + values[0] + ", daily " + values[1] + ", weekly " + values[2] + ", min free " + values[3] + " %";
    }
}
