package info.guardianproject.iocipher;

import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URL;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.strongroom.Entry;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomInfo;
import org.strongroom.Stat;

/**
 * A path in the mounted container. Where nothing is mounted, questions are answered as for a file that does not exist.
 *
 * <p>It is a {@link java.io.File} so that it can be passed where one is asked for. Who takes its {@code toPath()}, or makes a
 * {@code java.io.File} below it, is refused. Who opens it by {@code java.io.FileInputStream} or {@code java.io.FileOutputStream} opens
 * what the host has at that path: import this package's streams, and never the JDK's beside them.
 */
public class File extends java.io.File {
    private static final long serialVersionUID = 1;
    private static final AtomicLong TEMPORARY = new AtomicLong(System.nanoTime());
    private static final String[] NO_NAMES = {};

    /** Without doubled slashes and without one at the end. */
    private final String path;

    /**
     * A file in a directory.
     *
     * @param dir the directory, or null
     * @param name the name
     */
    public File(java.io.File dir, String name) {
        this(dir == null ? null : dir.getPath(), name);
    }

    /**
     * A file by its path.
     *
     * @param path the path
     */
    public File(String path) {
        // A path with a NUL is none to the host: what the JDK does by this field, and not by getPath, is refused.
        super(path + "\0");
        this.path = plain(path);
    }

    /**
     * A file in a directory.
     *
     * @param dirPath the directory's path, or null or empty
     * @param name the name
     */
    public File(String dirPath, String name) {
        this(join(dirPath, name));
    }

    /**
     * A file by its URI, as {@link #toURI} makes it.
     *
     * @param uri of the scheme {@code file}, with a path only
     */
    public File(URI uri) {
        this(pathOf(uri));
    }

    private static String join(String dir, String name) {
        if (name == null) {
            throw new NullPointerException("name == null");
        }
        if (dir == null || dir.isEmpty()) {
            return name;
        }
        return name.isEmpty() ? dir : dir + "/" + name;
    }

    /** Without doubled slashes and without one at the end. */
    private static String plain(String path) {
        StringBuilder out = new StringBuilder(path.length());
        for (int i = 0; i < path.length(); i++) {
            char c = path.charAt(i);
            if (c != '/' || out.length() == 0 || out.charAt(out.length() - 1) != '/') {
                out.append(c);
            }
        }
        if (out.length() > 1 && out.charAt(out.length() - 1) == '/') {
            out.setLength(out.length() - 1);
        }
        return out.toString();
    }

    private static String pathOf(URI uri) {
        if (!uri.isAbsolute() || uri.isOpaque() || !"file".equals(uri.getScheme()) || uri.getRawPath().isEmpty()) {
            throw new IllegalArgumentException("not a file URI with a path: " + uri);
        }
        if (uri.getRawAuthority() != null || uri.getRawQuery() != null || uri.getRawFragment() != null) {
            throw new IllegalArgumentException("a URI with more than a path: " + uri);
        }
        return uri.getPath();
    }

    private Stat stat() {
        try {
            return Mount.room().statIfExists(getAbsolutePath(), true);
        } catch (IOException e) {
            return null;
        }
    }

    private interface Change {
        void in(Room room) throws IOException;
    }

