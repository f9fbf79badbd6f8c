package org.strongroom.nio;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.Function;
import org.strongroom.Key;
import org.strongroom.Room;
import org.strongroom.RoomException;
import org.strongroom.RoomOptions;

/** The environment of `newFileSystem`. */
final class Environment {
    private static final String[] KEYS = {"passphrase", "key", "keyFile"};

    /** Not "create": by that, the JDK's own provider of zip files would make one, unencrypted, where a room was meant. */
    private static final String CREATE = "createRoom";

    private final Map<String, ?> env;

    Environment(Map<String, ?> env) {
        this.env = env;
    }

    static boolean hasKey(Map<String, ?> env) {
        for (String name : KEYS) {
            if (env.get(name) != null) {
                return true;
            }
        }
        return false;
    }

    static boolean creates(Map<String, ?> env) {
        return flag(env, CREATE);
    }

    private static boolean flag(Map<String, ?> env, String name) {
        return "true".equals(String.valueOf(env.get(name)));
    }

    private Key bytes(String name, Function<byte[], Key> make) {
        Object value = env.get(name);
        if (value == null) {
            return null;
        }
        if (value instanceof byte[] bytes) {
            return make.apply(bytes);
        }
        if (value instanceof char[] chars && name.equals("passphrase")) {
            return Key.passphrase(chars);
        }
        throw new IllegalArgumentException(name + " is given as an array, which can be overwritten, and not as a "
                + value.getClass().getName());
    }

    private Key key() {
        Key found = null;
        for (String name : KEYS) {
            Key key = bytes(name, name.equals("key") ? Key::raw : name.equals("keyFile") ? Key::file : Key::passphrase);
            if (key != null && found != null) {
                found.close();
                key.close();
                throw new IllegalArgumentException("more than one of passphrase, key and keyFile");
            }
            found = key == null ? found : key;
        }
        if (found == null) {
            throw new IllegalArgumentException("no passphrase, key or keyFile");
        }
        return found;
    }

    RoomFileSystem open(RoomFileSystemProvider provider, Path directory) throws IOException {
        RoomOptions options = new RoomOptions()
                .readOnly(flag(env, "readOnly"))
                .acceptRollback(flag(env, "acceptRollback"));
        if (env.get("stateDirectory") != null) {
            options.stateDirectory(env.get("stateDirectory").toString());
        }
        if (env.get("commitInterval") instanceof Number milliseconds) {
            options.commitInterval(milliseconds.longValue());
        }
        if (env.get("argon2") instanceof int[] cost && cost.length == 3) {
            options.argon2(cost[0], cost[1], cost[2]);
        }
        try (Key key = key()) {
            Room room = creates(env)
                    ? Room.create(directory.toFile(), key, options)
                    : Room.open(directory.toFile(), key, options);
            return new RoomFileSystem(provider, directory, null, room, room.isReadOnly());
        } catch (RoomException e) {
            throw of(e, directory);
        }
    }

    /** Of the host's files, in the words of java.nio.file; of keys and rooms, as it is. */
    private static IOException of(RoomException e, Path directory) {
        return switch (e.kind()) {
            case NOT_FOUND -> (IOException) new java.nio.file.NoSuchFileException(directory.toString()).initCause(e);
            case EXISTS -> (IOException) new java.nio.file.FileAlreadyExistsException(directory.toString()).initCause(e);
            default -> e;
        };
    }
}
