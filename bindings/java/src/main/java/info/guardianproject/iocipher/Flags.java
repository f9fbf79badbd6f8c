package info.guardianproject.iocipher;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.strongroom.RoomFile;

/** How the streams open files. */
final class Flags {
    static final int READ = RoomFile.READ;
    static final int WRITE = RoomFile.WRITE;
    static final int APPEND = RoomFile.APPEND;
    static final int CREATE = RoomFile.CREATE;
    static final int CREATE_NEW = RoomFile.CREATE_NEW;
    static final int TRUNCATE = RoomFile.TRUNCATE;
    /** open(2)'s, for the channel. */
    static final int O_RDONLY = 0;
    static final int O_WRONLY = 1;
    static final int O_RDWR = 2;

    private Flags() {}

    static FileDescriptor open(File file, int flags) throws FileNotFoundException {
        if (file == null) {
            throw new NullPointerException("file == null");
        }
        try {
            return Mount.open(file.getAbsolutePath(), flags, 0600);
        } catch (IOException e) {
            FileNotFoundException missing = new FileNotFoundException(file.getPath() + ": " + e.getMessage());
            missing.initCause(e);
            throw missing;
        }
    }

    /** Reads at the descriptor's position, and moves it. -1 at the end. */
    static int read(FileDescriptor fd, byte[] buffer, int at, int count) throws IOException {
        check(buffer.length, at, count);
        if (count == 0) {
            Mount.file(fd);
            return 0;
        }
        int n = Mount.file(fd).readAt(fd.position, buffer, at, count);
        fd.position += n;
        return n == 0 ? -1 : n;
    }

    /** Writes at the descriptor's position, and moves it. */
    static void write(FileDescriptor fd, byte[] buffer, int at, int count) throws IOException {
        check(buffer.length, at, count);
        fd.position = Mount.file(fd).writeAt(fd.position, buffer, at, count) + count;
        Mount.changed(fd);
    }

    static void check(int whole, int at, int count) {
        if ((at | count) < 0 || at > whole || count > whole - at) {
            throw new ArrayIndexOutOfBoundsException(count + " bytes at " + at + " of an array of " + whole);
        }
    }
}
