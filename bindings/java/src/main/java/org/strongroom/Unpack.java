package org.strongroom;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Loads a library out of the jar. Android, which has libraries of its own place, never loads this class. */
final class Unpack {
    private Unpack() {}

    static void load(String resource) throws IOException {
        // Of a new name that nobody can guess, and nobody else's to enter (0700): what is loaded is what was written.
        Path directory = Files.createTempDirectory("strongroom");
        Path file = directory.resolve(System.mapLibraryName("strongroom_java"));
        try {
            try (InputStream in = Unpack.class.getResourceAsStream(resource)) {
                if (in == null) {
                    throw new IOException("the jar has no " + resource);
                }
                Files.copy(in, file);
            }
            System.load(file.toAbsolutePath().toString());
        } finally {
            // What is loaded stays so without a name.
            Files.deleteIfExists(file);
            Files.deleteIfExists(directory);
        }
    }
}
