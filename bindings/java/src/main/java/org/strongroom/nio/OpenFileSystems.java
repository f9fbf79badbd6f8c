package org.strongroom.nio;

import java.io.IOException;
import java.net.URI;
import java.nio.file.FileSystemAlreadyExistsException;
import java.nio.file.FileSystemNotFoundException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The open file systems of this virtual machine: of rooms, and of their snapshots. */
final class OpenFileSystems {
    private interface Opening {
        RoomFileSystem open() throws IOException;
    }

    private final RoomFileSystemProvider provider;
    /** By URI: the real path of a room's directory, and the name of a snapshot. */
    private final Map<URI, RoomFileSystem> open = new HashMap<>();

    OpenFileSystems(RoomFileSystemProvider provider) {
        this.provider = provider;
    }

    RoomFileSystem open(Path path, Map<String, ?> env) throws IOException {
        Path directory = real(path);
        return add(directory.toString(), Uris.of(directory, null), () -> new Environment(env).open(provider, directory));
    }

    RoomFileSystem openSnapshot(RoomFileSystem room, String name) throws IOException {
        return add(room.directory() + "@" + name, Uris.of(room.directory(), name), () -> room.past(name));
    }

    private synchronized RoomFileSystem add(String called, URI uri, Opening opening) throws IOException {
        RoomFileSystem there = open.get(uri);
        if (there != null && there.isOpen()) {
            throw new FileSystemAlreadyExistsException(called);
        }
        RoomFileSystem fs = opening.open();
        open.put(uri, fs);
        return fs;
    }

    /** Of a room, {@code snapshot} null, or of one of its snapshots. */
    RoomFileSystem get(Path path, String snapshot) {
        Path directory = path;
        try {
            directory = real(path);
        } catch (IOException e) {
            // Then it is not open under another name either.
        }
        synchronized (this) {
            RoomFileSystem fs = open.get(Uris.of(directory, snapshot));
            if (fs == null || !fs.isOpen()) {
                throw new FileSystemNotFoundException(snapshot == null
                        ? "the room is not open: " + directory
                        : "the snapshot is not open: " + directory + "@" + snapshot);
            }
            return fs;
        }
    }

    /** With a room its snapshots are closed. */
    synchronized void closed() {
        open.values().removeIf(fs -> !fs.isOpen());
    }

    /** Of one that does not exist yet: where it will be. */
    private static Path real(Path path) throws IOException {
        Path absolute = path.toAbsolutePath().normalize();
        try {
            return absolute.toRealPath();
        } catch (NoSuchFileException missing) {
            Path parent = absolute.getParent();
            return parent == null ? absolute : parent.toRealPath().resolve(absolute.getFileName());
        }
    }
}
