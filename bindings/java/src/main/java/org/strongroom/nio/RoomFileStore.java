package org.strongroom.nio;

import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileAttributeView;
import java.nio.file.attribute.FileOwnerAttributeView;
import java.nio.file.attribute.FileStoreAttributeView;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.util.Set;
import org.strongroom.RoomException;
import org.strongroom.RoomInfo;

/** The space of the storage that holds a room. */
final class RoomFileStore extends FileStore {
    private static final Set<Class<?>> VIEWS = Set.of(BasicFileAttributeView.class, FileOwnerAttributeView.class,
            PosixFileAttributeView.class, UserDefinedFileAttributeView.class);

    private final RoomFileSystem fs;

    RoomFileStore(RoomFileSystem fs) {
        this.fs = fs;
    }

    private RoomInfo info() throws IOException {
        try {
            return fs.room().info();
        } catch (RoomException e) {
            throw fs.error(e);
        }
    }

    @Override
    public String name() {
        return fs.snapshot() == null ? fs.directory().toString() : fs.directory() + "@" + fs.snapshot();
    }

    @Override
    public String type() {
        return Uris.SCHEME;
    }

    @Override
    public boolean isReadOnly() {
        return fs.isReadOnly();
    }

    @Override
    public long getTotalSpace() throws IOException {
        return info().total();
    }

    @Override
    public long getUsableSpace() throws IOException {
        return info().available();
    }

    @Override
    public long getUnallocatedSpace() throws IOException {
        return info().free();
    }

    @Override
    public long getBlockSize() {
        return 4096;
    }

    @Override
    public boolean supportsFileAttributeView(Class<? extends FileAttributeView> type) {
        return VIEWS.contains(type);
    }

    @Override
    public boolean supportsFileAttributeView(String name) {
        return RoomFileSystem.VIEWS.contains(name);
    }

    @Override
    public <V extends FileStoreAttributeView> V getFileStoreAttributeView(Class<V> type) {
        return null;
    }

    @Override
    public Object getAttribute(String attribute) throws IOException {
        return switch (attribute) {
            case "totalSpace" -> getTotalSpace();
            case "usableSpace" -> getUsableSpace();
            case "unallocatedSpace" -> getUnallocatedSpace();
            default -> throw new UnsupportedOperationException("an attribute of a file store: " + attribute);
        };
    }
}
