package info.guardianproject.iocipher;

import java.io.IOException;
import java.io.SyncFailedException;
import org.strongroom.RoomFile;

/** An open file: a path, and a position that everybody may see and set. */
public final class FileDescriptor {
    /** Where the next read or write begins. Bytes from the start. */
    public long position = 0;

    volatile RoomFile file;
    /** Whether each change through it is durable when its call returns: {@code rws} and {@code rwd}. */
    boolean durable;
    String path;

    /** One that is not open. */
    public FileDescriptor() {}

    /**
     * Makes what was written durable.
     *
     * @throws SyncFailedException if it is not open, or the storage failed
     */
    public void sync() throws SyncFailedException {
        try {
            Mount.file(this).sync();
        } catch (IOException e) {
            SyncFailedException failed = new SyncFailedException(e.getMessage());
            failed.initCause(e);
            throw failed;
        }
    }

    /**
     * Whether it is open.
     *
     * @return whether it can be used
     */
    public boolean valid() {
        RoomFile now = file;
        return now != null && now.isOpen();
    }

    @Override
    public String toString() {
        return "FileDescriptor[" + path + "]";
    }
}
