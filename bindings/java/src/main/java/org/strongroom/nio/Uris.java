package org.strongroom.nio;

import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.strongroom.Room;
import org.strongroom.RoomException;

/**
 * {@code strongroom:/directory} and {@code strongroom:/directory!/path}; of a snapshot, {@code strongroom:/directory@monday} and
 * {@code strongroom:/directory@monday!/path}. In names, {@code !} is written as {@code %21} and {@code @} as {@code %40}.
 */
final class Uris {
    static final String SCHEME = "strongroom";
    private static final String PLAIN = "/-._~";

    private Uris() {}

    /** Of a room {@code snapshot} is null. */
    static URI of(Path directory, String snapshot) {
        return URI.create(SCHEME + ":" + encode(directory.toString()) + (snapshot == null ? "" : "@" + encode(snapshot)));
    }

    static URI of(Path directory, String snapshot, String path) {
        return URI.create(of(directory, snapshot) + "!" + encode(path));
    }

    private static String encode(String text) {
        byte[] bytes;
        try {
            bytes = Room.nameToBytes(text);
        } catch (RoomException e) {
            throw new IllegalArgumentException(e.getMessage(), e);
        }
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            char c = (char) (b & 0xFF);
            if (c < 0x80 && (Character.isLetterOrDigit(c) || PLAIN.indexOf(c) >= 0)) {
                out.append(c);
            } else {
                out.append(String.format("%%%02X", (int) c));
            }
        }
        return out.toString();
    }

    private static String decode(String text) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '%') {
                // A URI that was parsed has two digits here.
                out.write(Integer.parseInt(text.substring(i + 1, i + 3), 16));
                i += 2;
            } else {
                byte[] bytes = String.valueOf(c).getBytes(StandardCharsets.UTF_8);
                out.write(bytes, 0, bytes.length);
            }
        }
        return Room.nameToText(out.toByteArray());
    }

    private static String raw(URI uri) {
        if (!SCHEME.equalsIgnoreCase(uri.getScheme()) || uri.getRawPath() == null || uri.getRawAuthority() != null
                || uri.getRawQuery() != null || uri.getRawFragment() != null) {
            throw new IllegalArgumentException("not of the form strongroom:/directory!/path: " + uri);
        }
        return uri.getRawPath();
    }

    /** What is before the path in the room. */
    private static String root(URI uri) {
        String raw = raw(uri);
        int cut = raw.indexOf('!');
        return cut < 0 ? raw : raw.substring(0, cut);
    }

    /** The room's directory. */
    static Path directory(URI uri) {
        String root = root(uri);
        int cut = root.indexOf('@');
        return Path.of(decode(cut < 0 ? root : root.substring(0, cut)));
    }

    /** The snapshot's name, or null: it is of the room. */
    static String snapshot(URI uri) {
        String root = root(uri);
        int cut = root.indexOf('@');
        return cut < 0 ? null : decode(root.substring(cut + 1));
    }

    /** The path in the room. */
    static String path(URI uri) {
        String raw = raw(uri);
        int cut = raw.indexOf('!');
        if (cut < 0 || !raw.startsWith("/", cut + 1)) {
            throw new IllegalArgumentException("no path in a room (strongroom:/directory!/path): " + uri);
        }
        return decode(raw.substring(cut + 1));
    }
}
