package info.guardianproject.iocipher;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import javax.crypto.SecretKey;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;
import org.strongroom.Child;

class VirtualFileSystemTest extends DropIn {
    @Test
    void there_is_one_and_its_container_is_made_mounted_unmounted_and_deleted() throws IOException {
        assertSame(vfs, VirtualFileSystem.get());
        assertTrue(vfs.isMounted());
        put("/f", "x");
        vfs.unmount();
        assertFalse(vfs.isMounted());
        assertEquals(container, vfs.getContainerPath());
        assertFalse(new File("/f").exists());
        vfs.mount(container, new byte[32]);
        assertEquals("x", get("/f"));
        assertThrows(IllegalStateException.class, () -> vfs.mount(new byte[32]));
        assertThrows(IllegalStateException.class, () -> vfs.setContainerPath(container));
        assertThrows(IllegalStateException.class, () -> vfs.createNewContainer(container + 2, new byte[32]));
        assertThrows(IllegalStateException.class, vfs::deleteContainer);
        vfs.unmount();
        assertThrows(IllegalStateException.class, vfs::unmount);
        assertTrue(vfs.deleteContainer());
        assertFalse(Files.exists(Path.of(container)));
        assertFalse(vfs.deleteContainer(container));
    }

    @Test
    void passphrases_keys_and_secret_keys_open_what_they_made() throws IOException {
        vfs.unmount();
        byte[] key = new byte[32];
        key[31] = 5;
        SecretKey secret = new SecretKeySpec(key, "AES");
        String a = container + "-a";
        vfs.createNewContainer(a, "pass");
        vfs.mount(a, "pass");
        vfs.unmount();
        assertThrows(IllegalArgumentException.class, () -> vfs.mount("Pass"));
        assertThrows(IllegalArgumentException.class, () -> vfs.mount(a, key));
        String b = container + "-b";
        vfs.createNewContainer(b, key);
        assertEquals(5, key[31]);
        vfs.mount(b, secret);
        vfs.unmount();
        String c = container + "-c";
        vfs.createNewContainer(c, secret);
        vfs.mount(key);
        vfs.unmount();
        String d = container + "-d";
        vfs.setContainerPath(d);
        vfs.createNewContainer(secret);
        vfs.mount(secret);
        vfs.unmount();
        assertTrue(vfs.deleteContainer());
        vfs.createNewContainer(key);
        vfs.mount(key);
        vfs.unmount();
        String e = container + "-e";
        vfs.setContainerPath(e);
        vfs.createNewContainer("pass");
        vfs.mount("pass");
        vfs.unmount();
        for (String path : new String[] {a, b, c, d, e}) {
            assertTrue(vfs.deleteContainer(path));
        }
    }

    @Test
    void bad_arguments_are_illegal_arguments() throws IOException {
        vfs.unmount();
        for (String bad : new String[] {null, "", "/no/such/directory/container"}) {
            assertThrows(IllegalArgumentException.class, () -> vfs.setContainerPath(bad));
        }
        assertThrows(IllegalArgumentException.class, () -> vfs.createNewContainer(container, "second"));
        for (byte[] bad : new byte[][] {null, {}, new byte[16], new byte[31], new byte[33]}) {
            assertThrows(IllegalArgumentException.class, () -> vfs.mount(bad));
            assertThrows(IllegalArgumentException.class, () -> vfs.createNewContainer(container + 2, bad));
        }
        assertThrows(IllegalArgumentException.class, () -> vfs.mount((String) null));
        assertThrows(IllegalArgumentException.class, () -> vfs.mount(""));
        assertThrows(IllegalArgumentException.class, () -> vfs.mount((SecretKey) null));
        assertThrows(IllegalArgumentException.class, () -> vfs.mount(container + "missing", new byte[32]));
        Path old = Files.write(temporary.resolve("old.db"), new byte[8192]);
        IllegalArgumentException e = assertThrows(IllegalArgumentException.class, () -> vfs.mount(old.toString(), "pass"));
        assertTrue(e.getMessage().contains("strongroom import"), e.getMessage());
        assertTrue(vfs.deleteContainer(old.toString()));
        assertFalse(vfs.deleteContainer(""));
        vfs.mount(container, new byte[32]);
    }

