package info.guardianproject.iocipher;

/** Chooses files. */
public interface FileFilter {
    /**
     * Whether a file is wanted.
     *
     * @param pathname the file
     * @return whether it is
     */
    public abstract boolean accept(File pathname);
}
