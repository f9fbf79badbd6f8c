package org.strongroom;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/**
 * Names of a room are bytes, those of Java strings. Valid UTF-8 is itself; every other byte is a lone low surrogate from U+DC80 to
 * U+DCFF, which no valid text has. So every name has one string, and finds its bytes again.
 */
final class Names {
    private static final char ESCAPE = 0xDC00;

    private Names() {}

    /** The bytes of a path or name. */
    static byte[] bytes(String text) throws RoomException {
        if (text == null) {
            throw new RoomException(RoomException.Kind.INVALID_ARGUMENT, 22, "null for a path or a name");
        }
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (Character.isSurrogate(c)) {
                return escaped(text);
            }
            if (c == 0) {
                throw new RoomException(RoomException.Kind.INVALID_ARGUMENT, 22, "a path with a NUL in it");
            }
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] escaped(String text) throws RoomException {
        ByteArrayOutputStream out = new ByteArrayOutputStream(text.length() + 8);
        for (int i = 0; i < text.length(); ) {
            int c = text.codePointAt(i);
            int next = i + Character.charCount(c);
            if (c == 0) {
                throw new RoomException(RoomException.Kind.INVALID_ARGUMENT, 22, "a path with a NUL in it");
            } else if (c >= ESCAPE + 0x80 && c <= ESCAPE + 0xFF) {
                out.write(c - ESCAPE);
            } else if (c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE) {
                throw new RoomException(RoomException.Kind.INVALID_ARGUMENT, 22, "a path with half a character in it");
            } else {
                byte[] bytes = text.substring(i, next).getBytes(StandardCharsets.UTF_8);
                out.write(bytes, 0, bytes.length);
            }
            i = next;
        }
        return out.toByteArray();
    }

    /** The string of a path or name. */
    static String text(byte[] bytes, int at, int length) {
        ByteBuffer in = ByteBuffer.wrap(bytes, at, length);
        CharBuffer out = CharBuffer.allocate(length);
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT);
        while (true) {
            CoderResult result = decoder.decode(in, out, true);
            if (!result.isError()) {
                break;
            }
            for (int i = 0; i < result.length(); i++) {
                out.put((char) (ESCAPE + (in.get() & 0xFF)));
            }
        }
        // The cast: in Java 8 the method is the parent's.
        ((java.nio.Buffer) out).flip();
        return out.toString();
    }

    static String text(byte[] bytes) {
        return text(bytes, 0, bytes.length);
    }
}
