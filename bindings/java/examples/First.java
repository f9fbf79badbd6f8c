import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.strongroom.nio.RoomFileSystemProvider;

/** Creates a room, writes a file, and reads it again after the room was closed. */
public final class First {
    private First() {}

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        try (FileSystem room = FileSystems.newFileSystem(RoomFileSystemProvider.uri(directory),
                Map.of("passphrase", "correct horse".toCharArray(), "createRoom", true))) {
            Files.createDirectories(room.getPath("/letters"));
            Files.writeString(room.getPath("/letters/hello.txt"), "hello");
        }
        try (FileSystem room = FileSystems.newFileSystem(directory, Map.of("passphrase", "correct horse".toCharArray()))) {
            System.out.println(Files.readString(room.getPath("/letters/hello.txt")));
        }
    }
}
