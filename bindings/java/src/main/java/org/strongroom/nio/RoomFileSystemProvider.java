package org.strongroom.nio;

import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.AccessMode;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.CopyOption;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileStore;
import java.nio.file.FileSystem;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NotLinkException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.ProviderMismatchException;
import java.nio.file.ReadOnlyFileSystemException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.spi.FileSystemProvider;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import org.strongroom.Entry;
import org.strongroom.FileKind;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomFile;
import org.strongroom.Stat;

/** The provider of the scheme {@code strongroom}. Its environment is described with the package. */
public final class RoomFileSystemProvider extends FileSystemProvider {
    private static final int PIECE = 1 << 20;

    private final OpenFileSystems open = new OpenFileSystems(this);

    /** For the service loader. */
    public RoomFileSystemProvider() {}

    /**
     * The URI of a room, for {@code FileSystems.newFileSystem}.
     *
     * @param directory where the room is, or will be
     * @return {@code strongroom:/the/directory}
     */
    public static URI uri(Path directory) {
        return Uris.of(directory.toAbsolutePath().normalize(), null);
    }

    /**
     * The URI of a snapshot, for {@code FileSystems.newFileSystem} with an empty environment, while its room is open.
     *
     * @param directory where the room is
     * @param snapshot the name
     * @return {@code strongroom:/the/directory@monday}
     */
    public static URI uri(Path directory, String snapshot) {
        return Uris.of(directory.toAbsolutePath().normalize(), snapshot);
    }

    @Override
    public String getScheme() {
        return Uris.SCHEME;
    }

    @Override
    public FileSystem newFileSystem(URI uri, Map<String, ?> env) throws IOException {
        Path directory = Uris.directory(uri);
        String snapshot = Uris.snapshot(uri);
        return snapshot == null ? open.open(directory, env) : open.openSnapshot(open.get(directory, null), snapshot);
    }

    @Override
    public FileSystem newFileSystem(Path path, Map<String, ?> env) throws IOException {
        boolean room = path.getFileSystem() == FileSystems.getDefault() && Environment.hasKey(env)
                && (Environment.creates(env) || Files.exists(path.resolve("header.json")));
        if (!room) {
            throw new UnsupportedOperationException("no room, or no passphrase or key for one: " + path);
        }
        return open.open(path, env);
    }

    OpenFileSystems openFileSystems() {
        return open;
    }

    @Override
    public RoomFileSystem getFileSystem(URI uri) {
        return open.get(Uris.directory(uri), Uris.snapshot(uri));
    }

    @Override
    public Path getPath(URI uri) {
        return new RoomPath(getFileSystem(uri), Uris.path(uri));
    }

    private static boolean follows(LinkOption... options) {
        return !Arrays.asList(options).contains(LinkOption.NOFOLLOW_LINKS);
    }

    private static int mode(int usual, FileAttribute<?>... attributes) {
        int mode = usual;
        for (FileAttribute<?> attribute : attributes) {
            if (!attribute.name().equals("posix:permissions")) {
                throw new UnsupportedOperationException("an attribute of a new file: " + attribute.name());
            }
            @SuppressWarnings("unchecked")
            Set<PosixFilePermission> permissions = (Set<PosixFilePermission>) attribute.value();
            mode = Attributes.mode(permissions);
        }
        return mode;
    }

    /** Where a room is read-only, that is what is said, whatever else is wrong. */
    private static RoomPath changing(Path path) {
        RoomPath ours = RoomPath.of(path);
        ours.getFileSystem().checkOpen();
        if (ours.getFileSystem().isReadOnly()) {
            throw new ReadOnlyFileSystemException();
        }
        return ours;
    }

    private static RoomPath asking(Path path) {
        RoomPath ours = RoomPath.of(path);
        ours.getFileSystem().checkOpen();
        return ours;
    }

    @Override
    public SeekableByteChannel newByteChannel(Path path, Set<? extends OpenOption> options, FileAttribute<?>... attributes)
            throws IOException {
        return newFileChannel(path, options, attributes);
    }