    /** The first sync creates the log of the catalog, where there is space, and nothing removes it. */
    @Test
    void a_container_that_was_synced_is_deleted_and_its_path_is_free() throws IOException {
        for (int i = 0; i < 2; i++) {
            try (FileOutputStream out = new FileOutputStream("/f")) {
                out.write(new byte[100_000]);
                out.getFD().sync();
                out.getFD().sync();
            }
            vfs.unmount();
            assertTrue(vfs.deleteContainer());
            assertFalse(Files.exists(Path.of(container)));
            vfs.createNewContainer(new byte[32]);
            vfs.mount(new byte[32]);
        }
    }

    @Test
    void what_a_crash_leaves_in_a_container_is_deleted_with_it() throws IOException {
        vfs.unmount();
        for (String name : new String[] {
            "header.json.new", "header.backup.json.new", "catalog.db-log", "catalog.db-wal", "catalog.db-shm", "catalog.db-journal",
            "catalog.db-pages.new", "catalog.db.new", "catalog.db.new-pages", "catalog.db.new-pages.new", "catalog.db.new-wal",
            "catalog.db.copy", "catalog.db.copy-pages", "backup.incomplete", "backup.growing", "lock", "control"
        }) {
            Files.write(Path.of(container, name), new byte[1]);
        }
        assertTrue(vfs.deleteContainer());
        assertFalse(Files.exists(Path.of(container)));
    }

    @Test
    void only_a_room_is_deleted_and_nothing_beside_it() throws IOException {
        vfs.unmount();
        Path mine = Files.write(Path.of(container, "mine"), new byte[1]);
        assertFalse(vfs.deleteContainer());
        assertTrue(Files.exists(mine));
        assertThrows(IllegalArgumentException.class, () -> vfs.mount(new byte[32]));
        assertFalse(vfs.deleteContainer());
        assertTrue(Files.exists(mine));
        Files.delete(mine);
        assertTrue(vfs.deleteContainer());
        assertFalse(Files.exists(Path.of(container)));
        Path directory = Files.createDirectories(temporary.resolve("photos/segments"));
        Files.write(directory.resolve("00000000000000000001"), new byte[1]);
        assertFalse(vfs.deleteContainer(directory.getParent().toString()));
        assertTrue(Files.exists(directory.resolve("00000000000000000001")));
    }

