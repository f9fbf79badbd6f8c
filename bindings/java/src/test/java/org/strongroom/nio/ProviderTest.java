package org.strongroom.nio;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.NonReadableChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessMode;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.ClosedFileSystemException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystem;
import java.nio.file.FileSystemAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystemNotFoundException;
import java.nio.file.FileSystems;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.NotLinkException;
import java.nio.file.Path;
import java.nio.file.ProviderMismatchException;
import java.nio.file.ReadOnlyFileSystemException;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileOwnerAttributeView;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.nio.file.attribute.UserPrincipalNotFoundException;
import java.time.Instant;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.strongroom.WrongKeyException;

/** A room behind java.nio.file. */
class ProviderTest {
    private Path temporary;
    private Path directory;
    private FileSystem fs;

    private static Map<String, Object> key(Object... more) {
        Map<String, Object> env = new HashMap<>(Map.of("key", new byte[32]));
        for (int i = 0; i < more.length; i += 2) {
            env.put((String) more[i], more[i + 1]);
        }
        return env;
    }

    @BeforeEach
    void begin() throws IOException {
        temporary = Files.createTempDirectory("strongroom-test").toRealPath();
        directory = temporary.resolve("a room!");
        fs = FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), key("createRoom", true));
    }

    @AfterEach
    void end() throws IOException {
        fs.close();
        try (Stream<Path> all = Files.walk(temporary)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    private Path at(String path) {
        return fs.getPath(path);
    }

    private static Set<String> names(Path dir) throws IOException {
        try (Stream<Path> all = Files.list(dir)) {
            return all.map(path -> path.getFileName().toString()).collect(Collectors.toCollection(TreeSet::new));
        }
    }

    @Test
    void a_room_is_opened_by_path_and_uri_and_is_one_file_system() throws IOException {
        Files.writeString(at("/f"), "x");
        assertThrows(FileSystemAlreadyExistsException.class,
                () -> FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), key()));
        assertEquals(fs, FileSystems.getFileSystem(RoomFileSystemProvider.uri(directory)));
        URI uri = at("/dir/a !%ä").toUri();
        assertEquals("strongroom", uri.getScheme());
        assertTrue(uri.toString().endsWith("/a%20room%21!/dir/a%20%21%25%C3%A4"), uri.toString());
        assertEquals(at("/dir/a !%ä"), Path.of(uri));
        assertEquals(at("/a\uDCFFb"), Path.of(at("/a\uDCFFb").toUri()));
        fs.close();
        assertFalse(fs.isOpen());
        assertThrows(FileSystemNotFoundException.class, () -> Path.of(uri));
        fs = FileSystems.newFileSystem(directory, key());
        assertEquals("x", Files.readString(at("f")));
        assertEquals(List.of(at("/")), List.copyOf((java.util.Collection<Path>) fs.getRootDirectories()));
    }

    @Test
    void what_opens_a_room_is_overwritten_and_wrong_things_are_refused() throws IOException {
        fs.close();
        byte[] key = new byte[32];
        key[5] = 1;
        Map<String, Object> wrong = Map.of("key", key);
        assertThrows(WrongKeyException.class, () -> FileSystems.newFileSystem(directory, wrong));
        assertArrayEquals(new byte[32], key);
        assertThrows(IllegalArgumentException.class, () -> FileSystems.newFileSystem(directory, Map.of("passphrase", "a string")));
        assertThrows(IllegalArgumentException.class, () -> FileSystems.newFileSystem(directory, key("passphrase", new char[1])));
        assertThrows(IllegalArgumentException.class,
                () -> FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), Map.of()));
        Path other = temporary.resolve("other");
        assertThrows(IOException.class, () -> FileSystems.newFileSystem(RoomFileSystemProvider.uri(other), key()));
        assertThrows(FileAlreadyExistsException.class,
                () -> FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory), key("createRoom", true)));
        char[] passphrase = "pass\u00FCrase".toCharArray();
        FileSystems.newFileSystem(RoomFileSystemProvider.uri(other), Map.of("passphrase", passphrase, "createRoom", true, "argon2",
                new int[] {8192, 1, 1}, "commitInterval", 0, "stateDirectory", temporary.resolve("state"))).close();
        assertArrayEquals(new char[9], passphrase);
        FileSystems.newFileSystem(other, Map.of("passphrase", "pass\u00FCrase".getBytes(StandardCharsets.UTF_8), "stateDirectory",
                temporary.resolve("state"))).close();
    }

    @Test
    void files_are_written_read_copied_and_walked() throws IOException {
        byte[] bytes = new byte[3_000_000];
        new Random(1).nextBytes(bytes);
        Path host = temporary.resolve("host");
        Files.write(host, bytes);
        Files.createDirectories(at("/a/b/c"));
        Files.copy(host, at("/a/b/f"));
        assertArrayEquals(bytes, Files.readAllBytes(at("/a/b/f")));
        assertEquals(-1, Files.mismatch(host, at("/a/b/f")));
        Files.copy(at("/a/b/f"), at("/a/g"));
        Files.copy(at("/a/g"), temporary.resolve("back"));
        assertEquals(-1, Files.mismatch(host, temporary.resolve("back")));
        Files.move(temporary.resolve("back"), at("/moved in"));
        assertEquals(bytes.length, Files.size(at("/moved in")));
        Files.writeString(at("/a/text"), "one\ntwo\n");
        Files.writeString(at("/a/text"), "three\n", StandardOpenOption.APPEND);
        assertEquals(List.of("one", "two", "three"), Files.readAllLines(at("/a/text")));
        try (Stream<Path> all = Files.walk(at("/a"))) {
            assertEquals(Set.of("/a", "/a/b", "/a/b/c", "/a/b/f", "/a/g", "/a/text"),
                    all.map(Path::toString).collect(Collectors.toSet()));
        }
        try (Stream<Path> found = Files.find(at("/"), 9, (path, attributes) -> attributes.size() > 1000 && attributes.isRegularFile())) {
            assertEquals(3, found.count());
        }
        Files.walkFileTree(at("/a"), new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path dir, IOException e) throws IOException {
                Files.delete(dir);
                return FileVisitResult.CONTINUE;
            }
        });
        assertEquals(Set.of("moved in"), names(at("/")));
    }

    @Test
    void temporary_files_and_directories_are_made() throws IOException {
        Path file = Files.createTempFile(at("/"), "pre", ".suf");
        assertEquals(0, Files.size(file));
        Path dir = Files.createTempDirectory(at("/"), "dir");
        assertTrue(Files.isDirectory(dir));
        assertNotEquals(file, Files.createTempFile(at("/"), "pre", ".suf"));
        Path made = Files.createFile(at("/private"), PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(made)));
        Files.createDirectory(at("/pd"), PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx--x---")));
        assertEquals("rwx--x---", PosixFilePermissions.toString(Files.getPosixFilePermissions(at("/pd"))));
    }

    @Test
    void errors_are_those_of_java_nio_file() throws IOException {
        Files.createDirectories(at("/d/e"));
        Files.writeString(at("/f"), "x");
        assertThrows(NoSuchFileException.class, () -> Files.readString(at("/x")));
        assertThrows(NoSuchFileException.class, () -> Files.size(at("/x")));
        assertThrows(NoSuchFileException.class, () -> Files.delete(at("/x")));
        assertThrows(NoSuchFileException.class, () -> Files.createDirectory(at("/x/y")));
        assertThrows(NoSuchFileException.class, () -> Files.writeString(at("/x/y"), "z"));
        assertThrows(NoSuchFileException.class, () -> Files.copy(at("/x"), at("/y")));
        assertThrows(NoSuchFileException.class, () -> Files.move(at("/x"), at("/y")));
        assertThrows(NoSuchFileException.class, () -> at("/x").toRealPath());
        assertThrows(NoSuchFileException.class, () -> fs.provider().checkAccess(at("/x"), AccessMode.READ));
        assertThrows(FileAlreadyExistsException.class, () -> Files.createDirectory(at("/d")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.createDirectory(at("/")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.createFile(at("/f")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.copy(at("/f"), at("/d")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.move(at("/f"), at("/d")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.createSymbolicLink(at("/f"), at("d")));
        assertThrows(FileAlreadyExistsException.class, () -> Files.createLink(at("/d/e"), at("/f")));
        assertThrows(DirectoryNotEmptyException.class, () -> Files.delete(at("/d")));
        assertThrows(DirectoryNotEmptyException.class, () -> Files.copy(at("/f"), at("/d"), StandardCopyOption.REPLACE_EXISTING));
        assertThrows(DirectoryNotEmptyException.class, () -> Files.move(at("/f"), at("/d"), StandardCopyOption.REPLACE_EXISTING));
        assertThrows(NotDirectoryException.class, () -> Files.newDirectoryStream(at("/f")));
        assertThrows(NotLinkException.class, () -> Files.readSymbolicLink(at("/f")));
        assertThrows(FileSystemException.class, () -> Files.newByteChannel(at("/d")));
        assertThrows(InvalidPathException.class, () -> at("/a\0b"));
        assertThrows(ProviderMismatchException.class, () -> fs.provider().delete(Path.of("/tmp")));
        assertThrows(IllegalArgumentException.class,
                () -> Files.newByteChannel(at("/f"), StandardOpenOption.READ, StandardOpenOption.APPEND));
        assertThrows(IllegalArgumentException.class,
                () -> Files.newByteChannel(at("/f"), StandardOpenOption.APPEND, StandardOpenOption.TRUNCATE_EXISTING));
        assertThrows(UnsupportedOperationException.class, () -> fs.newWatchService());
        try (var watcher = FileSystems.getDefault().newWatchService()) {
            assertThrows(UnsupportedOperationException.class,
                    () -> at("/d").register(watcher, StandardWatchEventKinds.ENTRY_CREATE));
        }
        assertEquals("x", Files.readString(at("/f")));
        assertEquals("/x", assertThrows(NoSuchFileException.class, () -> Files.size(at("/x"))).getFile());
    }

    @Test
    void copy_and_move_do_what_their_options_say() throws IOException {
        Files.writeString(at("/f"), "f");
        Files.writeString(at("/g"), "g");
        Files.createSymbolicLink(at("/l"), at("f"));
        Files.createDirectories(at("/full/in"));
        Files.createDirectory(at("/empty"));
        Files.setLastModifiedTime(at("/f"), FileTime.from(Instant.ofEpochSecond(1000, 5)));
        Files.setPosixFilePermissions(at("/f"), PosixFilePermissions.fromString("r-x-w---x"));
        Files.copy(at("/f"), at("/f"));
        Files.copy(at("/f"), at("/g"), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.COPY_ATTRIBUTES);
        assertEquals("f", Files.readString(at("/g")));
        assertEquals(Instant.ofEpochSecond(1000, 5), Files.getLastModifiedTime(at("/g")).toInstant());
        assertEquals("r-x-w---x", PosixFilePermissions.toString(Files.getPosixFilePermissions(at("/g"))));
        Files.copy(at("/l"), at("/l2"), LinkOption.NOFOLLOW_LINKS);
        assertEquals(at("f"), Files.readSymbolicLink(at("/l2")));
        Files.copy(at("/l"), at("/c"));
        assertTrue(Files.isRegularFile(at("/c"), LinkOption.NOFOLLOW_LINKS));
        Files.copy(at("/full"), at("/full2"));
        assertEquals(Set.of(), names(at("/full2")));
        assertThrows(UnsupportedOperationException.class, () -> Files.copy(at("/f"), at("/n"), StandardCopyOption.ATOMIC_MOVE));
        assertThrows(UnsupportedOperationException.class, () -> Files.move(at("/f"), at("/n"), StandardCopyOption.COPY_ATTRIBUTES));
        Files.move(at("/full"), at("/empty"), StandardCopyOption.REPLACE_EXISTING);
        assertEquals(Set.of("in"), names(at("/empty")));
        Files.move(at("/g"), at("/full2"), StandardCopyOption.REPLACE_EXISTING);
        assertTrue(Files.isRegularFile(at("/full2")));
        Files.move(at("/c"), at("/f"), StandardCopyOption.ATOMIC_MOVE);
        Files.move(at("/f"), at("/f"));
        Files.move(at("/l"), at("/l3"));
        assertTrue(Files.isSymbolicLink(at("/l3")));
        assertEquals(Set.of("f", "l2", "l3", "empty", "full2"), names(at("/")));
    }

    /** What failed: after a crash a file that was moved could be in neither room, and its extended attributes were always lost. */
    @Test
    void what_moves_to_another_room_is_durable_there_before_it_is_gone_here() throws IOException {
        Path second = temporary.resolve("second");
        Path killed = temporary.resolve("killed");
        try (FileSystem other = FileSystems.newFileSystem(RoomFileSystemProvider.uri(second), key("createRoom", true, "commitInterval", 0))) {
            Files.writeString(at("/f"), "x");
            Files.setAttribute(at("/f"), "user:note", ByteBuffer.wrap(new byte[] {7}));
            Files.move(at("/f"), other.getPath("/f"));
            assertFalse(Files.exists(at("/f")));
            try (Stream<Path> all = Files.walk(second)) {
                for (Path file : all.collect(Collectors.toList())) {
                    if (Files.isDirectory(file) || Files.isRegularFile(file)) {
                        Files.copy(file, killed.resolve(second.relativize(file)));
                    }
                }
            }
        }
        try (FileSystem after = FileSystems.newFileSystem(RoomFileSystemProvider.uri(killed), key("acceptRollback", true))) {
            assertEquals("x", Files.readString(after.getPath("/f")));
            assertArrayEquals(new byte[] {7}, (byte[]) Files.getAttribute(after.getPath("/f"), "user:note"));
        }
    }

    @Test
    void files_move_and_copy_between_two_rooms() throws IOException {
        Path second = temporary.resolve("second");
        try (FileSystem other = FileSystems.newFileSystem(RoomFileSystemProvider.uri(second), key("createRoom", true))) {
            Files.writeString(at("/f"), "x");
            Files.createDirectories(at("/d/e"));
            Files.copy(at("/f"), other.getPath("/copy"));
            assertThrows(AtomicMoveNotSupportedException.class,
                    () -> Files.move(at("/f"), other.getPath("/f"), StandardCopyOption.ATOMIC_MOVE));
            Files.move(at("/f"), other.getPath("/f"));
            assertThrows(DirectoryNotEmptyException.class, () -> Files.move(at("/d"), other.getPath("/d")));
            Files.move(at("/d/e"), other.getPath("/e"));
            assertEquals(Set.of("copy", "f", "e"), names(other.getPath("/")));
            assertEquals(Set.of("d"), names(at("/")));
            assertFalse(Files.isSameFile(at("/d"), other.getPath("/e")));
            assertThrows(ProviderMismatchException.class, () -> Files.createLink(other.getPath("/l"), at("/d")));
        }
    }

    @Test
    void attributes_are_read_and_set_by_every_view() throws IOException {
        Path f = Files.writeString(at("/f"), "12345");
        BasicFileAttributes basic = Files.readAttributes(f, BasicFileAttributes.class);
        assertTrue(basic.isRegularFile() && !basic.isDirectory() && !basic.isSymbolicLink() && !basic.isOther());
        assertEquals(5, basic.size());
        assertTrue(basic.creationTime().toMillis() > 1_600_000_000_000L);
        Files.getFileAttributeView(f, BasicFileAttributeView.class).setTimes(FileTime.from(Instant.ofEpochSecond(-1, 7)),
                FileTime.fromMillis(5), null);
        assertEquals(Instant.ofEpochSecond(-1, 7), Files.getLastModifiedTime(f).toInstant());
        assertEquals(FileTime.fromMillis(5), Files.getAttribute(f, "lastAccessTime"));
        Files.setPosixFilePermissions(f, PosixFilePermissions.fromString("rwxr-x--x"));
        PosixFileAttributeView posix = Files.getFileAttributeView(f, PosixFileAttributeView.class);
        assertEquals("rwxr-x--x", PosixFilePermissions.toString(posix.readAttributes().permissions()));
        assertEquals("posix", posix.name());
        var lookup = fs.getUserPrincipalLookupService();
        Files.setOwner(f, lookup.lookupPrincipalByName("1234"));
        posix.setGroup(lookup.lookupPrincipalByGroupName("77"));
        assertEquals("1234", Files.getOwner(f).getName());
        assertEquals("77", posix.readAttributes().group().getName());
        assertEquals("1234", Files.getFileAttributeView(f, FileOwnerAttributeView.class).getOwner().toString());
        assertThrows(UserPrincipalNotFoundException.class, () -> lookup.lookupPrincipalByName("nobody"));
        assertEquals(Set.of("size", "permissions"), Files.readAttributes(f, "posix:size,permissions").keySet());
        assertEquals(9, Files.readAttributes(f, "*").size());
        assertEquals(12, Files.readAttributes(f, "posix:*").size());
        assertThrows(IllegalArgumentException.class, () -> Files.readAttributes(f, "nothing"));
        assertThrows(UnsupportedOperationException.class, () -> Files.readAttributes(f, "dos:*"));
        Files.setAttribute(f, "posix:permissions", PosixFilePermissions.fromString("rw-r--r--"));
        Files.setAttribute(f, "lastModifiedTime", FileTime.fromMillis(99));
        assertEquals(99, Files.getLastModifiedTime(f).toMillis());
        assertThrows(IllegalArgumentException.class, () -> Files.setAttribute(f, "size", 3L));
        Files.setAttribute(f, "user:tag", "value".getBytes());
        UserDefinedFileAttributeView user = Files.getFileAttributeView(f, UserDefinedFileAttributeView.class);
        assertEquals(List.of("tag"), user.list());
        assertEquals(5, user.size("tag"));
        ByteBuffer value = ByteBuffer.allocate(9);
        assertEquals(5, user.read("tag", value));
        assertArrayEquals("value".getBytes(), (byte[]) Files.getAttribute(f, "user:tag"));
        user.delete("tag");
        assertEquals(List.of(), user.list());
        assertNull(Files.getFileAttributeView(f, java.nio.file.attribute.DosFileAttributeView.class));
        assertTrue(Files.isReadable(f) && Files.isWritable(f) && !Files.isExecutable(f) && Files.isExecutable(at("/")));
        assertTrue(Files.isHidden(at("/.x")) && !Files.isHidden(f) && !Files.isHidden(at("/")));
    }

    @Test
    void links_lead_where_they_say() throws IOException {
        Files.createDirectories(at("/d/e"));
        Files.writeString(at("/d/f"), "x");
        Files.createSymbolicLink(at("/s"), at("d"));
        Files.createSymbolicLink(at("/gone"), at("nowhere"));
        Files.createLink(at("/h"), at("/d/f"));
        assertEquals("x", Files.readString(at("/s/f")));
        assertEquals(at("/d/f"), at("/s/e/../f").toRealPath());
        assertEquals(at("/s"), at("/s").toRealPath(LinkOption.NOFOLLOW_LINKS));
        assertEquals(at("/d/f"), at("/s/f").toRealPath(LinkOption.NOFOLLOW_LINKS));
        assertTrue(Files.isSameFile(at("/h"), at("/s/f")));
        assertFalse(Files.isSameFile(at("/h"), at("/d")));
        assertEquals(2, ((org.strongroom.nio.RoomFileSystem) fs).room().stat("/h", true).links());
        assertFalse(Files.exists(at("/gone")));
        assertTrue(Files.exists(at("/gone"), LinkOption.NOFOLLOW_LINKS));
        Files.newByteChannel(at("/h"), Set.of(LinkOption.NOFOLLOW_LINKS)).close();
        Files.createSymbolicLink(at("/tof"), at("h"));
        assertThrows(FileSystemException.class, () -> Files.newByteChannel(at("/tof"), Set.of(LinkOption.NOFOLLOW_LINKS)));
        Files.delete(at("/s"));
        assertTrue(Files.exists(at("/d/f")));
        Files.createSymbolicLink(at("/loop"), at("loop"));
        assertThrows(FileSystemException.class, () -> Files.readString(at("/loop")));
    }

    @Test
    void channels_keep_the_rules_of_channels() throws IOException {
        try (FileChannel c = FileChannel.open(at("/f"), StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.READ)) {
            assertEquals(6, c.write(new ByteBuffer[] {ByteBuffer.wrap("abc".getBytes()), ByteBuffer.wrap("def".getBytes())}));
            ByteBuffer direct = ByteBuffer.allocateDirect(4);
            assertEquals(4, c.read(direct, 1));
            assertEquals('b', direct.get(0));
            ByteBuffer[] two = {ByteBuffer.allocate(2), ByteBuffer.allocate(100)};
            assertEquals(6, c.position(0).read(two));
            assertEquals(-1, c.read(ByteBuffer.allocate(1)));
            assertEquals(0, c.read(ByteBuffer.allocate(0)));
            assertEquals(3, c.write(ByteBuffer.wrap("xyz".getBytes()).asReadOnlyBuffer(), 10));
            assertEquals(13, c.size());
            c.position(13).truncate(5);
            assertEquals(5, c.position());
            c.truncate(100);
            assertEquals(5, c.size());
            ByteBuffer slice = ByteBuffer.wrap("..hello..".getBytes(), 2, 5).slice();
            c.write(slice, 0);
            Path out = temporary.resolve("out");
            try (FileChannel host = FileChannel.open(out, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                assertEquals(4, c.transferTo(1, 100, host));
                assertEquals("ello", Files.readString(out));
                assertEquals(2, c.transferFrom(host.position(0), 5, 2));
                assertEquals(0, c.transferFrom(host, 1000, 2));
            }
            assertEquals("helloel", Files.readString(at("/f")));
            c.force(true);
            assertThrows(UnsupportedOperationException.class, () -> c.map(FileChannel.MapMode.READ_ONLY, 0, 1));
            assertThrows(IllegalArgumentException.class, () -> c.read(ByteBuffer.allocate(1).asReadOnlyBuffer()));
            assertThrows(IllegalArgumentException.class, () -> c.read(ByteBuffer.allocate(1), -1));
            FileLock lock = c.lock(0, 10, false);
            assertThrows(OverlappingFileLockException.class, () -> c.tryLock(5, 10, true));
            c.tryLock(10, 5, true).release();
            lock.release();
            assertFalse(lock.isValid());
            c.lock();
        }
        try (FileChannel again = FileChannel.open(at("/f"), StandardOpenOption.WRITE)) {
            again.lock().release();
            assertThrows(NonReadableChannelException.class, () -> again.read(ByteBuffer.allocate(1)));
            assertThrows(NonReadableChannelException.class, () -> again.tryLock(0, 1, true));
        }
        FileChannel reader = FileChannel.open(at("/f"));
        assertThrows(NonWritableChannelException.class, () -> reader.write(ByteBuffer.allocate(1)));
        assertThrows(NonWritableChannelException.class, () -> reader.truncate(0));
        reader.close();
        assertThrows(ClosedChannelException.class, () -> reader.read(ByteBuffer.allocate(1)));
        assertThrows(ClosedChannelException.class, reader::size);
        try (FileChannel temp = FileChannel.open(at("/t"), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE,
                StandardOpenOption.DELETE_ON_CLOSE, StandardOpenOption.SYNC)) {
            temp.write(ByteBuffer.allocate(10));
        }
        assertFalse(Files.exists(at("/t")));
    }

    @Test
    void directories_are_listed_with_filters_and_globs() throws IOException {
        for (String name : List.of("a.txt", "b.txt", "c.md", "a[1]", "a1")) {
            Files.createFile(at("/" + name));
        }
        try (DirectoryStream<Path> some = Files.newDirectoryStream(at("/"), "*.{txt,md}")) {
            assertEquals(Set.of("/a.txt", "/b.txt", "/c.md"),
                    new TreeSet<>(java.util.stream.StreamSupport.stream(some.spliterator(), false).map(Path::toString).toList()));
            assertThrows(IllegalStateException.class, some::iterator);
        }
        DirectoryStream<Path> closed = Files.newDirectoryStream(at("/"));
        closed.close();
        assertThrows(IllegalStateException.class, closed::iterator);
        Object[][] cases = {
            {"glob:*.java", "a.java", true}, {"glob:*.java", "d/a.java", false}, {"glob:**.java", "d/a.java", true},
            {"glob:a[1]", "a1", true}, {"glob:a[1]", "a[1]", false}, {"glob:a\\[1\\]", "a[1]", true}, {"glob:[!a-c]x", "dx", true},
            {"glob:[!a-c]x", "bx", false}, {"glob:?", "a", true}, {"glob:?", "/", false}, {"glob:{a,b?}c", "bxc", true},
            {"glob:{a,b?}c", "bc", false}, {"glob:[*]", "*", true}, {"glob:[*]", "x", false}, {"glob:[!x]", "/", false},
            {"regex:a+", "aaa", true}, {"regex:a+", "b", false}, {"glob:a.b", "axb", false}, {"glob:[a^]", "^", true}
        };
        for (Object[] c : cases) {
            assertEquals(c[2], fs.getPathMatcher((String) c[0]).matches(at((String) c[1])), c[0] + " " + c[1]);
        }
        for (String bad : List.of("glob:{a", "glob:[a", "glob:{a{b}}", "glob:\\", "glob:[c-a]", "regex:(")) {
            assertThrows(java.util.regex.PatternSyntaxException.class, () -> fs.getPathMatcher(bad), bad);
        }
        assertThrows(IllegalArgumentException.class, () -> fs.getPathMatcher("*"));
        assertThrows(UnsupportedOperationException.class, () -> fs.getPathMatcher("sql:*"));
    }

    /** The default file system of this machine is a POSIX one too: what it says of a path, ours says. */
    @Test
    void paths_are_as_the_paths_of_the_host() {
        List<String> all = List.of("", "/", "a", "/a", "a/b", "/a/b/c", "..", "../a", "/..", "/../a", "a/../b", "./a", "a/./b/", "//a//b//",
                "/a/..", "a/..", "../..", "/a/b/../../..", "a b", ".", "a/.");
        for (String text : all) {
            Path ours = at(text);
            Path host = Path.of(text);
            assertEquals(host.toString(), ours.toString());
            assertEquals(host.getNameCount(), ours.getNameCount(), text);
            assertEquals(String.valueOf(host.getParent()), String.valueOf(ours.getParent()), text);
            assertEquals(String.valueOf(host.getFileName()), String.valueOf(ours.getFileName()), text);
            assertEquals(String.valueOf(host.getRoot()), String.valueOf(ours.getRoot()), text);
            assertEquals(host.isAbsolute(), ours.isAbsolute(), text);
            assertEquals(host.normalize().toString(), ours.normalize().toString(), "normalize " + text);
            for (String other : all) {
                String both = text + " and " + other;
                assertEquals(host.resolve(other).toString(), ours.resolve(other).toString(), both);
                assertEquals(host.resolveSibling(other).toString(), ours.resolveSibling(other).toString(), both);
                assertEquals(host.startsWith(other), ours.startsWith(other), "starts " + both);
                assertEquals(host.endsWith(other), ours.endsWith(other), "ends " + both);
                assertEquals(Integer.signum(host.compareTo(Path.of(other))), Integer.signum(ours.compareTo(at(other))), both);
                assertEquals(host.equals(Path.of(other)), ours.equals(at(other)), both);
                if (!both.contains(".")) {
                    assertEquals(relative(host, Path.of(other)), relative(ours, at(other)), "relativize " + both);
                }
            }
            if (host.getNameCount() > 1) {
                assertEquals(host.subpath(0, 1).toString(), ours.subpath(0, 1).toString());
                assertEquals(host.getName(1).toString(), ours.getName(1).toString());
            }
        }
        assertEquals(at("/a/b"), fs.getPath("/a", "", "b"));
        assertEquals(at("/a"), at("a").toAbsolutePath());
        assertThrows(IllegalArgumentException.class, () -> at("a").getName(1));
        assertThrows(IllegalArgumentException.class, () -> at("a").subpath(0, 2));
        assertThrows(UnsupportedOperationException.class, () -> at("a").toFile());
    }

    private static String relative(Path a, Path b) {
        try {
            return a.relativize(b).toString();
        } catch (IllegalArgumentException e) {
            return "refused";
        }
    }

    @Test
    void space_is_reported() throws IOException {
        var store = Files.getFileStore(at("/"));
        assertTrue(store.getTotalSpace() >= store.getUnallocatedSpace() && store.getUnallocatedSpace() >= store.getUsableSpace());
        assertTrue(store.getUsableSpace() > 0);
        assertEquals(store.getTotalSpace(), store.getAttribute("totalSpace"));
        assertEquals("strongroom", store.type());
        assertEquals(4096, store.getBlockSize());
        assertFalse(store.isReadOnly());
        assertTrue(store.supportsFileAttributeView("posix") && store.supportsFileAttributeView(PosixFileAttributeView.class));
        assertFalse(store.supportsFileAttributeView("dos"));
        assertNull(store.getFileStoreAttributeView(java.nio.file.attribute.FileStoreAttributeView.class));
        assertEquals(directory.toString(), store.name());
    }

    @Test
    void a_read_only_room_refuses_every_change() throws IOException {
        Files.writeString(at("/f"), "x");
        fs.close();
        fs = FileSystems.newFileSystem(directory, key("readOnly", true));
        assertTrue(fs.isReadOnly() && Files.getFileStore(at("/")).isReadOnly());
        assertEquals("x", Files.readString(at("/f")));
        assertFalse(Files.isWritable(at("/f")));
        for (Executable change : List.<Executable>of(
                () -> Files.writeString(at("/f"), "y"), () -> Files.createDirectory(at("/d")), () -> Files.delete(at("/f")),
                () -> Files.copy(at("/f"), at("/g")), () -> Files.move(at("/f"), at("/g")), () -> Files.createLink(at("/g"), at("/f")),
                () -> Files.createSymbolicLink(at("/g"), at("f")), () -> Files.setLastModifiedTime(at("/f"), FileTime.fromMillis(0)),
                () -> Files.createTempFile(at("/"), "a", "b"))) {
            assertThrows(ReadOnlyFileSystemException.class, change);
        }
    }

    @Test
    void a_closed_file_system_says_so() throws IOException {
        Files.writeString(at("/f"), "x");
        FileChannel open = FileChannel.open(at("/f"), StandardOpenOption.READ, StandardOpenOption.WRITE);
        fs.close();
        fs.close();
        for (Executable call : List.<Executable>of(
                () -> Files.readString(at("/f")), () -> Files.writeString(at("/f"), "y"), () -> Files.size(at("/f")),
                () -> Files.list(at("/")), () -> Files.delete(at("/f")), () -> Files.copy(at("/f"), at("/g")),
                () -> Files.getFileStore(at("/f")), () -> open.read(ByteBuffer.allocate(1)), () -> open.force(false),
                () -> at("/f").toRealPath(), () -> Files.createDirectory(at("/d")),
                () -> Files.getFileAttributeView(at("/f"), PosixFileAttributeView.class).readAttributes())) {
            assertThrows(ClosedFileSystemException.class, call);
        }
        open.close();
    }

    @Test
    void transactions_are_the_rooms() throws IOException {
        var room = ((RoomFileSystem) fs).room();
        room.begin();
        Files.writeString(at("/f"), "x");
        assertThrows(org.strongroom.RoomBusyException.class, fs::close);
        assertTrue(fs.isOpen());
        room.complete();
        assertEquals(directory, ((RoomFileSystem) fs).directory());
    }
}
