package info.guardianproject.iocipher;

import java.util.Arrays;
import java.util.regex.Pattern;
import javax.crypto.SecretKey;
import org.strongroom.Key;
import org.strongroom.Room;
import org.strongroom.RoomBusyException;
import org.strongroom.RoomException;
import org.strongroom.RoomOptions;
import org.strongroom.WrongKeyException;

/**
 * The one file system that is mounted, or not. A container is made once, and mounted each time the app starts.
 *
 * <p>Calls throw {@link IllegalArgumentException} for a bad path, passphrase or key, and {@link IllegalStateException} where the
 * state forbids them: already mounted, not mounted, threads still at work.
 */
public class VirtualFileSystem {
    private static final VirtualFileSystem ONE = new VirtualFileSystem();
    private static final int KEY_LENGTH = 32;
    /** The header. An empty one is what an interrupted deletion leaves. */
    private static final String HEADER = "header.json";
    /** Other files with what a key opens the room by. */
    private static final String[] HEADER_COPIES = {"header.json.new", "header.backup.json.new", "header.backup.json"};
    /** What else a room's directory holds, what a crash leaves in it too. Nothing else is ever deleted with it. */
    private static final Pattern PART = Pattern.compile(
            "catalog\\.db(\\.new|\\.copy)?(-wal|-shm|-journal|-pages|-log)?(\\.new)?|backup\\.(incomplete|growing)(\\.new)?|lock|control");
    private static final Pattern SEGMENT = Pattern.compile("[0-9]{20}");

    /** For tests: the work of key derivation for a new container. Null: measured to about a second. */
    static RoomOptions newContainerOptions = new RoomOptions();

    private String containerPath = "";

    private VirtualFileSystem() {}

    /**
     * The one there is.
     *
     * @return always the same
     */
    public static VirtualFileSystem get() {
        return ONE;
    }

    /**
     * Says where the container is, or will be.
     *
     * @param containerPath a path of the host; the directory above it must be there
     * @throws IllegalArgumentException if it cannot be the path of a container
     * @throws IllegalStateException if one is mounted
     */
    public synchronized void setContainerPath(String containerPath) throws IllegalArgumentException {
        if (containerPath == null || containerPath.isEmpty()) {
            throw new IllegalArgumentException("an empty container path");
        }
        if (isMounted()) {
            throw new IllegalStateException("a container is mounted: unmount it first");
        }
        java.io.File parent = new java.io.File(containerPath).getAbsoluteFile().getParentFile();
        if (parent == null || !parent.isDirectory()) {
            throw new IllegalArgumentException(containerPath + ": the directory above it does not exist");
        }
        this.containerPath = containerPath;
    }

    /**
     * Where the container is.
     *
     * @return the path that was set; empty before that
     */
    public synchronized String getContainerPath() {
        return containerPath;
    }

    /**
     * Makes a container at the path that was set. It is not mounted.
     *
     * @param password at least one character
     * @throws IllegalArgumentException if path or passphrase is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(String password) throws IllegalArgumentException {
        create(passphrase(password));
    }

    /**
     * Makes a container at the path that was set. It is not mounted.
     *
     * @param key 32 bytes; left as they are
     * @throws IllegalArgumentException if path or key is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(byte[] key) throws IllegalArgumentException {
        create(raw(key));
    }

    /**
     * Makes a container at the path that was set. It is not mounted.
     *
     * @param key of 32 bytes
     * @throws IllegalArgumentException if path or key is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(SecretKey key) throws IllegalArgumentException {
        create(raw(key));
    }

    /**
     * Makes a container. It is not mounted.
     *
     * @param containerPath where
     * @param password at least one character
     * @throws IllegalArgumentException if path or passphrase is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(String containerPath, String password) throws IllegalArgumentException {
        setContainerPath(containerPath);
        createNewContainer(password);
    }

    /**
     * Makes a container. It is not mounted.
     *
     * @param containerPath where
     * @param key 32 bytes; left as they are
     * @throws IllegalArgumentException if path or key is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(String containerPath, byte[] key) throws IllegalArgumentException {
        setContainerPath(containerPath);
        createNewContainer(key);
    }

    /**
     * Makes a container. It is not mounted.
     *
     * @param containerPath where
     * @param key of 32 bytes
     * @throws IllegalArgumentException if path or key is bad, or something is there
     * @throws IllegalStateException if a container is mounted
     */
    public void createNewContainer(String containerPath, SecretKey key) throws IllegalArgumentException {
        setContainerPath(containerPath);
        createNewContainer(key);
    }

