package org.strongroom.nio;

import java.io.IOException;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.ClosedFileSystemException;
import java.nio.file.FileStore;
import java.nio.file.FileSystem;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.nio.file.WatchService;
import java.nio.file.attribute.GroupPrincipal;
import java.nio.file.attribute.UserPrincipal;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.nio.file.attribute.UserPrincipalNotFoundException;
import java.nio.file.spi.FileSystemProvider;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.strongroom.Room;
import org.strongroom.RoomException;

/**
 * An open room as a file system, or one of its snapshots, which reads only. Closing it closes the room; within a transaction that is
 * refused. Closing a snapshot closes nothing else.
 */
public final class RoomFileSystem extends FileSystem {
    static final Set<String> VIEWS = Set.of("basic", "owner", "posix", "user");

    private final RoomFileSystemProvider provider;
    private final Path directory;
    private final String snapshot;
    private final Room room;
    private volatile boolean closed;
    private final boolean readOnly;
    /** By inode. Nobody but this virtual machine has the room open, so nobody else's locks matter. */
    private final Map<Long, List<FileLock>> locks = new HashMap<>();

    /** Of a room {@code snapshot} is null. */
    RoomFileSystem(RoomFileSystemProvider provider, Path directory, String snapshot, Room room, boolean readOnly) {
        this.provider = provider;
        this.directory = directory;
        this.snapshot = snapshot;
        this.room = room;
        this.readOnly = readOnly;
    }

    /**
     * The room: for transactions, keys, extended attributes.
     *
     * @return the open room
     */
    public Room room() {
        return room;
    }

    /**
     * The room as it was in a snapshot, as a file system that reads: {@code Files.walk}, {@code Files.copy} from it, and so on. It is
     * closed with the room. When the snapshot is deleted, its files are not found. Also {@code FileSystems.newFileSystem} with
     * {@link RoomFileSystemProvider#uri(Path, String)}.
     *
     * @param name the snapshot
     * @return the file system of that moment
     * @throws java.nio.file.FileSystemAlreadyExistsException if it is open already
     * @throws IOException if there is no such snapshot
     */
    public RoomFileSystem openSnapshot(String name) throws IOException {
        return provider.openFileSystems().openSnapshot(this, name);
    }

    RoomFileSystem past(String name) throws IOException {
        try {
            return new RoomFileSystem(provider, directory, name, room.openSnapshot(name), true);
        } catch (RoomException e) {
            if (e.kind() == RoomException.Kind.NOT_FOUND) {
                throw (IOException) new NoSuchFileException(directory + "@" + name, null, e.getMessage()).initCause(e);
            }
            throw error(e);
        }
    }

    /** The name of the snapshot that was opened, or null: this is the room. */
    String snapshot() {
        return snapshot;
    }

    /**
     * Where the room is.
     *
     * @return its directory, of the default file system
     */
    public Path directory() {
        return directory;
    }

    @Override
    public FileSystemProvider provider() {
        return provider;
    }

    @Override
    public void close() throws IOException {
        room.close();
        closed = true;
        provider.openFileSystems().closed();
    }

    @Override
    public boolean isOpen() {
        return room.isOpen();
    }

    /** Of a room that was closed otherwise the call itself says so: asking here would be a second one into native code. */
    void checkOpen() {
        if (closed) {
            throw new ClosedFileSystemException();
        }
    }

    @Override
    public boolean isReadOnly() {
        return readOnly;
    }

    @Override
    public String getSeparator() {
        return "/";
    }

    @Override
    public Iterable<Path> getRootDirectories() {
        return List.of(new RoomPath(this, "/"));
    }

    @Override
    public Iterable<FileStore> getFileStores() {
        return List.of(new RoomFileStore(this));
    }

    @Override
    public Set<String> supportedFileAttributeViews() {
        return VIEWS;
    }

    @Override
    public Path getPath(String first, String... more) {
        StringBuilder text = new StringBuilder(first);
        for (String name : more) {
            if (!name.isEmpty()) {
                if (text.length() > 0) {
                    text.append('/');
                }
                text.append(name);
            }
        }
        return new RoomPath(this, text.toString());
    }

    @Override
    public PathMatcher getPathMatcher(String syntaxAndPattern) {
        int cut = syntaxAndPattern.indexOf(':');
        if (cut <= 0) {
            throw new IllegalArgumentException("not of the form syntax:pattern: " + syntaxAndPattern);
        }
        String syntax = syntaxAndPattern.substring(0, cut);
        String rest = syntaxAndPattern.substring(cut + 1);
        Pattern pattern;
        if (syntax.equalsIgnoreCase("glob")) {
            pattern = Pattern.compile(Globs.regex(rest), Pattern.DOTALL);
        } else if (syntax.equalsIgnoreCase("regex")) {
            pattern = Pattern.compile(rest);
        } else {
            throw new UnsupportedOperationException("patterns of the syntax " + syntax);
        }
        return path -> pattern.matcher(path.toString()).matches();
    }

    @Override
    public UserPrincipalLookupService getUserPrincipalLookupService() {
        return new UserPrincipalLookupService() {
            @Override
            public UserPrincipal lookupPrincipalByName(String name) throws IOException {
                return new Principal(number(name));
            }

            @Override
            public GroupPrincipal lookupPrincipalByGroupName(String group) throws IOException {
                return new Principal(number(group));
            }

            private long number(String name) throws IOException {
                if (!name.matches("[0-9]{1,10}") || Long.parseLong(name) > 0xFFFF_FFFFL) {
                    throw new UserPrincipalNotFoundException(name);
                }
                return Long.parseLong(name);
            }
        };
    }

    @Override
    public WatchService newWatchService() {
        throw new UnsupportedOperationException("a room does not report changes: nobody but this program makes any");
    }

    void lock(long inode, FileLock lock) {
        synchronized (locks) {
            List<FileLock> held = locks.computeIfAbsent(inode, n -> new ArrayList<>());
            held.removeIf(other -> !other.isValid());
            if (held.stream().anyMatch(other -> other.overlaps(lock.position(), lock.size()))) {
                throw new OverlappingFileLockException();
            }
            held.add(lock);
        }
    }

    void unlock(long inode, FileLock lock) {
        synchronized (locks) {
            List<FileLock> held = locks.get(inode);
            if (held != null && held.remove(lock) && held.isEmpty()) {
                locks.remove(inode);
            }
        }
    }

    /** An owner or group: a number. Its name depends on the machine that mounts the room. */
    record Principal(long number) implements GroupPrincipal {
        @Override
        public String getName() {
            return Long.toString(number);
        }

        @Override
        public String toString() {
            return getName();
        }

        static long of(UserPrincipal principal) throws IOException {
            if (principal instanceof Principal ours) {
                return ours.number;
            }
            throw new UserPrincipalNotFoundException(principal.getName());
        }
    }

    /** For those who call without a path. */
    IOException error(RoomException e) {
        return Errors.of(e, new RoomPath(this, "/"));
    }
}
