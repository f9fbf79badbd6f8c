package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.strongroom.RoomException;
import org.strongroom.RoomException.Kind;
import org.strongroom.RoomFile;

class ThreadsTest extends Contract {
    static final int THREADS = 8;

    interface Work {
        void of(int thread) throws Exception;
    }

    /** Runs it in eight threads; fails with what one of them threw. */
    static void eight(Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Callable<Void>> all = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                int thread = i;
                all.add(() -> {
                    work.of(thread);
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(all)) {
                try {
                    done.get();
                } catch (ExecutionException e) {
                    if (e.getCause() instanceof Exception inner) {
                        throw inner;
                    }
                    throw new AssertionError(e.getCause());
                }
            }
        } finally {
            threads.shutdownNow();
            assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void threads_own_files() throws Exception {
        eight(thread -> {
            for (int round = 0; round < 20; round++) {
                byte[] bytes = pattern(50_000 + thread, thread * 100 + round);
                put(room, at + "/f" + thread, bytes);
                assertArrayEquals(bytes, get(room, at + "/f" + thread));
            }
        });
    }

    @Test
    void threads_one_file() throws Exception {
        int part = 10_007;
        try (RoomFile file = room.openFile(at + "/f", NEW, 0644)) {
            eight(thread -> {
                byte[] bytes = pattern(part, thread);
                for (int from = 0; from < part; from += 997) {
                    file.writeAt((long) thread * part + from, bytes, from, Math.min(997, part - from));
                }
            });
            for (int thread = 0; thread < THREADS; thread++) {
                assertArrayEquals(pattern(part, thread), part(file, (long) thread * part, part));
            }
        }
    }

    @Test
    void threads_append() throws Exception {
        eight(thread -> {
            try (RoomFile file = room.openFile(at + "/log", W | RoomFile.APPEND | RoomFile.CREATE, 0644)) {
                for (int i = 0; i < 200; i++) {
                    byte[] line = ("thread " + thread + " line " + i + "\n").getBytes();
                    file.writeAt(0, line, 0, line.length);
                }
            }
        });
        List<String> lines = new String(get(room, at + "/log")).lines().sorted().collect(Collectors.toList());
        List<String> wanted = Stream.iterate(0, n -> n + 1).limit(THREADS * 200)
                .map(n -> "thread " + n / 200 + " line " + n % 200).sorted().collect(Collectors.toList());
        assertEquals(wanted, lines);
    }

    @Test
    void threads_open_close() throws Exception {
        eight(thread -> {
            for (int i = 0; i < 300; i++) {
                String path = at + "/same" + i % 5;
                try {
                    switch ((i + thread) % 3) {
                        case 0 -> put(room, path, pattern(100, i));
                        case 1 -> get(room, path);
                        default -> room.removeFile(path);
                    }
                } catch (RoomException e) {
                    assertEquals(Kind.NOT_FOUND, e.kind(), e.toString());
                } catch (AssertionError shorter) {
                    // Another cut it between its length and its content.
                }
            }
        });
    }

    @Test
    void handle_two_threads() throws Exception {
        byte[] bytes = pattern(100_000, 3);
        put(room, at + "/f", bytes);
        for (int round = 0; round < 20; round++) {
            RoomFile file = room.openFile(at + "/f", RW, 0);
            eight(thread -> {
                for (int i = 0; i < 50; i++) {
                    int from = (thread * 1009 + i * 613) % 90_000;
                    try {
                        if (thread == 0 && i == 30) {
                            file.close();
                        } else if (thread == 1) {
                            file.writeAt(from, bytes, from, 100);
                        } else {
                            assertArrayEquals(Arrays.copyOfRange(bytes, from, from + 500), part(file, from, 500));
                        }
                    } catch (RoomException e) {
                        assertEquals(Kind.CLOSED, e.kind());
                    }
                }
            });
            file.close();
        }
        assertArrayEquals(bytes, get(room, at + "/f"));
    }
}
