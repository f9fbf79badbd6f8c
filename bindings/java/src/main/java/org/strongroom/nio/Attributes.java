package org.strongroom.nio;

import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.GroupPrincipal;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.UserPrincipal;
import java.time.Instant;
import java.util.EnumSet;
import java.util.Set;
import org.strongroom.FileKind;
import org.strongroom.Stat;

/** Attributes as java.nio.file names them. */
record Attributes(Stat stat) implements PosixFileAttributes {
    /** In the order of the bits, from the owner's read on. */
    private static final PosixFilePermission[] BITS = PosixFilePermission.values();

    static Set<PosixFilePermission> permissions(int mode) {
        Set<PosixFilePermission> set = EnumSet.noneOf(PosixFilePermission.class);
        for (int i = 0; i < BITS.length; i++) {
            if ((mode & 0400 >> i) != 0) {
                set.add(BITS[i]);
            }
        }
        return set;
    }

    static int mode(Set<PosixFilePermission> permissions) {
        int mode = 0;
        for (PosixFilePermission permission : permissions) {
            mode |= 0400 >> permission.ordinal();
        }
        return mode;
    }

    private static FileTime time(long seconds, int nanos) {
        return FileTime.from(Instant.ofEpochSecond(seconds, nanos));
    }

    @Override
    public UserPrincipal owner() {
        return new RoomFileSystem.Principal(stat.owner());
    }

    @Override
    public GroupPrincipal group() {
        return new RoomFileSystem.Principal(stat.group());
    }

    @Override
    public Set<PosixFilePermission> permissions() {
        return permissions(stat.mode());
    }

    @Override
    public FileTime lastModifiedTime() {
        return time(stat.modifiedSeconds(), stat.modifiedNanos());
    }

    @Override
    public FileTime lastAccessTime() {
        return time(stat.accessedSeconds(), stat.accessedNanos());
    }

    @Override
    public FileTime creationTime() {
        return time(stat.createdSeconds(), stat.createdNanos());
    }

    @Override
    public boolean isRegularFile() {
        return stat.kind() == FileKind.REGULAR;
    }

    @Override
    public boolean isDirectory() {
        return stat.isDirectory();
    }

    @Override
    public boolean isSymbolicLink() {
        return stat.kind() == FileKind.SYMLINK;
    }

    @Override
    public boolean isOther() {
        return !isRegularFile() && !isDirectory() && !isSymbolicLink();
    }

    @Override
    public long size() {
        return stat.size();
    }

    @Override
    public Object fileKey() {
        return stat.inode();
    }
}
