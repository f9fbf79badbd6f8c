package org.strongroom;

import java.util.Collections;
import java.util.List;

/** What applying a policy did: {@link Room#applySnapshotPolicy}. */
public final class PolicyReport {
    static final int LENGTH = 2;

    private final Snapshot created;
    private final List<Snapshot> deleted;
    private final long nextDueSeconds;

    PolicyReport(List<Snapshot> all, long[] values) {
        int news = (int) values[0];
        this.created = news == 0 ? null : all.get(0);
        this.deleted = Collections.unmodifiableList(all.subList(news, all.size()));
        this.nextDueSeconds = values[1];
    }

    /**
     * The automatic snapshot that was due.
     *
     * @return the snapshot, or null: none was
     */
    public Snapshot created() {
        return created;
    }

    /**
     * The automatic snapshots that the policy does not keep any more.
     *
     * @return from the oldest; {@link Snapshot#exclusive} is what was freed with each
     */
    public List<Snapshot> deleted() {
        return deleted;
    }

    /**
     * When the next automatic snapshot is due.
     *
     * @return seconds since 1970; -1: the room has no policy
     */
    public long nextDueSeconds() {
        return nextDueSeconds;
    }
}
