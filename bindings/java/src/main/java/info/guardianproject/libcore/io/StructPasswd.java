package info.guardianproject.libcore.io;

/** Of a call that is refused. */
public final class StructPasswd {
    private StructPasswd() {}
}
