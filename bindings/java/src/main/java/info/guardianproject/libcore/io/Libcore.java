package info.guardianproject.libcore.io;

/** Where the calls of POSIX are. */
public final class Libcore {
    /** The calls. */
    public static Os os = new Posix();

    private Libcore() {}
}
