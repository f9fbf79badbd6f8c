package org.strongroom;

/** One name of a directory. */
public final class Entry {
    private final String name;
    private final FileKind kind;

    Entry(String name, FileKind kind) {
        this.name = name;
        this.kind = kind;
    }

    /**
     * The name.
     *
     * @return the name, without a slash
     */
    public String name() {
        return name;
    }

    /**
     * What it leads to.
     *
     * @return the kind
     */
    public FileKind kind() {
        return kind;
    }

    @Override
    public String toString() {
        return name;
    }
}
