package org.strongroom.nio;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.ClosedFileSystemException;
import java.nio.file.FileSystemAlreadyExistsException;
import java.nio.file.FileSystemNotFoundException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.ReadOnlyFileSystemException;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A snapshot behind java.nio.file. */
class SnapshotFileSystemTest {
    private Path temporary;
    private Path directory;
    private RoomFileSystem fs;

    private static Map<String, Object> key(boolean create) {
        return new HashMap<>(Map.of("key", new byte[32], "createRoom", create));
    }

    @BeforeEach
    void begin() throws IOException {
        temporary = Files.createTempDirectory("strongroom-test").toRealPath();
        directory = temporary.resolve("work@home");
        fs = (RoomFileSystem) FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), key(true));
        Files.createDirectory(fs.getPath("/papers"));
        Files.writeString(fs.getPath("/papers/letter"), "first");
        fs.room().createSnapshot("a monday!");
        Files.writeString(fs.getPath("/papers/letter"), "second");
        Files.writeString(fs.getPath("/papers/new"), "");
    }

    @AfterEach
    void end() throws IOException {
        fs.close();
        try (Stream<Path> all = Files.walk(temporary)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    @Test
    void a_snapshot_is_read_and_copied_from_and_refuses_every_change() throws IOException {
        try (RoomFileSystem past = fs.openSnapshot("a monday!")) {
            Path letter = past.getPath("/papers/letter");
            assertEquals("first", Files.readString(letter));
            try (Stream<Path> all = Files.walk(past.getPath("/"))) {
                assertEquals(List.of("/", "/papers", "/papers/letter"), all.map(Path::toString).toList());
            }
            assertTrue(past.isReadOnly() && !fs.isReadOnly());
            assertEquals(directory + "@a monday!", past.getFileStores().iterator().next().name());
            assertNotEquals(fs.getPath("/papers/letter"), letter);
            assertFalse(Files.isSameFile(fs.getPath("/papers/letter"), letter));
            assertFalse(Files.isWritable(letter));
            assertThrows(ReadOnlyFileSystemException.class, () -> Files.writeString(letter, "x"));
            assertThrows(ReadOnlyFileSystemException.class, () -> Files.delete(letter));
            assertThrows(ReadOnlyFileSystemException.class, () -> Files.createDirectory(past.getPath("/d")));
            assertThrows(ReadOnlyFileSystemException.class, () -> Files.move(letter, fs.getPath("/moved")));
            Files.copy(letter, fs.getPath("/papers/letter"), StandardCopyOption.REPLACE_EXISTING);
            assertEquals("first", Files.readString(fs.getPath("/papers/letter")));
            assertEquals("first", Files.readString(letter));
        }
        assertEquals("first", Files.readString(fs.getPath("/papers/letter")));
    }

    @Test
    void a_snapshot_is_found_by_its_uri_while_it_is_open() throws IOException {
        URI uri = RoomFileSystemProvider.uri(directory, "a monday!");
        assertTrue(uri.toString().endsWith("/work%40home@a%20monday%21"), uri.toString());
        assertThrows(FileSystemNotFoundException.class, () -> FileSystems.getFileSystem(uri));
        try (RoomFileSystem past = (RoomFileSystem) FileSystems.newFileSystem(uri, Map.of())) {
            assertThrows(FileSystemAlreadyExistsException.class, () -> FileSystems.newFileSystem(uri, Map.of()));
            assertThrows(FileSystemAlreadyExistsException.class, () -> fs.openSnapshot("a monday!"));
            assertEquals(past, FileSystems.getFileSystem(uri));
            Path letter = past.getPath("/papers/letter");
            assertEquals(uri + "!/papers/letter", letter.toUri().toString());
            assertEquals(letter, Path.of(letter.toUri()));
            assertEquals("first", Files.readString(Path.of(letter.toUri())));
            assertEquals("second", Files.readString(Path.of(fs.getPath("/papers/letter").toUri())));
        }
        assertThrows(FileSystemNotFoundException.class, () -> FileSystems.getFileSystem(uri));
        fs.openSnapshot("a monday!").close();
    }

    @Test
    void what_is_missing_deleted_or_closed_is_reported_as_that() throws IOException {
        assertTrue(assertThrows(NoSuchFileException.class, () -> fs.openSnapshot("sunday")).getMessage().contains("sunday"));
        RoomFileSystem past = fs.openSnapshot("a monday!");
        fs.room().createSnapshot("tuesday");
        RoomFileSystem other = fs.openSnapshot("tuesday");
        fs.room().deleteSnapshot("tuesday");
        assertThrows(NoSuchFileException.class, () -> Files.readString(other.getPath("/papers/letter")));
        fs.close();
        assertFalse(past.isOpen() || other.isOpen());
        assertThrows(ClosedFileSystemException.class, () -> Files.readString(past.getPath("/papers/letter")));
        URI uri = RoomFileSystemProvider.uri(directory, "a monday!");
        assertThrows(FileSystemNotFoundException.class, () -> FileSystems.newFileSystem(uri, Map.of()));
        fs = (RoomFileSystem) FileSystems.newFileSystem(directory, key(false));
        try (RoomFileSystem again = fs.openSnapshot("a monday!")) {
            assertEquals("first", Files.readString(again.getPath("/papers/letter")));
        }
        past.close();
        assertTrue(fs.isOpen());
    }
}
