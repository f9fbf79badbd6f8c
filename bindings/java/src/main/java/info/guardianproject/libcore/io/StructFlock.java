package info.guardianproject.libcore.io;

/** Of a call that is refused. */
public final class StructFlock {
    private StructFlock() {}
}
