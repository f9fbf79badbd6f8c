package org.strongroom;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** A virtual machine of its own, for what ends one. Its {@code main} says each step on its own line of standard output. */
public final class Child implements AutoCloseable {
    private final Process process;
    private final BufferedReader out;

    public Child(Class<?> main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                System.getProperty("java.home") + "/bin/java", "-Xcheck:jni", "-Xshare:auto", "-XX:TieredStopAtLevel=1",
                "-cp", System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")), main.getName()));
        command.addAll(Arrays.asList(arguments));
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        out = new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    /** Waits until it said this. */
    public void says(String wanted) throws IOException {
        List<String> before = new ArrayList<>();
        for (String line = out.readLine(); line != null; line = out.readLine()) {
            before.add(line);
            if (line.equals(wanted)) {
                return;
            }
        }
        throw new AssertionError("it never said '" + wanted + "', but:\n" + String.join("\n", before));
    }

    /** SIGKILL. */
    public void kill() throws InterruptedException {
        process.destroyForcibly();
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
    }

    /** Waits for its end, and returns what else it said. */
    public String ends(int code) throws IOException, InterruptedException {
        String rest = out.lines().collect(Collectors.joining("\n"));
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        if (process.exitValue() != code) {
            throw new AssertionError("it ended with " + process.exitValue() + ":\n" + rest);
        }
        return rest;
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    /** What the children of the contract do. */
    public static void main(String[] arguments) throws Exception {
        File dir = new File(arguments[1]);
        Room room;
        try {
            room = Room.open(dir, Key.raw(new byte[32]), new RoomOptions());
        } catch (RoomBusyException e) {
            say("busy");
            return;
        }
        RoomFile file = room.openFile("/child", RoomFile.WRITE | RoomFile.CREATE, 0644);
        switch (arguments[0]) {
            case "open" -> say("opened");
            case "transaction" -> {
                room.begin();
                for (int i = 0; i < 50; i++) {
                    room.makeDirectory("/t" + i, 0755);
                    file.writeAt(i * 100_000L, new byte[100_000], 0, 100_000);
                    file.sync();
                }
                say("within");
                if (arguments.length > 2) {
                    room.complete();
                    say("completed");
                }
                Thread.sleep(600_000);
            }
            case "sync" -> {
                file.writeAt(0, "synced".getBytes(), 0, 6);
                file.sync();
                say("synced");
                Thread.sleep(600_000);
            }
            case "exit" -> {
                file.writeAt(0, "synced".getBytes(), 0, 6);
                file.sync();
                file.writeAt(6, " and not".getBytes(), 0, 8);
                // Daemons are at work when the machine ends; none of them may be the reason for a crash.
                for (int i = 0; i < 4; i++) {
                    int thread = i;
                    Thread worker = new Thread(() -> {
                        try (RoomFile mine = room.openFile("/worker" + thread, RoomFile.WRITE | RoomFile.CREATE, 0644)) {
                            for (long at = 0; ; at += 4096) {
                                mine.writeAt(at % (1 << 20), new byte[4096], 0, 4096);
                            }
                        } catch (IOException e) {
                            // Closed under it: that is how it ends.
                        }
                    });
                    worker.setDaemon(true);
                    worker.start();
                }
                Thread.sleep(200);
                if (arguments.length > 2) {
                    room.begin();
                }
                say("ending");
                if (arguments.length > 3) {
                    System.exit(7);
                }
            }
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }
}
