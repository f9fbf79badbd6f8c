package info.guardianproject.iocipher;

/** Chooses names of a directory. */
public interface FilenameFilter {
    /**
     * Whether a name is wanted.
     *
     * @param dir the directory
     * @param filename the name in it
     * @return whether it is
     */
    public abstract boolean accept(File dir, String filename);
}