    @Override
    public FileChannel newFileChannel(Path path, Set<? extends OpenOption> options, FileAttribute<?>... attributes)
            throws IOException {
        for (OpenOption option : options) {
            if (!(option instanceof StandardOpenOption) && option != LinkOption.NOFOLLOW_LINKS) {
                throw new UnsupportedOperationException("an option for opening: " + option);
            }
        }
        boolean append = options.contains(StandardOpenOption.APPEND);
        boolean write = append || options.contains(StandardOpenOption.WRITE);
        boolean read = options.contains(StandardOpenOption.READ) || !write;
        boolean truncate = write && options.contains(StandardOpenOption.TRUNCATE_EXISTING);
        if (append && read) {
            throw new IllegalArgumentException("READ + APPEND not allowed");
        }
        if (append && truncate) {
            throw new IllegalArgumentException("APPEND + TRUNCATE_EXISTING not allowed");
        }
        int flags = (read ? RoomFile.READ : 0) | (write ? RoomFile.WRITE : 0) | (append ? RoomFile.APPEND : 0)
                | (truncate ? RoomFile.TRUNCATE : 0);
        if (write && options.contains(StandardOpenOption.CREATE_NEW)) {
            flags |= RoomFile.CREATE_NEW;
        } else if (write && options.contains(StandardOpenOption.CREATE)) {
            flags |= RoomFile.CREATE;
        }
        RoomPath ours = write ? changing(path) : asking(path);
        boolean delete = options.contains(StandardOpenOption.DELETE_ON_CLOSE);
        try {
            // What is deleted at the end is the name that was opened, not what a link leads to.
            if (delete || options.contains(LinkOption.NOFOLLOW_LINKS)) {
                Stat stat = ours.room().statIfExists(ours.text(), false);
                if (stat != null && stat.kind() == FileKind.SYMLINK) {
                    throw new FileSystemException(path.toString(), null, "a symbolic link");
                }
            }
            RoomFile file = ours.room().openFile(ours.text(), flags, mode(0644, attributes));
            boolean sync = options.contains(StandardOpenOption.SYNC) || options.contains(StandardOpenOption.DSYNC);
            return new RoomFileChannel(ours, file, sync, delete);
        } catch (RoomException e) {
            throw Errors.of(e, ours);
        }
    }

    @Override
    public DirectoryStream<Path> newDirectoryStream(Path dir, DirectoryStream.Filter<? super Path> filter) throws IOException {
        RoomPath ours = asking(dir);
        List<Path> all = new ArrayList<>();
        try {
            for (Entry entry : ours.room().list(ours.text())) {
                all.add(ours.resolve(entry.name()));
            }
        } catch (RoomException e) {
            throw Errors.of(e, ours);
        }
        return new Listing(all, filter);
    }

    /** The names of one moment. */
    private static final class Listing implements DirectoryStream<Path> {
        private final List<Path> all;
        private final Filter<? super Path> filter;
        private boolean begun;
        private volatile boolean closed;

        Listing(List<Path> all, Filter<? super Path> filter) {
            this.all = all;
            this.filter = filter;
        }

        @Override
        public Iterator<Path> iterator() {
            if (begun || closed) {
                throw new IllegalStateException(closed ? "the stream is closed" : "a stream has one iterator");
            }
            begun = true;
            Iterator<Path> paths = all.iterator();
            return new Iterator<>() {
                private Path next;

                @Override
                public boolean hasNext() {
                    while (next == null && !closed && paths.hasNext()) {
                        Path path = paths.next();
                        try {
                            if (filter == null || filter.accept(path)) {
                                next = path;
                            }
                        } catch (IOException e) {
                            throw new DirectoryIteratorException(e);
                        }
                    }
                    return next != null;
                }

                @Override
                public Path next() {
                    if (!hasNext()) {
                        throw new NoSuchElementException();
                    }
                    Path path = next;
                    next = null;
                    return path;
                }
            };
        }

        @Override
        public void close() {
            closed = true;
        }
    }

    private interface Call {
        void in(Room room) throws IOException;
    }

    private static void change(Path path, Path other, Call call) throws IOException {
        RoomPath ours = changing(path);
        try {
            call.in(ours.room());
        } catch (RoomException e) {
            throw Errors.of(e, ours, other == null ? null : RoomPath.of(other));
        }
    }

    @Override
    public void createDirectory(Path dir, FileAttribute<?>... attributes) throws IOException {
        String text = RoomPath.of(dir).text();
        if (text.equals("/")) {
            throw new FileAlreadyExistsException(text);
        }
        change(dir, null, room -> room.makeDirectory(text, mode(0755, attributes)));
    }