    private synchronized void create(Key key) {
        try {
            if (isMounted()) {
                throw new IllegalStateException("a container is mounted: unmount it first");
            }
            Room.create(path(), key, newContainerOptions).close();
        } catch (RoomException e) {
            throw new IllegalArgumentException("cannot make a container at " + containerPath + ": " + e.getMessage(), e);
        } finally {
            key.close();
        }
    }

    /**
     * Deletes the container at the path that was set.
     *
     * @return whether it is gone
     * @throws IllegalStateException if it is mounted
     */
    public boolean deleteContainer() {
        return deleteContainer(getContainerPath());
    }

    /**
     * Deletes a container: a room, or a file that IOCipher wrote. Of a directory only what makes up a room is deleted; without a room in
     * it, it stays. With anything else in it, that stays, and an empty {@code header.json} with it: a call when it is gone, or after an
     * interruption, deletes the rest.
     *
     * @param containerPath where it is
     * @return whether it is gone; if not, and {@code header.json} has a length, the room is whole
     * @throws IllegalStateException if it is mounted
     */
    public synchronized boolean deleteContainer(String containerPath) {
        if (containerPath == null || containerPath.isEmpty()) {
            return false;
        }
        java.io.File container = new java.io.File(containerPath);
        Room mounted = Mount.mounted();
        if (mounted != null && same(mounted.directory(), container)) {
            throw new IllegalStateException("the container is mounted: unmount it first");
        }
        if (!container.isDirectory()) {
            return container.delete();
        }
        java.io.File header = new java.io.File(container, HEADER);
        if (!header.isFile() || !destroyKeys(container, header)) {
            return false;
        }
        deleteAll(container, PART);
        java.io.File segments = new java.io.File(container, "segments");
        deleteAll(segments, SEGMENT);
        segments.delete();
        String[] left = container.list();
        if (left == null || left.length != 1 || !header.delete()) {
            // The empty header stays, so that it can be deleted when what else is there is gone.
            return false;
        }
        return container.delete();
    }

    /** Leaves a room without a header that a key opens. False: one is left, and so is everything else. */
    private static boolean destroyKeys(java.io.File container, java.io.File header) {
        for (String copy : HEADER_COPIES) {
            java.io.File file = new java.io.File(container, copy);
            if (file.exists() && !file.delete()) {
                return false;
            }
        }
        try {
            new java.io.FileOutputStream(header).close();
            return true;
        } catch (java.io.IOException e) {
            return false;
        }
    }

    private static void deleteAll(java.io.File directory, Pattern names) {
        java.io.File[] all = directory.listFiles();
        if (all == null) {
            return;
        }
        for (java.io.File file : all) {
            if (names.matcher(file.getName()).matches() && !file.isDirectory()) {
                file.delete();
            }
        }
    }

    private static boolean same(java.io.File a, java.io.File b) {
        try {
            return a.getCanonicalFile().equals(b.getCanonicalFile());
        } catch (java.io.IOException e) {
            return a.getAbsoluteFile().equals(b.getAbsoluteFile());
        }
    }

    /**
     * Mounts the container at the path that was set.
     *
     * @param password its passphrase
     * @throws IllegalArgumentException if path or passphrase is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(String password) throws IllegalArgumentException {
        open(passphrase(password));
    }

    /**
     * Mounts a container.
     *
     * @param containerPath where it is
     * @param password its passphrase
     * @throws IllegalArgumentException if path or passphrase is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(String containerPath, String password) {
        setContainerPath(containerPath);
        mount(password);
    }

    /**
     * Mounts the container at the path that was set.
     *
     * @param key 32 bytes; left as they are
     * @throws IllegalArgumentException if path or key is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(byte[] key) throws IllegalArgumentException {
        open(raw(key));
    }

    /**
     * Mounts a container.
     *
     * @param containerPath where it is
     * @param key 32 bytes; left as they are
     * @throws IllegalArgumentException if path or key is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(String containerPath, byte[] key) {
        setContainerPath(containerPath);
        mount(key);
    }

    /**
     * Mounts the container at the path that was set.
     *
     * @param key of 32 bytes
     * @throws IllegalArgumentException if path or key is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(SecretKey key) {
        open(raw(key));
    }

    /**
     * Mounts a container.
     *
     * @param containerPath where it is
     * @param key of 32 bytes
     * @throws IllegalArgumentException if path or key is bad
     * @throws IllegalStateException if one is mounted already
     */
    public void mount(String containerPath, SecretKey key) {
        setContainerPath(containerPath);
        mount(key);
    }

