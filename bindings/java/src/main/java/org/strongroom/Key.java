package org.strongroom;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A passphrase or key. It holds a copy of what it is made of, and overwrites the array it was given; {@link #close} overwrites the
 * copy. The calls of {@link Room} that take one leave it as it is, so that it opens again; close it when it is not needed.
 */
public final class Key implements AutoCloseable {
    private final int kind;
    private byte[] secret;

    private Key(int kind, byte[] secret) {
        this.kind = kind;
        this.secret = secret;
    }

    /**
     * A passphrase, as its UTF-8 bytes. Opening by it costs about a second, by design.
     *
     * @param passphrase at least one character; overwritten with zeros
     * @return the key
     */
    public static Key passphrase(char[] passphrase) {
        // Three bytes at most for each char, or four for two: never grown, so no copy is left behind.
        ByteBuffer bytes = ByteBuffer.allocate(passphrase.length * 3);
        CoderResult result = StandardCharsets.UTF_8.newEncoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .encode(CharBuffer.wrap(passphrase), bytes, true);
        byte[] secret = Arrays.copyOf(bytes.array(), bytes.position());
        Arrays.fill(bytes.array(), (byte) 0);
        Arrays.fill(passphrase, '\0');
        if (result.isError()) {
            Arrays.fill(secret, (byte) 0);
            throw new IllegalArgumentException("a passphrase with half a character in it");
        }
        return new Key(0, secret);
    }

    /**
     * A passphrase, byte for byte. Opening by it costs about a second, by design.
     *
     * @param passphrase at least one byte; overwritten with zeros
     * @return the key
     */
    public static Key passphrase(byte[] passphrase) {
        return new Key(0, take(passphrase));
    }

    /**
     * The content of a key file.
     *
     * @param content all of it; overwritten with zeros
     * @return the key
     */
    public static Key file(byte[] content) {
        return new Key(1, take(content));
    }

    /**
     * A raw key. Opening by it costs nothing; keeping it safe is the caller's.
     *
     * @param key 32 random bytes; overwritten with zeros
     * @return the key
     */
    public static Key raw(byte[] key) {
        return new Key(2, take(key));
    }

    private static byte[] take(byte[] given) {
        byte[] copy = given.clone();
        Arrays.fill(given, (byte) 0);
        return copy;
    }

    int kind() {
        return kind;
    }

    byte[] secret() throws RoomException {
        byte[] now = secret;
        if (now == null) {
            throw new ClosedException(9, "the key was closed");
        }
        return now;
    }

    /** Overwrites the key. */
    @Override
    public void close() {
        byte[] now = secret;
        secret = null;
        if (now != null) {
            Arrays.fill(now, (byte) 0);
        }
    }

    @Override
    public String toString() {
        return "Key(..)";
    }
}
