import info.guardianproject.iocipher.File;
import info.guardianproject.iocipher.FileInputStream;
import info.guardianproject.iocipher.FileOutputStream;
import info.guardianproject.iocipher.VirtualFileSystem;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import org.strongroom.nio.RoomFileSystemProvider;

/**
 * How fast a room is from Java, through each of the two faces. What is measured is what crates/embed/examples/ladder.rs says;
 * scripts/bench-bindings.sh runs all languages.
 *
 *     java -cp strongroom.jar:. Ladder nio|iocipher DIRECTORY SOURCE [CALLS]
 */
public final class Ladder {
    private static final int MIB = 1 << 20;
    private static final int[] SIZES = {1 << 20, 512 << 10, 128 << 10, 64 << 10, 8 << 10, 4 << 10, 1 << 10, 256};
    private static final int FILE = 2 * MIB;
    private static final int FILES = 8;

    /** What both faces can. */
    private interface Face extends AutoCloseable {
        /** A new file, written by so many calls of so many bytes, and synced. */
        void write(String path, byte[] data, int size, int calls) throws Exception;

        /** Opens what is read from. */
        void warm(String path) throws Exception;

        int readByte(long at) throws Exception;

        long stat() throws Exception;

        /** Copies a file of the host in by calls of 1 MiB, and syncs it. */
        long copy(Path source, String path) throws Exception;
    }

    private Ladder() {}

    public static void main(String[] arguments) throws Exception {
        int calls = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 200_000;
        byte[] data = new byte[MIB];
        for (int i = 0; i < MIB; i++) {
            data[i] = (byte) (i * 31 % 251);
        }
        Path directory = Path.of(arguments[1]);
        try (Face face = arguments[0].equals("nio") ? new Nio(directory) : new IOCipher(directory)) {
            StringJoiner rungs = new StringJoiner(",");
            for (int size : SIZES) {
                long began = System.nanoTime();
                for (int n = 0; n < FILES; n++) {
                    face.write("/ladder-" + size + "-" + n, data, size, FILE / size);
                }
                rungs.add(String.format(Locale.ROOT, "\"%d\":%.2f", size, rate((long) FILE * FILES, began)));
            }
            face.write("/warm", data, MIB, 1);
            face.warm("/warm");
            int[] place = {1};
            long sum = 0;
            for (int i = 0; i < calls; i++) {
                sum += face.readByte(next(place)) + face.stat();
            }
            long began = System.nanoTime();
            for (int i = 0; i < calls; i++) {
                sum += face.readByte(next(place));
            }
            long call = (System.nanoTime() - began) / Math.max(calls, 1);
            began = System.nanoTime();
            for (int i = 0; i < calls; i++) {
                sum += face.stat();
            }
            long stat = (System.nanoTime() - began) / Math.max(calls, 1);
            began = System.nanoTime();
            double copy = rate(face.copy(Path.of(arguments[2]), "/copy"), began);
            if (sum == 0) {
                throw new AssertionError("nothing was read");
            }
            System.out.printf(Locale.ROOT,
                    "{\"language\":\"java-%s\",\"write_MiB_s\":{%s},\"call_ns\":%d,\"stat_ns\":%d,\"copy_MiB_s\":%.2f}%n",
                    arguments[0], rungs, call, stat, copy);
        }
    }

    private static long next(int[] place) {
        place[0] = place[0] * 1_103_515_245 + 12345;
        return (place[0] >>> 8) % MIB;
    }

    private static double rate(long bytes, long began) {
        return (double) bytes / MIB / Math.max((System.nanoTime() - began) / 1e9, 1e-9);
    }

    private static byte[] key() {
        byte[] key = new byte[32];
        Arrays.fill(key, (byte) 7);
        return key;
    }

    /** Files and channels. */
    private static final class Nio implements Face {
        private final FileSystem room;
        private final ByteBuffer one = ByteBuffer.allocateDirect(1);
        private Path path;
        private FileChannel file;

        Nio(Path directory) throws IOException {
            room = FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), Map.of("key", key(), "createRoom", true));
        }

        private FileChannel create(String name) throws IOException {
            return FileChannel.open(room.getPath(name), StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                    StandardOpenOption.TRUNCATE_EXISTING);
        }

        @Override
        public void write(String name, byte[] data, int size, int calls) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(data, 0, size);
            try (FileChannel out = create(name)) {
                for (int i = 0; i < calls; i++) {
                    buffer.position(0);
                    out.write(buffer);
                }
                out.force(true);
            }
        }

        @Override
        public void warm(String name) throws IOException {
            path = room.getPath(name);
            file = FileChannel.open(path);
        }

        @Override
        public int readByte(long at) throws IOException {
            one.clear();
            file.read(one, at);
            return one.get(0);
        }

        @Override
        public long stat() throws IOException {
            return Files.size(path);
        }

        @Override
        public long copy(Path source, String name) throws IOException {
            ByteBuffer piece = ByteBuffer.allocateDirect(MIB);
            long done = 0;
            try (FileChannel in = FileChannel.open(source); FileChannel out = create(name)) {
                while (in.read(piece) >= 0) {
                    piece.flip();
                    done += out.write(piece);
                    piece.clear();
                }
                out.force(true);
            }
            return done;
        }

        @Override
        public void close() throws IOException {
            file.close();
            room.close();
        }
    }

    /** IOCipher's streams. */
    private static final class IOCipher implements Face {
        private final VirtualFileSystem vfs = VirtualFileSystem.get();
        private final byte[] one = new byte[1];
        private File path;
        private FileInputStream in;

        IOCipher(Path directory) {
            vfs.createNewContainer(directory.toString(), key());
            vfs.mount(key());
        }

        @Override
        public void write(String name, byte[] data, int size, int calls) throws IOException {
            try (FileOutputStream out = new FileOutputStream(name)) {
                for (int i = 0; i < calls; i++) {
                    out.write(data, 0, size);
                }
                out.getFD().sync();
            }
        }

        @Override
        public void warm(String name) throws IOException {
            path = new File(name);
            in = new FileInputStream(path);
        }

        @Override
        public int readByte(long at) throws IOException {
            in.getFD().position = at;
            in.read(one, 0, 1);
            return one[0];
        }

        @Override
        public long stat() {
            return path.length();
        }

        @Override
        public long copy(Path source, String name) throws IOException {
            byte[] piece = new byte[MIB];
            long done = 0;
            try (java.io.FileInputStream from = new java.io.FileInputStream(source.toFile());
                    FileOutputStream out = new FileOutputStream(name)) {
                for (int n = from.read(piece); n >= 0; n = from.read(piece)) {
                    out.write(piece, 0, n);
                    done += n;
                }
                out.getFD().sync();
            }
            return done;
        }

        @Override
        public void close() throws IOException {
            in.close();
            vfs.unmount();
        }
    }
}
