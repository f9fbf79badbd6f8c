package info.guardianproject.iocipher;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.strongroom.RoomOptions;

/** A mounted container for each test. */
abstract class DropIn {
    final VirtualFileSystem vfs = VirtualFileSystem.get();
    Path temporary;
    String container;

    @BeforeEach
    void begin() throws IOException {
        VirtualFileSystem.newContainerOptions = new RoomOptions().argon2(8192, 1, 1);
        temporary = Files.createTempDirectory("strongroom-test");
        container = temporary.resolve("container").toString();
        vfs.setContainerPath(container);
        vfs.createNewContainer(new byte[32]);
        vfs.mount(new byte[32]);
    }

    @AfterEach
    void end() throws IOException {
        if (vfs.isMounted()) {
            Mount.mounted().abandon();
            Mount.set(null);
        }
        try (Stream<Path> all = Files.walk(temporary)) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(java.io.File::delete);
        }
    }

    void remount() {
        vfs.unmount();
        vfs.mount(new byte[32]);
    }

    static void put(String path, String text) throws IOException {
        try (FileOutputStream out = new FileOutputStream(path)) {
            out.write(text.getBytes());
        }
    }

    static String get(String path) throws IOException {
        try (FileInputStream in = new FileInputStream(path)) {
            return new String(in.readAllBytes());
        }
    }
}
