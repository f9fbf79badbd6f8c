package org.strongroom;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

/** What was opened and dropped without being closed is closed when something else is opened; all rooms at the end of the JVM. */
final class Lost extends PhantomReference<Object> {
    private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();
    private static final Set<Lost> OPEN = Collections.synchronizedSet(new HashSet<>());

    static {
        Thread hook = new Thread(Lost::end, "strongroom-end");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException ending) {
            // Too late for a hook: whoever opens a room now closes it, or loses at most what was not synced.
        }
    }

    private final long number;
    private final boolean room;

    private Lost(Object holder, long number, boolean room) {
        super(holder, QUEUE);
        this.number = number;
        this.room = room;
    }

    /** Remembers what `holder` has open. The answer is for {@link #forget}. */
    static Lost watch(Object holder, long number, boolean room) {
        for (Object dropped = QUEUE.poll(); dropped != null; dropped = QUEUE.poll()) {
            ((Lost) dropped).close();
        }
        Lost lost = new Lost(holder, number, room);
        OPEN.add(lost);
        return lost;
    }

    /** It was closed by who had it. */
    void forget() {
        OPEN.remove(this);
        clear();
    }

    private void close() {
        OPEN.remove(this);
        if (!room) {
            Native.closeFile(number);
            return;
        }
        try {
            Native.close(number);
        } catch (RoomBusyException transaction) {
            abandon();
        } catch (RoomException e) {
            // Nobody is left who could be told.
        }
    }

    private void abandon() {
        try {
            Native.abandon(number);
        } catch (RoomException e) {
            // As above.
        }
    }

    private static void end() {
        try {
            Native.end();
        } catch (RoomException e) {
            System.err.println("strongroom: a room was not closed in order at the end: " + e.getMessage());
        }
    }
}