    @Override
    public void createSymbolicLink(Path link, Path target, FileAttribute<?>... attributes) throws IOException {
        if (attributes.length > 0) {
            throw new UnsupportedOperationException("attributes of a symbolic link");
        }
        change(link, null, room -> room.symlink(RoomPath.of(target).toString(), RoomPath.of(link).text()));
    }

    @Override
    public void createLink(Path link, Path existing) throws IOException {
        if (RoomPath.of(existing).getFileSystem() != link.getFileSystem()) {
            throw new ProviderMismatchException("a hard link from one room to another");
        }
        change(existing, link, room -> room.link(RoomPath.of(existing).text(), RoomPath.of(link).text()));
    }

    @Override
    public Path readSymbolicLink(Path link) throws IOException {
        RoomPath ours = asking(link);
        try {
            if (ours.room().stat(ours.text(), false).kind() != FileKind.SYMLINK) {
                throw new NotLinkException(link.toString());
            }
            return new RoomPath(ours.getFileSystem(), ours.room().readLink(ours.text()));
        } catch (RoomException e) {
            throw Errors.of(e, ours);
        }
    }

    @Override
    public void delete(Path path) throws IOException {
        String text = RoomPath.of(path).text();
        change(path, null, room -> {
            if (room.stat(text, false).isDirectory()) {
                room.removeDirectory(text);
            } else {
                room.removeFile(text);
            }
        });
    }

    @Override
    public void copy(Path source, Path target, CopyOption... options) throws IOException {
        List<CopyOption> asked = Arrays.asList(options);
        for (CopyOption option : options) {
            if (option != StandardCopyOption.REPLACE_EXISTING && option != StandardCopyOption.COPY_ATTRIBUTES
                    && option != LinkOption.NOFOLLOW_LINKS) {
                throw new UnsupportedOperationException("an option for copying: " + option);
            }
        }
        boolean follow = !asked.contains(LinkOption.NOFOLLOW_LINKS);
        RoomPath from = asking(source);
        RoomPath to = changing(target);
        Attributes attributes = Views.read(from, follow);
        if (exists(to)) {
            if (same(from, to, follow)) {
                return;
            }
            if (!asked.contains(StandardCopyOption.REPLACE_EXISTING)) {
                throw new FileAlreadyExistsException(target.toString());
            }
            delete(to);
        }
        if (attributes.isDirectory()) {
            createDirectory(to);
        } else if (attributes.isSymbolicLink()) {
            createSymbolicLink(to, new RoomPath(to.getFileSystem(), readSymbolicLink(from).toString()));
        } else {
            try (FileChannel in = newFileChannel(from, Set.of(StandardOpenOption.READ));
                    FileChannel out = newFileChannel(to, Set.of(StandardOpenOption.WRITE, StandardOpenOption.CREATE_NEW))) {
                ByteBuffer piece = ByteBuffer.allocate((int) Math.max(1, Math.min(attributes.size(), PIECE)));
                while (in.read(piece) > 0) {
                    piece.flip();
                    out.write(piece);
                    piece.clear();
                }
            }
        }
        if (asked.contains(StandardCopyOption.COPY_ATTRIBUTES)) {
            copyAttributes(from, attributes, to);
        }
    }

    private static void copyAttributes(RoomPath from, Attributes attributes, RoomPath to) throws IOException {
        Stat stat = attributes.stat();
        boolean link = attributes.isSymbolicLink();
        change(to, null, room -> {
            room.setOwner(to.text(), false, stat.owner(), stat.group());
            if (!link) {
                room.setMode(to.text(), stat.mode());
                for (String name : from.room().xattrNames(from.text())) {
                    room.setXattr(to.text(), name, from.room().xattr(from.text(), name), Room.XattrMode.ANY);
                }
            }
            room.setAccessed(to.text(), false, stat.accessedSeconds(), stat.accessedNanos());
            room.setModified(to.text(), false, stat.modifiedSeconds(), stat.modifiedNanos());
        });
    }

