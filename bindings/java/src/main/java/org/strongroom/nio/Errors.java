package org.strongroom.nio;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.AccessDeniedException;
import java.nio.file.ClosedFileSystemException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.ReadOnlyFileSystemException;
import org.strongroom.RoomException;

/** What a room says, in the words of java.nio.file. */
final class Errors {
    private Errors() {}

    /** The exception for a path, and another or null. */
    static IOException of(RoomException e, RoomPath path, RoomPath other) {
        String file = path.toString();
        String second = other == null ? null : other.toString();
        IOException ours;
        switch (e.kind()) {
            case NOT_FOUND:
                ours = new NoSuchFileException(file, second, null);
                break;
            case EXISTS:
                ours = new FileAlreadyExistsException(second == null ? file : second);
                break;
            case NOT_EMPTY:
                ours = new DirectoryNotEmptyException(second == null ? file : second);
                break;
            case NOT_DIRECTORY:
                ours = new NotDirectoryException(file);
                break;
            case NOT_PERMITTED:
                ours = new AccessDeniedException(file, second, e.getMessage());
                break;
            case IS_DIRECTORY:
            case INVALID_ARGUMENT:
            case NOT_SUPPORTED:
                ours = new FileSystemException(file, second, e.getMessage());
                break;
            case READ_ONLY:
                throw (RuntimeException) new ReadOnlyFileSystemException().initCause(e);
            case CLOSED:
                if (!path.room().isOpen()) {
                    throw (RuntimeException) new ClosedFileSystemException().initCause(e);
                }
                ours = new ClosedChannelException();
                break;
            default:
                // Damage, storage, space: what it says is what there is to know.
                return e;
        }
        ours.initCause(e);
        return ours;
    }

    static IOException of(RoomException e, RoomPath path) {
        return of(e, path, null);
    }
}
