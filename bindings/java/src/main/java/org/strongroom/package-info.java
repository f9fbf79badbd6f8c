/**
 * Encrypted file systems inside Java programs.
 *
 * <p>A {@link org.strongroom.Room} is an encrypted POSIX file system kept in an ordinary directory. This package opens rooms and
 * works in them by path and by {@link org.strongroom.RoomFile}; {@code org.strongroom.nio} puts the same behind
 * {@code java.nio.file}, and {@code info.guardianproject.iocipher} behind the classes of IOCipher.
 *
 * <p>Paths are strings between slashes, from the root, as POSIX walks them. A name that is not UTF-8 (made by another program)
 * comes as a string in which each odd byte is a lone surrogate from U+DC80 to U+DCFF, and is found again by that string.
 *
 * <p>Needs nothing newer than Java 8, and runs on Android.
 */
package org.strongroom;
