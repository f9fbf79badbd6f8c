package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.strongroom.Entry;
import org.strongroom.FileKind;
import org.strongroom.Room.RenameMode;
import org.strongroom.RoomException;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;

class NamesTest extends Contract {
    private Set<String> names(String dir) throws IOException {
        return room.list(dir).stream().map(Entry::name).collect(Collectors.toCollection(TreeSet::new));
    }

    private void rename(String from, String to) throws IOException {
        room.rename(at + from, at + to, RenameMode.REPLACE);
    }

    @Test
    void unlink_directory() throws IOException {
        room.makeDirectory(at + "/d", 0755);
        put(room, at + "/f", new byte[1]);
        assertThrows(RoomException.class, () -> room.removeFile(at + "/d"));
        refused(Kind.NOT_DIRECTORY, () -> room.removeDirectory(at + "/f"));
        assertEquals(Set.of("d", "f"), names(at));
    }

    @Test
    void mkdir() throws IOException {
        room.makeDirectory(at + "/d", 0750);
        assertTrue(room.stat(at + "/d", true).isDirectory());
        assertEquals(0750, room.stat(at + "/d", true).mode());
        refused(Kind.EXISTS, () -> room.makeDirectory(at + "/d", 0755));
    }

    @Test
    void mkdir_nested() throws IOException {
        StringBuilder path = new StringBuilder(at);
        for (int i = 0; i < 50; i++) {
            path.append("/n").append(i);
            room.makeDirectory(path.toString(), 0755);
            assertTrue(room.stat(path.toString(), false).isDirectory());
        }
    }

    @Test
    void mkdir_missing_parents() throws IOException {
        refused(Kind.NOT_FOUND, () -> room.makeDirectory(at + "/a/b", 0755));
        refused(Kind.NOT_FOUND, () -> room.openFile(at + "/a/f", NEW, 0644));
        assertTrue(names(at).isEmpty());
    }

    @Test
    void mkdir_all() throws IOException {
        room.makeDirectories(at + "/a/b/c");
        put(room, at + "/a/b/c/f", new byte[1]);
        room.makeDirectories(at + "/a/b/c");
        assertEquals(Set.of("f"), names(at + "/a/b/c"));
    }

    @Test
    void mkdir_below_file() throws IOException {
        put(room, at + "/f", new byte[1]);
        refused(Kind.NOT_DIRECTORY, () -> room.makeDirectory(at + "/f/d", 0755));
        refused(Kind.NOT_DIRECTORY, () -> room.makeDirectories(at + "/f/d/e"));
        refused(Kind.NOT_DIRECTORY, () -> room.openFile(at + "/f/g", NEW, 0644));
    }

    @Test
    void rmdir() throws IOException {
        room.makeDirectory(at + "/d", 0755);
        room.removeDirectory(at + "/d");
        assertFalse(room.exists(at + "/d"));
        refused(Kind.NOT_FOUND, () -> room.removeDirectory(at + "/d"));
    }

    @Test
    void rmdir_not_empty() throws IOException {
        room.makeDirectory(at + "/d", 0755);
        put(room, at + "/d/f", "kept".getBytes());
        refused(Kind.NOT_EMPTY, () -> room.removeDirectory(at + "/d"));
        assertEquals("kept", new String(get(room, at + "/d/f")));
    }

    @Test
    void list() throws IOException {
        room.makeDirectory(at + "/d", 0755);
        put(room, at + "/f", new byte[1]);
        room.symlink("f", at + "/l");
        assertEquals(Set.of("d DIRECTORY", "f REGULAR", "l SYMLINK"),
                room.list(at).stream().map(e -> e.name() + " " + e.kind()).collect(Collectors.toSet()));
        assertEquals(3, room.list(at).size());
        refused(Kind.NOT_FOUND, () -> room.list(at + "/x"));
        refused(Kind.NOT_DIRECTORY, () -> room.list(at + "/f"));
    }

    @Test
    void list_many() throws IOException {
        for (int i = 0; i < 5000; i++) {
            room.openFile(at + "/file" + i, NEW, 0644).close();
        }
        assertEquals(5000, room.list(at).size());
        assertEquals(5000, names(at).size());
    }

