/**
 * IOCipher's classes over a room: an app that used IOCipher changes its dependency and nothing else.
 *
 * <p>A container is a room now, and its path a directory. Containers that IOCipher wrote are brought over by the command
 * {@code strongroom import}. What apps rely on is as it was, odd as some of it is: {@code isFile()} of what is missing is true,
 * {@code list()} of a missing directory is an empty array, {@code deleteOnExit()} is refused, a
 * {@link info.guardianproject.iocipher.FileDescriptor} has a public position, threads that used the file system and were neither
 * detached nor ended keep it from being unmounted, a missing parent directory is an error. Permission bits are kept, and not checked.
 *
 * <p>Paths begin at the root of the room; one without a slash before it does too.
 */
package info.guardianproject.iocipher;
