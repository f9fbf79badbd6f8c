package org.strongroom.nio;

import java.io.IOException;
import java.net.URI;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.ProviderMismatchException;
import java.nio.file.WatchEvent;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.strongroom.Room;
import org.strongroom.RoomException;

/** A path of a room: names between single slashes, without one at the end. */
final class RoomPath implements Path {
    private static final String[] NONE = {};

    private final RoomFileSystem fs;
    private final String path;
    private String[] names;

    RoomPath(RoomFileSystem fs, String text) {
        this.fs = fs;
        this.path = plain(text);
    }

    private static String plain(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new InvalidPathException(text.replace('\0', '?'), "a path with a NUL in it");
        }
        boolean odd = text.length() > 1 && text.endsWith("/") || text.contains("//");
        if (!odd) {
            return text;
        }
        String joined = String.join("/", split(text));
        return text.startsWith("/") ? "/" + joined : joined;
    }

    private static String[] split(String text) {
        return Arrays.stream(text.split("/")).filter(name -> !name.isEmpty()).toArray(String[]::new);
    }

    static RoomPath of(Path path) {
        if (path instanceof RoomPath ours) {
            return ours;
        }
        Objects.requireNonNull(path);
        throw new ProviderMismatchException("not a path in a room: " + path);
    }

    Room room() {
        return fs.room();
    }

    /** As the room is asked for it: from the root. */
    String text() {
        return isAbsolute() ? path : "/" + path;
    }

    private String[] names() {
        if (names == null) {
            names = path.isEmpty() ? new String[] {""} : path.equals("/") ? NONE : split(path);
        }
        return names;
    }

    private RoomPath make(String text) {
        return new RoomPath(fs, text);
    }

    @Override
    public RoomFileSystem getFileSystem() {
        return fs;
    }

    @Override
    public boolean isAbsolute() {
        return path.startsWith("/");
    }

    @Override
    public RoomPath getRoot() {
        return isAbsolute() ? make("/") : null;
    }

    @Override
    public RoomPath getFileName() {
        int n = getNameCount();
        return n == 0 ? null : getName(n - 1);
    }

    @Override
    public RoomPath getParent() {
        int cut = path.lastIndexOf('/');
        if (cut < 0 || path.length() == 1) {
            return null;
        }
        return make(cut == 0 ? "/" : path.substring(0, cut));
    }

    @Override
    public int getNameCount() {
        return names().length;
    }

    @Override
    public RoomPath getName(int index) {
        if (index < 0 || index >= getNameCount()) {
            throw new IllegalArgumentException("name " + index + " of " + getNameCount());
        }
        return make(names()[index]);
    }

    @Override
    public RoomPath subpath(int beginIndex, int endIndex) {
        if (beginIndex < 0 || endIndex > getNameCount() || beginIndex >= endIndex) {
            throw new IllegalArgumentException("names " + beginIndex + " to " + endIndex + " of " + getNameCount());
        }
        return make(String.join("/", Arrays.asList(names()).subList(beginIndex, endIndex)));
    }

    @Override
    public boolean startsWith(Path other) {
        if (!(other instanceof RoomPath that) || that.fs != fs || that.isAbsolute() != isAbsolute()) {
            return false;
        }
        int n = that.getNameCount();
        return n <= getNameCount() && (that.path.isEmpty() ? path.isEmpty() : Arrays.equals(names(), 0, n, that.names(), 0, n));
    }

    @Override
    public boolean endsWith(Path other) {
        if (!(other instanceof RoomPath that) || that.fs != fs) {
            return false;
        }
        int n = getNameCount();
        int m = that.getNameCount();
        if (that.isAbsolute()) {
            return isAbsolute() && equals(that);
        }
        if (that.path.isEmpty()) {
            return path.isEmpty();
        }
        return m <= n && Arrays.equals(names(), n - m, n, that.names(), 0, m);
    }

    @Override
    public RoomPath normalize() {
        List<String> kept = new ArrayList<>();
        for (String name : names()) {
            boolean back = name.equals("..");
            boolean above = kept.isEmpty() || kept.get(kept.size() - 1).equals("..");
            if (name.equals(".") || back && kept.isEmpty() && isAbsolute()) {
                continue;
            }
            if (back && !above) {
                kept.remove(kept.size() - 1);
            } else {
                kept.add(name);
            }
        }
        return make((isAbsolute() ? "/" : "") + String.join("/", kept));
    }

    @Override
    public RoomPath resolve(Path other) {
        RoomPath that = of(other);
        if (that.isAbsolute() || path.isEmpty()) {
            return that;
        }
        return that.path.isEmpty() ? this : make(path + "/" + that.path);
    }

    @Override
    public RoomPath resolve(String other) {
        return resolve(make(other));
    }

    @Override
    public RoomPath relativize(Path other) {
        RoomPath that = of(other);
        if (that.isAbsolute() != isAbsolute() || that.fs != fs) {
            throw new IllegalArgumentException("one from the root and one not, or of two rooms: " + this + ", " + other);
        }
        if (equals(that)) {
            return make("");
        }
        if (path.isEmpty()) {
            return that;
        }
        RoomPath from = normalize();
        RoomPath to = that.normalize();
        String[] a = from.path.isEmpty() ? NONE : from.names();
        String[] b = to.path.isEmpty() ? NONE : to.names();
        int same = 0;
        while (same < a.length && same < b.length && a[same].equals(b[same])) {
            same++;
        }
        List<String> out = new ArrayList<>();
        for (int i = same; i < a.length; i++) {
            if (a[i].equals("..")) {
                throw new IllegalArgumentException("no way from " + this + " to " + other + " is known");
            }
            out.add("..");
        }
        out.addAll(Arrays.asList(b).subList(same, b.length));
        return make(String.join("/", out));
    }

    @Override
    public URI toUri() {
        return Uris.of(fs.directory(), fs.snapshot(), toAbsolutePath().path);
    }

    @Override
    public RoomPath toAbsolutePath() {
        return isAbsolute() ? this : make("/" + path);
    }

    @Override
    public RoomPath toRealPath(LinkOption... options) throws IOException {
        try {
            if (Arrays.asList(options).contains(LinkOption.NOFOLLOW_LINKS)) {
                room().stat(text(), false);
                RoomPath parent = toAbsolutePath().normalize().getParent();
                return parent == null ? make("/") : parent.toRealPath().resolve(toAbsolutePath().normalize().getFileName());
            }
            return make(room().realPath(text()));
        } catch (RoomException e) {
            throw Errors.of(e, this);
        }
    }

    @Override
    public WatchKey register(WatchService watcher, WatchEvent.Kind<?>[] events, WatchEvent.Modifier... modifiers) {
        throw new UnsupportedOperationException("a room does not report changes: nobody but this program makes any");
    }

    @Override
    public int compareTo(Path other) {
        return path.compareTo(of(other).path);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof RoomPath that && that.fs == fs && that.path.equals(path);
    }

    @Override
    public int hashCode() {
        return path.hashCode() * 31 + System.identityHashCode(fs);
    }

    @Override
    public String toString() {
        return path;
    }
}