    @Test
    void rename_file() throws IOException {
        room.makeDirectory(at + "/d", 0755);
        put(room, at + "/a", "x".getBytes());
        rename("/a", "/b");
        rename("/b", "/d/c");
        assertEquals("x", new String(get(room, at + "/d/c")));
        assertEquals(Set.of("d"), names(at));
    }

    @Test
    void rename_file_onto_file() throws IOException {
        put(room, at + "/a", "new".getBytes());
        put(room, at + "/b", "old".getBytes());
        try (RoomFile old = room.openFile(at + "/b", R, 0)) {
            rename("/a", "/b");
            assertEquals("old", new String(part(old, 0, 9)));
        }
        assertEquals("new", new String(get(room, at + "/b")));
        assertFalse(room.exists(at + "/a"));
    }

    @Test
    void rename_dir_onto_empty_dir() throws IOException {
        room.makeDirectories(at + "/a/in");
        room.makeDirectory(at + "/b", 0755);
        rename("/a", "/b");
        assertEquals(Set.of("b"), names(at));
        assertEquals(Set.of("in"), names(at + "/b"));
    }

    @Test
    void rename_dir_onto_full_dir() throws IOException {
        room.makeDirectories(at + "/a/in");
        room.makeDirectories(at + "/b/there");
        refused(Kind.NOT_EMPTY, () -> rename("/a", "/b"));
        assertEquals(Set.of("in"), names(at + "/a"));
        assertEquals(Set.of("there"), names(at + "/b"));
    }

    @Test
    void rename_file_onto_dir() throws IOException {
        put(room, at + "/f", new byte[1]);
        room.makeDirectory(at + "/d", 0755);
        refused(Kind.IS_DIRECTORY, () -> rename("/f", "/d"));
        refused(Kind.NOT_DIRECTORY, () -> rename("/d", "/f"));
        assertEquals(FileKind.REGULAR, room.stat(at + "/f", false).kind());
        assertEquals(FileKind.DIRECTORY, room.stat(at + "/d", false).kind());
    }

    @Test
    void rename_no_replace() throws IOException {
        put(room, at + "/a", "a".getBytes());
        put(room, at + "/b", "b".getBytes());
        refused(Kind.EXISTS, () -> room.rename(at + "/a", at + "/b", RenameMode.NO_REPLACE));
        assertEquals("a", new String(get(room, at + "/a")));
        assertEquals("b", new String(get(room, at + "/b")));
        room.rename(at + "/a", at + "/b", RenameMode.EXCHANGE);
        assertEquals("b", new String(get(room, at + "/a")));
    }

    @Test
    void rename_into_itself() throws IOException {
        room.makeDirectories(at + "/a/b");
        refused(Kind.INVALID_ARGUMENT, () -> rename("/a", "/a/b/c"));
        assertEquals(Set.of("b"), names(at + "/a"));
    }

    @Test
    void rename_dir_with_children() throws IOException {
        room.makeDirectories(at + "/dir/deep/er");
        put(room, at + "/dir/deep/f", "in dir".getBytes());
        room.makeDirectory(at + "/dir1", 0755);
        put(room, at + "/dir1/f", "in dir1".getBytes());
        rename("/dir", "/moved");
        assertEquals(Set.of("moved", "dir1"), names(at));
        assertEquals("in dir", new String(get(room, at + "/moved/deep/f")));
        assertEquals("in dir1", new String(get(room, at + "/dir1/f")));
    }

    @Test
    void names_special() throws IOException {
        Set<String> all = new TreeSet<>(Set.of("a[1]", "a1", "*", "?", "a*", "%", "%s", "'", "\"", "\\", "a b", " ", "end.", "-rf",
                "new\nline", "a", "[", "]", "[a-z]", "~", "$HOME", "a\tb"));
        for (String name : all) {
            put(room, at + "/" + name, name.getBytes());
        }
        assertEquals(all, names(at));
        for (String name : all) {
            assertEquals(name, new String(get(room, at + "/" + name)));
        }
        rename("/a[1]", "/renamed");
        assertEquals("a1", new String(get(room, at + "/a1")));
        room.removeFile(at + "/*");
        all.remove("a[1]");
        all.remove("*");
        all.add("renamed");
        assertEquals(all, names(at));
    }