    @Test
    void another_thread_keeps_it_mounted_until_it_is_detached_or_ends() throws Exception {
        CountDownLatch used = new CountDownLatch(1);
        CountDownLatch detach = new CountDownLatch(1);
        CountDownLatch detached = new CountDownLatch(1);
        CountDownLatch end = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            new File("/").exists();
            used.countDown();
            await(detach);
            vfs.detachThread();
            detached.countDown();
            await(end);
        });
        thread.start();
        used.await();
        assertThrows(IllegalStateException.class, vfs::unmount);
        assertTrue(vfs.isMounted());
        detach.countDown();
        detached.await();
        remount();
        end.countDown();
        thread.join();
        // One that ends without being detached is no reason for anything.
        Thread careless = new Thread(() -> new File("/").exists());
        careless.start();
        careless.join();
        vfs.detachThread();
        vfs.detachThread();
        remount();
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void transactions_nest_and_complete() throws IOException {
        vfs.beginTransaction();
        vfs.beginTransaction();
        put("/f", "x");
        vfs.completeTransaction();
        assertThrows(IllegalStateException.class, vfs::unmount);
        vfs.completeTransaction();
        assertThrows(IllegalStateException.class, vfs::completeTransaction);
        remount();
        assertEquals("x", get("/f"));
        vfs.unmount();
        assertThrows(IllegalStateException.class, vfs::beginTransaction);
        assertThrows(IllegalStateException.class, vfs::completeTransaction);
    }

    /** For {@code a_transaction_is_all_or_nothing_when_the_process_is_killed}. */
    public static final class Writer {
        public static void main(String[] arguments) throws Exception {
            VirtualFileSystem vfs = VirtualFileSystem.get();
            vfs.mount(arguments[0], new byte[32]);
            vfs.beginTransaction();
            for (int i = 0; i < 20; i++) {
                put("/in" + i, "x".repeat(100_000));
            }
            if (arguments.length > 1) {
                vfs.completeTransaction();
            }
            System.out.println("written");
            System.out.flush();
            Thread.sleep(600_000);
        }
    }

    @Test
    void a_transaction_is_all_or_nothing_when_the_process_is_killed() throws Exception {
        vfs.unmount();
        try (Child child = new Child(Writer.class, container)) {
            child.says("written");
            child.kill();
        }
        vfs.mount(new byte[32]);
        assertEquals(0, new File("/").list().length);
        vfs.unmount();
        try (Child child = new Child(Writer.class, container, "complete")) {
            child.says("written");
            child.kill();
        }
        vfs.mount(new byte[32]);
        assertEquals(20, new File("/").list().length);
    }

    /** For {@code each_change_of_a_file_opened_as_rws_or_rwd_survives_the_end_of_the_machine}. */
    public static final class Durable {
        public static void main(String[] arguments) throws Exception {
            VirtualFileSystem.get().mount(arguments[0], new byte[32]);
            info.guardianproject.libcore.io.Posix posix = new info.guardianproject.libcore.io.Posix();
            RandomAccessFile plain = new RandomAccessFile("/f", "rw");
            plain.writeBytes("before");
            plain.getFD().sync();
            RandomAccessFile file = new RandomAccessFile("/f", arguments[1]);
            ByteBuffer data = ByteBuffer.wrap("AFTER".getBytes());
            switch (arguments[2]) {
                case "write" -> file.getChannel().write(data);
                case "write at" -> file.getChannel().write(data, 0);
                case "transfer" -> file.getChannel().transferFrom(Channels.newChannel(new ByteArrayInputStream(data.array())), 0, 100);
                case "truncate" -> file.getChannel().truncate(5);
                case "stream" -> new FileOutputStream(file.getFD()).write(data.array());
                case "posix write" -> posix.write(file.getFD(), data, 0);
                case "posix write array" -> posix.write(file.getFD(), data.array(), 0, 5, 0);
                case "posix pwrite" -> posix.pwrite(file.getFD(), data, 0, 0);
                case "posix pwrite array" -> posix.pwrite(file.getFD(), data.array(), 0, 5, 0, 0);
                case "posix truncate" -> posix.ftruncate(file.getFD(), 5);
                default -> throw new IllegalArgumentException(arguments[2]);
            }
            Runtime.getRuntime().halt(7);
        }
    }

    @Test
    void each_change_of_a_file_opened_as_rws_or_rwd_survives_the_end_of_the_machine() throws Exception {
        vfs.unmount();
        String mode = "rws";
        for (String change : new String[] {
            "write", "write at", "transfer", "truncate", "stream", "posix write", "posix write array", "posix pwrite",
            "posix pwrite array", "posix truncate"
        }) {
            mode = mode.equals("rws") ? "rwd" : "rws";
            try (Child child = new Child(Durable.class, container, mode, change)) {
                child.ends(7);
            }
            vfs.mount(new byte[32]);
            assertEquals(change.endsWith("truncate") ? "befor" : "AFTERe", get("/f"), change);
            assertTrue(new File("/f").delete());
            vfs.unmount();
        }
    }

    @Test
    void without_a_container_files_are_missing_and_streams_say_why() throws IOException {
        put("/f", "x");
        FileInputStream open = new FileInputStream("/f");
        vfs.unmount();
        File file = new File("/f");
        assertFalse(file.exists() || file.delete() || file.mkdir() || file.mkdirs() || file.isDirectory());
        assertEquals(0, file.length());
        assertEquals(0, new File("/").list().length);
        assertNull(new File("/").getParent());
        assertEquals(0, file.getTotalSpace());
        IOException e = assertThrows(java.io.FileNotFoundException.class, () -> new FileInputStream("/f"));
        assertTrue(e.getMessage().contains("mount"), e.getMessage());
        assertThrows(IOException.class, file::createNewFile);
        assertThrows(IOException.class, open::read);
        assertThrows(IOException.class, open::available);
        open.close();
        vfs.mount(new byte[32]);
        assertThrows(IOException.class, open::read);
        assertEquals("x", get("/f"));
    }
}
