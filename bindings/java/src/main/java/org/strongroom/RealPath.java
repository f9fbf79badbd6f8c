package org.strongroom;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Walks a path as the room does, and writes down where it went. */
final class RealPath {
    /** As many as a room follows. */
    private static final int SYMLINKS_MAX = 40;

    private RealPath() {}

    static String of(Room room, String path) throws RoomException {
        // The room decides whether there is something; what follows only says by which names.
        room.stat(path, true);
        Deque<String> ahead = new ArrayDeque<>();
        push(ahead, path);
        List<String> at = new ArrayList<>();
        int links = 0;
        while (!ahead.isEmpty()) {
            String name = ahead.pop();
            if (name.equals("..")) {
                if (!at.isEmpty()) {
                    at.remove(at.size() - 1);
                }
                continue;
            }
            at.add(name);
            String here = text(at);
            if (room.stat(here, false).kind() != FileKind.SYMLINK) {
                continue;
            }
            if (++links > SYMLINKS_MAX) {
                throw new RoomException(RoomException.Kind.INVALID_ARGUMENT, 40, path + ": too many symbolic links");
            }
            String target = room.readLink(here);
            at.remove(at.size() - 1);
            if (target.startsWith("/")) {
                at.clear();
            }
            push(ahead, target);
        }
        return text(at);
    }

    private static void push(Deque<String> ahead, String path) {
        String[] names = path.split("/");
        for (int i = names.length - 1; i >= 0; i--) {
            if (!names[i].isEmpty() && !names[i].equals(".")) {
                ahead.push(names[i]);
            }
        }
    }

    private static String text(List<String> names) {
        StringBuilder path = new StringBuilder();
        for (String name : names) {
            path.append('/').append(name);
        }
        return path.length() == 0 ? "/" : path.toString();
    }
}