    @Test
    void names_unicode() throws IOException {
        // The last three: composed, decomposed, and a byte that is no UTF-8.
        Set<String> all = new TreeSet<>(Set.of("日本語", "\uD83D\uDD12\uD83D\uDC68\u200D\uD83D\uDC69", "ß", "\u00E9", "e\u0301", "a\uDCFFb"));
        for (String name : all) {
            put(room, at + "/" + name, name.getBytes("UTF-16"));
        }
        assertEquals(all, names(at));
        for (String name : all) {
            assertArrayEquals(name.getBytes("UTF-16"), get(room, at + "/" + name));
        }
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/\uD83D", NEW, 0644));
    }

    @Test
    void names_long() throws IOException {
        String longest = String.join("", Collections.nCopies(255, "n"));
        put(room, at + "/" + longest, new byte[1]);
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/" + longest + "n", NEW, 0644));
        refused(Kind.INVALID_ARGUMENT, () -> room.makeDirectory(at + "/" + longest + "n", 0755));
        assertEquals(Set.of(longest), names(at));
    }

    @Test
    void paths_odd() throws IOException {
        put(room, at + "/f", "x".getBytes());
        room.makeDirectory(at + "/d", 0755);
        for (String path : new String[] {"//" + at + "//f", at + "/./f", at + "/d/../f", "/../.." + at + "/f", at.substring(1) + "/f"}) {
            assertEquals("x", new String(get(room, path)), path);
        }
        assertEquals(room.stat("/", true).inode(), room.stat("/../..", true).inode());
        assertEquals(at + "/f", room.realPath("/.." + at + "/d/.././/f"));
        refused(Kind.INVALID_ARGUMENT, () -> room.stat("", true));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile("", R, 0));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/f\0g", NEW, 0644));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(null, R, 0));
    }

    @Test
    void symlink() throws IOException {
        put(room, at + "/f", "x".getBytes());
        room.symlink("f", at + "/l");
        room.symlink("/no/where", at + "/gone");
        assertEquals("f", room.readLink(at + "/l"));
        assertEquals("x", new String(get(room, at + "/l")));
        assertEquals(FileKind.REGULAR, room.stat(at + "/l", true).kind());
        assertEquals(FileKind.SYMLINK, room.stat(at + "/l", false).kind());
        assertEquals(at + "/f", room.realPath(at + "/l"));
        assertFalse(room.exists(at + "/gone"));
        assertEquals("/no/where", room.readLink(at + "/gone"));
        assertEquals(FileKind.SYMLINK, room.stat(at + "/gone", false).kind());
        refused(Kind.INVALID_ARGUMENT, () -> room.readLink(at + "/f"));
    }

    @Test
    void symlink_loop() throws IOException {
        room.symlink("b", at + "/a");
        room.symlink("a", at + "/b");
        refused(Kind.INVALID_ARGUMENT, () -> room.stat(at + "/a", true));
        refused(Kind.INVALID_ARGUMENT, () -> room.openFile(at + "/a", R, 0));
        refused(Kind.INVALID_ARGUMENT, () -> room.realPath(at + "/a"));
    }

    @Test
    void hard_link() throws IOException {
        put(room, at + "/a", "one".getBytes());
        room.link(at + "/a", at + "/b");
        put(room, at + "/b", "two".getBytes());
        assertEquals("two", new String(get(room, at + "/a")));
        assertEquals(2, room.stat(at + "/a", true).links());
        assertEquals(room.stat(at + "/a", true).inode(), room.stat(at + "/b", true).inode());
        room.removeFile(at + "/a");
        assertEquals("two", new String(get(room, at + "/b")));
        assertEquals(1, room.stat(at + "/b", true).links());
        room.makeDirectory(at + "/d", 0755);
        assertThrows(RoomException.class, () -> room.link(at + "/d", at + "/e"));
    }
}
