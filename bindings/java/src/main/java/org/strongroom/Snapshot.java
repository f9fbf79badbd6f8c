package org.strongroom;

import java.util.ArrayList;
import java.util.List;

/** The whole room at one moment, under a name. */
public final class Snapshot {
    private final long number;
    private final long createdSeconds;
    private final int createdNanos;
    private final boolean automatic;
    private final long exclusive;
    private final String name;

    private Snapshot(String[] fields, int at) {
        number = Long.parseLong(fields[at]);
        createdSeconds = Long.parseLong(fields[at + 1]);
        createdNanos = Integer.parseInt(fields[at + 2]);
        automatic = fields[at + 3].equals("1");
        exclusive = Long.parseLong(fields[at + 4]);
        name = fields[at + 5];
    }

    static List<Snapshot> all(String packed) {
        List<Snapshot> all = new ArrayList<>();
        String[] fields = packed.split("\0", -1);
        for (int at = 0; at + 5 < fields.length; at += 6) {
            all.add(new Snapshot(fields, at));
        }
        return all;
    }

    /**
     * Its number, which is never used again.
     *
     * @return from 1, higher for later ones
     */
    public long number() {
        return number;
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * The moment.
     *
     * @return seconds since 1970
     */
    public long createdSeconds() {
        return createdSeconds;
    }

    /**
     * The part of a second after {@link #createdSeconds}.
     *
     * @return 0 to 999,999,999
     */
    public int createdNanos() {
        return createdNanos;
    }

    /**
     * Whether a policy created it, and may delete it.
     *
     * @return false where a program or a user did
     */
    public boolean isAutomatic() {
        return automatic;
    }

    /**
     * The bytes that it alone holds: deleting it frees as much.
     *
     * @return bytes
     */
    public long exclusive() {
        return exclusive;
    }

    @Override
    public String toString() {
        return name;
    }
}