    private synchronized void open(Key key) {
        try {
            if (isMounted()) {
                throw new IllegalStateException("a container is mounted already");
            }
            java.io.File path = path();
            if (path.isFile()) {
                throw new IllegalArgumentException(containerPath
                        + ": a file, as IOCipher wrote; bring it over with `strongroom import` and mount the room that makes");
            }
            Mount.set(Room.open(path, key, new RoomOptions()));
        } catch (WrongKeyException e) {
            throw new IllegalArgumentException("cannot mount " + containerPath + ": wrong passphrase or key", e);
        } catch (RoomBusyException e) {
            throw new IllegalStateException("cannot mount " + containerPath + ": " + e.getMessage(), e);
        } catch (RoomException e) {
            throw new IllegalArgumentException("cannot mount " + containerPath + ": " + e.getMessage(), e);
        } finally {
            key.close();
        }
    }

    /**
     * Unmounts: everything done is durable when it returns.
     *
     * @throws IllegalStateException if nothing is mounted, other threads used the file system and were neither detached nor ended, or
     *     a transaction is open; nothing is changed then
     */
    public synchronized void unmount() throws IllegalStateException {
        Room room = Mount.mounted();
        if (room == null) {
            throw new IllegalStateException("no container is mounted");
        }
        int others = Mount.others();
        if (others > 0) {
            throw new IllegalStateException(others + " other threads are still active: let them call detachThread, or end");
        }
        try {
            room.close();
        } catch (RoomBusyException e) {
            throw new IllegalStateException("cannot unmount: " + e.getMessage(), e);
        } catch (RoomException e) {
            Mount.set(null);
            throw new IllegalStateException("the last changes could not be made durable: " + e.getMessage(), e);
        }
        Mount.set(null);
    }

    /**
     * Whether a container is mounted.
     *
     * @return whether one is
     */
    public boolean isMounted() {
        Room room = Mount.mounted();
        return room != null && room.isOpen();
    }

    /** Says that this thread is done with the file system for now. It may use it again. */
    public void detachThread() {
        Mount.detach();
    }

    /**
     * Begins a transaction: what is done until it is completed is durable as a whole, or after a crash not at all. They nest.
     *
     * @throws IllegalStateException if nothing is mounted
     */
    public void beginTransaction() {
        try {
            Mount.room().begin();
        } catch (java.io.IOException e) {
            throw new IllegalStateException("cannot begin a transaction: " + e.getMessage(), e);
        }
    }

    /**
     * Completes a transaction. The outermost makes durable what was done.
     *
     * @throws IllegalStateException if nothing is mounted, no transaction is open, or the storage failed
     */
    public void completeTransaction() {
        try {
            Mount.room().complete();
        } catch (java.io.IOException e) {
            throw new IllegalStateException("cannot complete the transaction: " + e.getMessage(), e);
        }
    }

    private synchronized java.io.File path() {
        if (containerPath.isEmpty()) {
            throw new IllegalArgumentException("no container path is set");
        }
        return new java.io.File(containerPath);
    }

    private static Key passphrase(String password) {
        if (password == null || password.isEmpty()) {
            throw new IllegalArgumentException("an empty passphrase");
        }
        return Key.passphrase(password.toCharArray());
    }

    private static Key raw(byte[] key) {
        if (key == null || key.length != KEY_LENGTH) {
            throw new IllegalArgumentException("a key has " + KEY_LENGTH + " bytes");
        }
        return Key.raw(key.clone());
    }

    private static Key raw(SecretKey key) {
        byte[] bytes = key == null ? null : key.getEncoded();
        try {
            return raw(bytes);
        } finally {
            if (bytes != null) {
                Arrays.fill(bytes, (byte) 0);
            }
        }
    }
}
