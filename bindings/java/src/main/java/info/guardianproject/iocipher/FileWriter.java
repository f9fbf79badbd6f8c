package info.guardianproject.iocipher;

import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;

/** Writes a file of the mounted container as text in UTF-8. */
public class FileWriter extends OutputStreamWriter {
    /**
     * Makes a file, or cuts the one that is there to nothing.
     *
     * @param file the file
     * @throws IOException if it cannot be opened
     */
    public FileWriter(File file) throws IOException {
        super(new FileOutputStream(file), StandardCharsets.UTF_8);
    }

    /**
     * Makes a file, or opens the one that is there.
     *
     * @param file the file
     * @param append whether to write to its end instead of cutting it to nothing
     * @throws IOException if it cannot be opened
     */
    public FileWriter(File file, boolean append) throws IOException {
        super(new FileOutputStream(file, append), StandardCharsets.UTF_8);
    }

    /**
     * Writes to what is open.
     *
     * @param fd an open file
     */
    public FileWriter(FileDescriptor fd) {
        super(new FileOutputStream(fd), StandardCharsets.UTF_8);
    }

    /**
     * Makes a file, or cuts the one that is there to nothing.
     *
     * @param filename its path
     * @throws IOException if it cannot be opened
     */
    public FileWriter(String filename) throws IOException {
        super(new FileOutputStream(filename), StandardCharsets.UTF_8);
    }

    /**
     * Makes a file, or opens the one that is there.
     *
     * @param filename its path
     * @param append whether to write to its end instead of cutting it to nothing
     * @throws IOException if it cannot be opened
     */
    public FileWriter(String filename, boolean append) throws IOException {
        super(new FileOutputStream(filename, append), StandardCharsets.UTF_8);
    }
}
