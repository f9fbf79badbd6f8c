package info.guardianproject.iocipher;

import java.io.IOException;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.strongroom.Room;
import org.strongroom.RoomFile;

/** The room that is mounted, for the classes of this library. Not part of IOCipher, and nothing for apps. */
public final class Mount {
    /** Threads that used the mounted room and were not detached. */
    private static final Map<Thread, Boolean> ACTIVE = Collections.synchronizedMap(new WeakHashMap<Thread, Boolean>());
    /** The room in which this thread was marked as active. */
    private static final ThreadLocal<Room> MARKED = new ThreadLocal<Room>();

    private static volatile Room room;

    private Mount() {}

    /**
     * The mounted room.
     *
     * @return the room
     * @throws IOException if none is mounted
     */
    public static Room room() throws IOException {
        Room now = room;
        if (now == null) {
            throw new IOException("no container is mounted: call VirtualFileSystem.mount first");
        }
        if (MARKED.get() != now) {
            ACTIVE.put(Thread.currentThread(), Boolean.TRUE);
            MARKED.set(now);
        }
        return now;
    }

    /**
     * The open file behind a descriptor.
     *
     * @param fd the descriptor
     * @return its file
     * @throws IOException if it is not open
     */
    public static RoomFile file(FileDescriptor fd) throws IOException {
        RoomFile file = fd.file;
        if (file == null) {
            throw new IOException("the file is closed, or was never opened");
        }
        if (MARKED.get() != file.room()) {
            room();
        }
        return file;
    }

    /**
     * Opens a file.
     *
     * @param path its path
     * @param flags of {@link RoomFile}
     * @param mode permission bits of a file that is made
     * @return a descriptor at position 0
     * @throws IOException if it cannot be opened
     */
    public static FileDescriptor open(String path, int flags, int mode) throws IOException {
        FileDescriptor fd = new FileDescriptor();
        fd.file = room().openFile(path, flags, mode);
        fd.path = path;
        return fd;
    }

    /**
     * To be called after each change of a file through a descriptor: makes it durable where the file was opened for that.
     *
     * @param fd the descriptor
     * @throws IOException if it is not open, or the storage failed
     */
    public static void changed(FileDescriptor fd) throws IOException {
        if (fd.durable) {
            file(fd).sync();
        }
    }

    /**
     * Closes a file. Closed already: nothing to do.
     *
     * @param fd the descriptor
     */
    public static void close(FileDescriptor fd) {
        RoomFile file = fd.file;
        fd.file = null;
        if (file != null) {
            file.close();
        }
    }

    static Room mounted() {
        return room;
    }

    static void set(Room now) {
        ACTIVE.clear();
        room = now;
    }

    static void detach() {
        ACTIVE.remove(Thread.currentThread());
        MARKED.remove();
    }

    /** How many threads but this one are active. One that ended is not, whether it was detached or not. */
    static int others() {
        int n = 0;
        synchronized (ACTIVE) {
            for (Thread thread : ACTIVE.keySet()) {
                if (thread != Thread.currentThread() && thread.isAlive()) {
                    n++;
                }
            }
        }
        return n;
    }
}
