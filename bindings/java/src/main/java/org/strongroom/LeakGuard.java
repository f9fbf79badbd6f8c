package org.strongroom;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

/** Closes rooms and files that were dropped without being closed, when something else is opened; and all rooms at the end of the JVM. */
final class LeakGuard extends PhantomReference<Object> {
    private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();
    private static final Set<LeakGuard> OPEN = Collections.synchronizedSet(new HashSet<>());

    static {
        Thread hook = new Thread(LeakGuard::end, "strongroom-end");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException ending) {
            // Too late for a hook: a room opened now must be closed by its user, or loses at most what was not synced.
        }
    }

    private final long number;
    private final boolean room;

    private LeakGuard(Object holder, long number, boolean room) {
        super(holder, QUEUE);
        this.number = number;
        this.room = room;
    }

    /** Remembers what `holder` has open. The answer is for {@link #forget}. */
    static LeakGuard watch(Object holder, long number, boolean room) {
        for (Object dropped = QUEUE.poll(); dropped != null; dropped = QUEUE.poll()) {
            ((LeakGuard) dropped).close();
        }
        LeakGuard guard = new LeakGuard(holder, number, room);
        OPEN.add(guard);
        return guard;
    }

    /** Its user closed it. */
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
            // There is no caller left to report to.
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
