package org.strongroom;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** One difference between two moments of a room. */
public final class Change {
    /** What became of a file. */
    public enum What {
        /** The path is new. */
        ADDED,
        /** The path is gone. */
        REMOVED,
        /** The same file has another path. What is below a directory that was renamed is not listed for that. */
        RENAMED,
        /** Other contents, or another modification time. */
        CONTENTS,
        /** Another mode, owner, flags or extended attributes only. */
        ATTRIBUTES
    }

    private final What what;
    private final FileKind kind;
    private final long before;
    private final long after;
    private final String path;
    private final String from;

    private Change(ByteBuffer packed) {
        what = What.values()[packed.get()];
        kind = FileKind.of(packed.get());
        before = packed.getLong();
        after = packed.getLong();
        path = text(packed);
        String earlier = text(packed);
        from = earlier.isEmpty() ? null : earlier;
    }

    private static String text(ByteBuffer packed) {
        byte[] bytes = new byte[packed.getInt()];
        packed.get(bytes);
        return Names.text(bytes);
    }

    static List<Change> all(byte[] packed) {
        List<Change> all = new ArrayList<>();
        ByteBuffer left = ByteBuffer.wrap(packed);
        while (left.hasRemaining()) {
            all.add(new Change(left));
        }
        return all;
    }

    /**
     * What became of the file.
     *
     * @return what
     */
    public What what() {
        return what;
    }

    /**
     * The kind of file.
     *
     * @return the kind
     */
    public FileKind kind() {
        return kind;
    }

    /**
     * Its path; the later one, if there is a later one.
     *
     * @return from the root
     */
    public String path() {
        return path;
    }

    /**
     * The earlier path of what was renamed.
     *
     * @return the path, or null
     */
    public String from() {
        return from;
    }

    /**
     * The length before.
     *
     * @return bytes; -1 where it was not there, or is no regular file
     */
    public long before() {
        return before;
    }

    /**
     * The length after.
     *
     * @return bytes; -1 where it is not there, or is no regular file
     */
    public long after() {
        return after;
    }

    @Override
    public String toString() {
        return what + " " + path;
    }
}
