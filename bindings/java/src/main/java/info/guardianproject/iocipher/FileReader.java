package info.guardianproject.iocipher;

import java.io.FileNotFoundException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Reads a file of the mounted container as text in UTF-8. */
public class FileReader extends InputStreamReader {
    /**
     * Opens a file.
     *
     * @param file the file
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileReader(File file) throws FileNotFoundException {
        super(new FileInputStream(file), StandardCharsets.UTF_8);
    }

    /**
     * Reads from what is open.
     *
     * @param fd an open file
     */
    public FileReader(FileDescriptor fd) {
        super(new FileInputStream(fd), StandardCharsets.UTF_8);
    }

    /**
     * Opens a file.
     *
     * @param filename its path
     * @throws FileNotFoundException if it cannot be opened
     */
    public FileReader(String filename) throws FileNotFoundException {
        super(new FileInputStream(filename), StandardCharsets.UTF_8);
    }
}
