package org.strongroom.nio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileAttributeView;
import java.nio.file.attribute.FileOwnerAttributeView;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.GroupPrincipal;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.nio.file.attribute.UserPrincipal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.strongroom.Room;
import org.strongroom.RoomException;

/** The views of a file's attributes. */
final class Views {
    /** Where the attributes that a user defines are among the extended ones. */
    private static final String USER = "user.";

    private Views() {}

    static FileAttributeView of(RoomPath path, boolean follow, Class<?> type) {
        if (type == BasicFileAttributeView.class || type == PosixFileAttributeView.class || type == FileOwnerAttributeView.class) {
            String name = type == BasicFileAttributeView.class ? "basic" : type == PosixFileAttributeView.class ? "posix" : "owner";
            return new Posix(path, follow, name);
        }
        return type == UserDefinedFileAttributeView.class ? new User(path) : null;
    }

    private interface Change {
        void in(Room room, String path) throws RoomException;
    }

    private static void change(RoomPath path, Change change) throws IOException {
        try {
            change.in(path.room(), path.text());
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    static Attributes read(RoomPath path, boolean follow) throws IOException {
        try {
            return new Attributes(path.room().stat(path.text(), follow));
        } catch (RoomException e) {
            throw Errors.of(e, path);
        }
    }

    /** Basic, owner and posix: each a part of the next. */
    private record Posix(RoomPath path, boolean follow, String name) implements PosixFileAttributeView {
        @Override
        public PosixFileAttributes readAttributes() throws IOException {
            return read(path, follow);
        }

        @Override
        public void setTimes(FileTime modified, FileTime accessed, FileTime created) throws IOException {
            // The time of birth is what it is, as on most file systems.
            if (modified != null) {
                Instant at = modified.toInstant();
                change(path, (room, file) -> room.setModified(file, follow, at.getEpochSecond(), at.getNano()));
            }
            if (accessed != null) {
                Instant at = accessed.toInstant();
                change(path, (room, file) -> room.setAccessed(file, follow, at.getEpochSecond(), at.getNano()));
            }
        }

        @Override
        public void setPermissions(Set<PosixFilePermission> permissions) throws IOException {
            change(path, (room, file) -> {
                int above = room.stat(file, true).mode() & 07000;
                room.setMode(file, above | Attributes.mode(permissions));
            });
        }

        @Override
        public void setGroup(GroupPrincipal group) throws IOException {
            long number = RoomFileSystem.Principal.of(group);
            change(path, (room, file) -> room.setOwner(file, follow, -1, number));
        }

        @Override
        public UserPrincipal getOwner() throws IOException {
            return readAttributes().owner();
        }

        @Override
        public void setOwner(UserPrincipal owner) throws IOException {
            long number = RoomFileSystem.Principal.of(owner);
            change(path, (room, file) -> room.setOwner(file, follow, number, -1));
        }
    }

    private record User(RoomPath path) implements UserDefinedFileAttributeView {
        @Override
        public String name() {
            return "user";
        }

        @Override
        public List<String> list() throws IOException {
            List<String> names = new ArrayList<>();
            change(path, (room, file) -> {
                for (String name : room.xattrNames(file)) {
                    if (name.startsWith(USER)) {
                        names.add(name.substring(USER.length()));
                    }
                }
            });
            return names;
        }

        private byte[] value(String name) throws IOException {
            byte[][] value = new byte[1][];
            change(path, (room, file) -> value[0] = room.xattr(file, USER + name));
            return value[0];
        }

        @Override
        public int size(String name) throws IOException {
            return value(name).length;
        }

        @Override
        public int read(String name, ByteBuffer dst) throws IOException {
            byte[] value = value(name);
            if (value.length > dst.remaining()) {
                throw new IOException("the attribute has " + value.length + " bytes, the buffer " + dst.remaining());
            }
            dst.put(value);
            return value.length;
        }

        @Override
        public int write(String name, ByteBuffer src) throws IOException {
            byte[] value = new byte[src.remaining()];
            src.get(value);
            change(path, (room, file) -> room.setXattr(file, USER + name, value, Room.XattrMode.ANY));
            return value.length;
        }

        @Override
        public void delete(String name) throws IOException {
            change(path, (room, file) -> room.removeXattr(file, USER + name));
        }
    }

    /** As {@code Files.readAttributes} asks for them: {@code view:name,name} or {@code *}. */
    static Map<String, Object> named(RoomPath path, boolean follow, String asked) throws IOException {
        int cut = asked.indexOf(':');
        String view = cut < 0 ? "basic" : asked.substring(0, cut);
        String list = asked.substring(cut + 1);
        Map<String, Object> all = all(path, follow, view);
        if (list.equals("*")) {
            return all;
        }
        Map<String, Object> some = new LinkedHashMap<>();
        for (String name : list.split(",")) {
            if (name.equals("*")) {
                return all;
            }
            if (!all.containsKey(name)) {
                throw new IllegalArgumentException("the view " + view + " has no attribute " + name);
            }
            some.put(name, all.get(name));
        }
        return some;
    }

    private static Map<String, Object> all(RoomPath path, boolean follow, String view) throws IOException {
        Map<String, Object> all = new LinkedHashMap<>();
        if (view.equals("user")) {
            User user = new User(path);
            for (String name : user.list()) {
                all.put(name, user.value(name));
            }
            return all;
        }
        if (!RoomFileSystem.VIEWS.contains(view)) {
            throw new UnsupportedOperationException("a view of attributes: " + view);
        }
        Attributes a = read(path, follow);
        if (!view.equals("owner")) {
            all.put("lastModifiedTime", a.lastModifiedTime());
            all.put("lastAccessTime", a.lastAccessTime());
            all.put("creationTime", a.creationTime());
            all.put("size", a.size());
            all.put("isRegularFile", a.isRegularFile());
            all.put("isDirectory", a.isDirectory());
            all.put("isSymbolicLink", a.isSymbolicLink());
            all.put("isOther", a.isOther());
            all.put("fileKey", a.fileKey());
        }
        if (!view.equals("basic")) {
            all.put("owner", a.owner());
        }
        if (view.equals("posix")) {
            all.put("group", a.group());
            all.put("permissions", a.permissions());
        }
        return all;
    }

    /** As {@code Files.setAttribute} asks for it. */
    @SuppressWarnings("unchecked")
    static void set(RoomPath path, boolean follow, String asked, Object value) throws IOException {
        int cut = asked.indexOf(':');
        String view = cut < 0 ? "basic" : asked.substring(0, cut);
        String name = asked.substring(cut + 1);
        if (!RoomFileSystem.VIEWS.contains(view)) {
            throw new UnsupportedOperationException("a view of attributes: " + view);
        }
        Posix posix = new Posix(path, follow, view);
        switch (view + ":" + name) {
            case "basic:lastModifiedTime", "posix:lastModifiedTime" -> posix.setTimes((FileTime) value, null, null);
            case "basic:lastAccessTime", "posix:lastAccessTime" -> posix.setTimes(null, (FileTime) value, null);
            case "basic:creationTime", "posix:creationTime" -> posix.setTimes(null, null, (FileTime) value);
            case "owner:owner", "posix:owner" -> posix.setOwner((UserPrincipal) value);
            case "posix:group" -> posix.setGroup((GroupPrincipal) value);
            case "posix:permissions" -> posix.setPermissions((Set<PosixFilePermission>) value);
            default -> {
                if (!view.equals("user")) {
                    throw new IllegalArgumentException("the view " + view + " has no attribute " + name + " that can be set");
                }
                new User(path).write(name, value instanceof ByteBuffer bytes ? bytes : ByteBuffer.wrap((byte[]) value));
            }
        }
    }
}
