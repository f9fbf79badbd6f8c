package org.strongroom;

import java.io.IOException;
import java.util.Locale;

/** Finds and loads the native half: by system property, on java.library.path, in the jar. */
final class Library {
    private static final String NAME = "strongroom_java";

    private Library() {}

    static void load() {
        String path = System.getProperty("org.strongroom.library");
        if (path != null) {
            System.load(path);
            return;
        }
        try {
            System.loadLibrary(NAME);
            return;
        } catch (UnsatisfiedLinkError missing) {
            if (!String.valueOf(missing.getMessage()).contains("java.library.path") || resource() == null) {
                throw missing;
            }
        }
        try {
            Unpack.load(resource());
        } catch (IOException e) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError("the library " + System.mapLibraryName(NAME)
                    + " cannot be unpacked (" + e.getMessage() + "): point java.io.tmpdir at a directory that can be written, or"
                    + " unpack it from the jar yourself and name it in the system property org.strongroom.library");
            error.initCause(e);
            throw error;
        }
    }

    /** Where in the jar the library of this platform is, if it is there. */
    private static String resource() {
        String machine = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
        if (machine.equals("amd64")) {
            machine = "x86_64";
        }
        String platform = System.getProperty("os.name", "").toLowerCase(Locale.ROOT).replace(' ', '-') + "-" + machine;
        String name = "/org/strongroom/native/" + platform + "/" + System.mapLibraryName(NAME);
        return Library.class.getResource(name) == null ? null : name;
    }
}
