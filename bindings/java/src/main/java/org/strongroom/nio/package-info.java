/**
 * Rooms behind {@code java.nio.file}.
 *
 * <pre>{@code
 * Path directory = Path.of("work.strongroom");
 * try (FileSystem room = FileSystems.newFileSystem(directory, Map.of("passphrase", console.readPassword()))) {
 *     Files.copy(Path.of("letter.txt"), room.getPath("/letter.txt"));
 * }
 * }</pre>
 *
 * <p>The environment of {@code newFileSystem} has one of {@code passphrase} ({@code char[]} or {@code byte[]}), {@code key} (32 bytes)
 * and {@code keyFile} (the content), which is overwritten with zeros by the call, and may have {@code createRoom}, {@code readOnly} and
 * {@code acceptRollback} (booleans), {@code stateDirectory}, {@code commitInterval} (milliseconds) and {@code argon2}
 * ({@code int[]}: memory in KiB, passes, lanes), as {@link org.strongroom.RoomOptions} explains them. A room has the URI
 * {@code strongroom:/the/directory}, a path in an open one {@code strongroom:/the/directory!/the/path}. A new room is created by its URI,
 * {@link org.strongroom.nio.RoomFileSystemProvider#uri}: of a {@code Path} that does not exist yet the JDK asks other providers first.
 *
 * <p>A snapshot of an open room is a file system of its own, which reads only:
 * {@link org.strongroom.nio.RoomFileSystem#openSnapshot}. Its URI is {@code strongroom:/the/directory@monday}, and that of a path in it
 * {@code strongroom:/the/directory@monday!/the/path}. An {@code @} in a name of a directory is written as {@code %40} in a URI.
 *
 * <p>Permission bits are kept, and not checked. What was written is durable after {@code FileChannel.force}, after closing the file
 * system, or within five seconds; transactions are those of {@link org.strongroom.nio.RoomFileSystem#room}.
 */
package org.strongroom.nio;
