package org.strongroom.nio;

import java.io.IOException;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.ClosedFileSystemException;
import java.nio.file.FileStore;
import java.nio.file.FileSystem;
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

/** An open room as a file system. Closing it closes the room; within a transaction that is refused. */
public final class RoomFileSystem extends FileSystem {
    static final Set<String> VIEWS = Set.of("basic", "owner", "posix", "user");

    private final RoomFileSystemProvider provider;
    private final Path directory;
    private final Room room;
    private volatile boolean closed;
    private final boolean readOnly;
    /** By inode. Nobody but this virtual machine has the room open, so nobody else's locks matter. */
    private final Map<Long, List<FileLock>> locks = new HashMap<>();

    RoomFileSystem(RoomFileSystemProvider provider, Path directory, Room room, boolean readOnly) {
        this.provider = provider;
        this.directory = directory;
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
        provider.closed(this);
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
