package org.strongroom;

/** How a room is opened or made. Each method changes the object and returns it. */
public final class RoomOptions {
    boolean readOnly;
    boolean acceptRollback;
    String stateDirectory;
    long commitIntervalMs = -1;
    int memoryKib;
    int passes;
    int lanes;

    /** The usual. */
    public RoomOptions() {}

    /**
     * Refuse every change.
     *
     * @param readOnly whether to
     * @return this
     */
    public RoomOptions readOnly(boolean readOnly) {
        this.readOnly = readOnly;
        return this;
    }

    /**
     * Open a room although this machine has seen a newer state of it: for a backup that was restored.
     *
     * @param accept whether to
     * @return this
     */
    public RoomOptions acceptRollback(boolean accept) {
        this.acceptRollback = accept;
        return this;
    }

    /**
     * Where this machine remembers the newest state it saw of a room. The usual: {@code $XDG_STATE_HOME/strongroom}, else
     * {@code ~/.local/state/strongroom}; on Android, where neither is set, nowhere.
     *
     * @param directory a directory of the host, made when it is missing; null: the usual
     * @return this
     */
    public RoomOptions stateDirectory(String directory) {
        this.stateDirectory = directory;
        return this;
    }

    /**
     * After how long changes are committed without being asked.
     *
     * @param milliseconds at least 0; 0: only when asked, or when much is pending. The usual is 5000
     * @return this
     */
    public RoomOptions commitInterval(long milliseconds) {
        if (milliseconds < 0) {
            throw new IllegalArgumentException("a commit interval of " + milliseconds + " ms");
        }
        this.commitIntervalMs = milliseconds;
        return this;
    }

    /**
     * The work of a passphrase's key derivation (Argon2id), for a new room or key. Without this it is measured to about a second.
     *
     * @param memoryKib memory in KiB; at least 8192
     * @param passes passes over it; at least 1
     * @param lanes lanes; 1 to 16
     * @return this
     */
    public RoomOptions argon2(int memoryKib, int passes, int lanes) {
        if (memoryKib < 1 || passes < 1 || lanes < 1) {
            throw new IllegalArgumentException("memory, passes and lanes are at least 1");
        }
        this.memoryKib = memoryKib;
        this.passes = passes;
        this.lanes = lanes;
        return this;
    }

    int flags() {
        return (readOnly ? 1 : 0) | (acceptRollback ? 2 : 0);
    }

    byte[] stateBytes() throws RoomException {
        return stateDirectory == null ? new byte[0] : Names.bytes(stateDirectory);
    }
}