    private static boolean done(Change change) {
        try {
            change.in(Mount.room());
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    private boolean allowed(int bit) {
        Stat stat = stat();
        // Old containers have files of mode 0, which say nothing.
        return stat != null && (stat.mode() == 0 || (stat.mode() & bit) != 0);
    }

    /** Whether its owner may execute it, by its permission bits. */
    @Override
    public boolean canExecute() {
        return allowed(0100);
    }

    /** Whether its owner may read it, by its permission bits. */
    @Override
    public boolean canRead() {
        return allowed(0400);
    }

    /** Whether its owner may write it, by its permission bits. */
    @Override
    public boolean canWrite() {
        return allowed(0200);
    }

    /**
     * Compares the paths.
     *
     * @param another the other
     * @return below, at or above 0
     */
    public int compareTo(File another) {
        return getPath().compareTo(another.getPath());
    }

    /** Deletes a file or an empty directory; whether it did. */
    @Override
    public boolean delete() {
        return done(room -> {
            if (room.stat(getAbsolutePath(), false).isDirectory()) {
                room.removeDirectory(getAbsolutePath());
            } else {
                room.removeFile(getAbsolutePath());
            }
        });
    }

    /**
     * Refused, as always.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public void deleteOnExit() throws UnsupportedOperationException {
        throw new UnsupportedOperationException("deleteOnExit: delete the file yourself before unmounting");
    }

    @Override
    public boolean equals(Object obj) {
        return obj instanceof File && path.equals(((File) obj).path);
    }

    @Override
    public boolean exists() {
        return stat() != null;
    }

    /** The path from the root. */
    @Override
    public String getAbsolutePath() {
        return isAbsolute() ? path : "/" + path;
    }

    @Override
    public File getAbsoluteFile() {
        return new File(getAbsolutePath());
    }

    /** The path from the root, without symbolic links, {@code .} and {@code ..}, as far as there is something. */
    @Override
    public String getCanonicalPath() throws IOException {
        String head = getAbsolutePath();
        String tail = "";
        Room room = Mount.room();
        while (room.statIfExists(head, true) == null) {
            int cut = head.lastIndexOf('/');
            String name = head.substring(cut + 1);
            head = cut == 0 ? "/" : head.substring(0, cut);
            if (name.equals("..")) {
                // Of what is not there: take the name before it away.
                cut = head.lastIndexOf('/');
                head = cut <= 0 ? "/" : head.substring(0, cut);
            } else if (!name.equals(".")) {
                tail = "/" + name + tail;
            }
        }
        String real = room.realPath(head);
        return real.equals("/") && !tail.isEmpty() ? tail : real + tail;
    }

    @Override
    public File getCanonicalFile() throws IOException {
        return new File(getCanonicalPath());
    }

    @Override
    public String getName() {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    @Override
    public String getParent() {
        int cut = path.lastIndexOf('/');
        if (cut == -1 || path.length() == 1) {
            return null;
        }
        return cut == 0 ? "/" : path.substring(0, cut);
    }

    @Override
    public File getParentFile() {
        String parent = getParent();
        return parent == null ? null : new File(parent);
    }

    @Override
    public String getPath() {
        return path;
    }

    @Override
    public int hashCode() {
        return path.hashCode() ^ 1234321;
    }

    @Override
    public boolean isAbsolute() {
        return path.startsWith("/");
    }

    @Override
    public boolean isDirectory() {
        Stat stat = stat();
        return stat != null && stat.isDirectory();
    }

    /** Whether it is not a directory: true also of what does not exist. */
    @Override
    public boolean isFile() {
        return !isDirectory();
    }

    @Override
    public boolean isHidden() {
        return getName().startsWith(".");
    }

    /** Milliseconds since 1970; 0 of what does not exist. */
    @Override
    public long lastModified() {
        Stat stat = stat();
        return stat == null ? 0 : stat.modifiedSeconds() * 1000 + stat.modifiedNanos() / 1_000_000;
    }

    @Override
    public boolean setLastModified(long time) {
        if (time < 0) {
            throw new IllegalArgumentException("a time of " + time + ": below 0");
        }
        return done(room -> room.setModified(getAbsolutePath(), true, time / 1000, (int) (time % 1000) * 1_000_000));
    }

    private boolean setBits(int bits, boolean on) {
        return done(room -> {
            int mode = room.stat(getAbsolutePath(), true).mode();
            room.setMode(getAbsolutePath(), on ? mode | bits : mode & ~bits);
        });
    }

    @Override
    public boolean setReadOnly() {
        return setWritable(false, false);
    }

    @Override
    public boolean setExecutable(boolean executable, boolean ownerOnly) {
        return setBits(ownerOnly ? 0100 : 0111, executable);
    }

    @Override
    public boolean setExecutable(boolean executable) {
        return setExecutable(executable, true);
    }

    @Override
    public boolean setReadable(boolean readable, boolean ownerOnly) {
        return setBits(ownerOnly ? 0400 : 0444, readable);
    }

    @Override
    public boolean setReadable(boolean readable) {
        return setReadable(readable, true);
    }

    @Override
    public boolean setWritable(boolean writable, boolean ownerOnly) {
        return setBits(ownerOnly ? 0200 : 0222, writable);
    }

    @Override
    public boolean setWritable(boolean writable) {
        return setWritable(writable, true);
    }

    /** Length in bytes; 0 of what does not exist. */
    @Override
    public long length() {
        Stat stat = stat();
        return stat == null ? 0 : stat.size();
    }

    /** The names of a directory. Of one that does not exist: none. Of a file: null. */
    @Override
    public String[] list() {
        try {
            List<String> names = new ArrayList<String>();
            for (Entry entry : Mount.room().list(getAbsolutePath())) {
                names.add(entry.name());
            }
            return names.toArray(NO_NAMES);
        } catch (RoomException e) {
            return e.kind() == RoomException.Kind.NOT_DIRECTORY && exists() ? null : NO_NAMES;
        } catch (IOException e) {
            return NO_NAMES;
        }
    }

    /**
     * The names of a directory that a filter accepts.
     *
     * @param filter the filter; null: all
     * @return the names; null of a file
     */
    public String[] list(FilenameFilter filter) {
        String[] all = list();
        if (filter == null || all == null) {
            return all;
        }
        List<String> names = new ArrayList<String>();
        for (String name : all) {
            if (filter.accept(this, name)) {
                names.add(name);
            }
        }
        return names.toArray(NO_NAMES);
    }

    /** As {@link #list(FilenameFilter)}, for filters of the JDK. */
    @Override
    public String[] list(java.io.FilenameFilter filter) {
        return list(filter == null ? null : (FilenameFilter) filter::accept);
    }

    private File[] files(String[] names) {
        if (names == null) {
            return null;
        }
        File[] files = new File[names.length];
        for (int i = 0; i < names.length; i++) {
            files[i] = new File(this, names[i]);
        }
        return files;
    }

    @Override
    public File[] listFiles() {
        return files(list());
    }

    /**
     * The files of a directory whose names a filter accepts.
     *
     * @param filter the filter; null: all
     * @return the files; null of a file
     */
    public File[] listFiles(FilenameFilter filter) {
        return files(list(filter));
    }

    /**
     * The files of a directory that a filter accepts.
     *
     * @param filter the filter; null: all
     * @return the files; null of a file
     */
    public File[] listFiles(FileFilter filter) {
        return files(filter == null ? list() : list((FilenameFilter) (dir, name) -> filter.accept(new File(dir, name))));
    }

    /** As {@link #listFiles(FilenameFilter)}, for filters of the JDK. */
    @Override
    public File[] listFiles(java.io.FilenameFilter filter) {
        return files(list(filter));
    }

    /** As {@link #listFiles(FileFilter)}, for filters of the JDK. */
    @Override
    public File[] listFiles(java.io.FileFilter filter) {
        return listFiles(filter == null ? null : (FileFilter) filter::accept);
    }

    /** Creates a directory; false where something is there, or the directory above it is missing. */
    @Override
    public boolean mkdir() {
        return done(room -> room.makeDirectory(getAbsolutePath(), 0755));
    }

    /** Creates a directory and those above it; false where it was there, or cannot be made. */
    @Override
    public boolean mkdirs() {
        return !exists() && done(room -> room.makeDirectories(getAbsolutePath()));
    }

    /** Makes an empty file; false where something is there. */
    @Override
    public boolean createNewFile() throws IOException {
        try {
            Mount.close(Mount.open(getAbsolutePath(), Flags.WRITE | Flags.CREATE_NEW, 0600));
            return true;
        } catch (RoomException e) {
            if (e.kind() == RoomException.Kind.EXISTS) {
                return false;
            }
            throw e;
        }
    }

    /**
     * Makes an empty file of a new name in the directory that the system property {@code java.io.tmpdir} names, or at the root where
     * the container has no such directory.
     *
     * @param prefix begins the name; at least three characters
     * @param suffix ends it; null: {@code .tmp}
     * @return the file
     * @throws IOException if it cannot be made
     */
    public static File createTempFile(String prefix, String suffix) throws IOException {
        return createTempFile(prefix, suffix, null);
    }

    /**
     * Makes an empty file of a new name.
     *
     * @param prefix begins the name; at least three characters
     * @param suffix ends it; null: {@code .tmp}
     * @param directory where; null: as {@link #createTempFile(String, String)} does
     * @return the file
     * @throws IOException if it cannot be made
     */
    public static File createTempFile(String prefix, String suffix, File directory) throws IOException {
        if (prefix.length() < 3) {
            throw new IllegalArgumentException("a prefix of less than three characters");
        }
        File in = directory;
        if (in == null) {
            in = new File(System.getProperty("java.io.tmpdir", "/"));
            if (!in.isDirectory()) {
                in = new File("/");
            }
        }
        File file;
        do {
            file = new File(in, prefix + Long.toHexString(TEMPORARY.incrementAndGet()) + (suffix == null ? ".tmp" : suffix));
        } while (!file.createNewFile());
        return file;
    }

    /**
     * Gives it another path, as rename(2) does: a file in the way is replaced, an empty directory by a directory too.
     *
     * @param newPath the new path
     * @return whether it did
     */
    public boolean renameTo(File newPath) {
        return done(room -> room.rename(getAbsolutePath(), newPath.getAbsolutePath(), Room.RenameMode.REPLACE));
    }

    /** As {@link #renameTo(File)}; false for a file that is not of the container. */
    @Override
    public boolean renameTo(java.io.File newPath) {
        return newPath instanceof File && renameTo((File) newPath);
    }

    @Override
    public String toString() {
        return path;
    }

    /** The path as a URI of the scheme {@code file}, from which {@link #File(URI)} makes it again. */
    @Override
    public URI toURI() {
        try {
            String name = getAbsolutePath();
            return new URI("file", null, isDirectory() && !name.equals("/") ? name + "/" : name, null, null);
        } catch (URISyntaxException e) {
            throw new AssertionError(e);
        }
    }

    /** The same as a URL. Nothing can be read from it. */
    @Override
    @Deprecated
    public URL toURL() throws MalformedURLException {
        String name = getAbsolutePath();
        return new URL("file", "", isDirectory() && !name.equals("/") ? name + "/" : name);
    }

    private interface Number {
        long of(RoomInfo info);
    }

    private static long space(Number number) {
        try {
            return number.of(Mount.room().info());
        } catch (IOException e) {
            return 0;
        }
    }

    /** Bytes of the storage that holds the container. */
    @Override
    public long getTotalSpace() {
        return space(RoomInfo::total);
    }

    /** Bytes of it that may be used. */
    @Override
    public long getUsableSpace() {
        return space(RoomInfo::available);
    }

    /** Bytes of it that are free. */
    @Override
    public long getFreeSpace() {
        return space(RoomInfo::free);
    }
}