    private static boolean exists(RoomPath path) throws IOException {
        try {
            return path.room().statIfExists(path.text(), false) != null;
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    private static boolean same(RoomPath a, RoomPath b, boolean follow) throws IOException {
        return a.getFileSystem() == b.getFileSystem()
                && Views.read(a, follow).stat().inode() == Views.read(b, follow).stat().inode();
    }

    @Override
    public void move(Path source, Path target, CopyOption... options) throws IOException {
        List<CopyOption> asked = Arrays.asList(options);
        for (CopyOption option : options) {
            if (option != StandardCopyOption.REPLACE_EXISTING && option != StandardCopyOption.ATOMIC_MOVE
                    && option != LinkOption.NOFOLLOW_LINKS) {
                throw new UnsupportedOperationException("an option for moving: " + option);
            }
        }
        RoomPath from = changing(source);
        RoomPath to = changing(target);
        boolean atomic = asked.contains(StandardCopyOption.ATOMIC_MOVE);
        boolean replace = asked.contains(StandardCopyOption.REPLACE_EXISTING);
        if (from.getFileSystem() != to.getFileSystem()) {
            if (atomic) {
                throw new AtomicMoveNotSupportedException(source.toString(), target.toString(), "from one room to another");
            }
            between(from, to, replace);
            return;
        }
        Attributes attributes = Views.read(from, false);
        if (!exists(to)) {
            rename(from, to, Room.RenameMode.REPLACE);
        } else if (!same(from, to, false)) {
            if (!atomic && !replace) {
                throw new FileAlreadyExistsException(target.toString());
            }
            boolean directory = Views.read(to, false).isDirectory();
            if (!atomic && directory != attributes.isDirectory()) {
                // A rename does not replace one kind by the other.
                delete(to);
            }
            rename(from, to, Room.RenameMode.REPLACE);
        }
    }

    private static void rename(RoomPath from, RoomPath to, Room.RenameMode mode) throws IOException {
        change(from, to, room -> room.rename(from.text(), to.text(), mode));
    }

    private void between(RoomPath from, RoomPath to, boolean replace) throws IOException {
        if (Views.read(from, false).isDirectory()) {
            try (DirectoryStream<Path> in = newDirectoryStream(from, null)) {
                if (in.iterator().hasNext()) {
                    throw new DirectoryNotEmptyException(from.toString());
                }
            }
        }
        List<CopyOption> how = new ArrayList<>(List.of(StandardCopyOption.COPY_ATTRIBUTES, LinkOption.NOFOLLOW_LINKS));
        if (replace) {
            how.add(StandardCopyOption.REPLACE_EXISTING);
        }
        copy(from, to, how.toArray(new CopyOption[0]));
        // The two rooms commit for themselves: after a crash it would be in neither.
        change(to, null, Room::sync);
        delete(from);
    }

    @Override
    public boolean isSameFile(Path path, Path path2) throws IOException {
        if (path.equals(path2)) {
            return true;
        }
        return path2 instanceof RoomPath && same(asking(path), asking(path2), true);
    }

    @Override
    public boolean isHidden(Path path) {
        Path name = path.getFileName();
        return name != null && name.toString().startsWith(".");
    }

    @Override
    public FileStore getFileStore(Path path) throws IOException {
        RoomPath ours = asking(path);
        Views.read(ours, true);
        return new RoomFileStore(ours.getFileSystem());
    }

    @Override
    public void checkAccess(Path path, AccessMode... modes) throws IOException {
        RoomPath ours = asking(path);
        Attributes attributes = Views.read(ours, true);
        for (AccessMode mode : modes) {
            boolean refused = mode == AccessMode.WRITE && ours.getFileSystem().isReadOnly()
                    || mode == AccessMode.EXECUTE && !attributes.isDirectory() && (attributes.stat().mode() & 0111) == 0;
            if (refused) {
                throw new java.nio.file.AccessDeniedException(path.toString(), null, "not to " + mode);
            }
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <V extends FileAttributeView> V getFileAttributeView(Path path, Class<V> type, LinkOption... options) {
        return (V) Views.of(RoomPath.of(path), follows(options), type);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <A extends BasicFileAttributes> A readAttributes(Path path, Class<A> type, LinkOption... options) throws IOException {
        if (type != BasicFileAttributes.class && type != PosixFileAttributes.class) {
            throw new UnsupportedOperationException("attributes of the type " + type.getName());
        }
        return (A) Views.read(asking(path), follows(options));
    }

    @Override
    public Map<String, Object> readAttributes(Path path, String attributes, LinkOption... options) throws IOException {
        return Views.named(asking(path), follows(options), attributes);
    }

    @Override
    public void setAttribute(Path path, String attribute, Object value, LinkOption... options) throws IOException {
        Views.set(changing(path), follows(options), attribute, value);
    }
}
