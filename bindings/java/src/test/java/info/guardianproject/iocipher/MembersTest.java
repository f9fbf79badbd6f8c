package info.guardianproject.iocipher;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import info.guardianproject.libcore.io.Posix;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The list of members: each is there, and each is called by a test or refuses. */
class MembersTest extends DropIn {
    private static final Class<?>[] TESTS = {VirtualFileSystemTest.class, FilesTest.class, PosixTest.class};

    private record Row(Class<?> owner, String member, String does) {
        boolean refused() {
            return does.startsWith("Refused:");
        }
    }

    private static List<Row> rows() throws Exception {
        List<Row> rows = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("src/test/resources/drop-in-members.tsv"))) {
            if (!line.startsWith("#")) {
                String[] parts = line.split("\t");
                rows.add(new Row(Class.forName(parts[0]), parts[1], parts[2]));
            }
        }
        return rows;
    }

    private static String name(Class<?> type) {
        return type.isArray() ? name(type.getComponentType()) + "[]"
                : type == java.io.File.class ? "java.io.File" : type.getSimpleName();
    }

    private static String names(Class<?>[] types) {
        return Arrays.stream(types).map(MembersTest::name).collect(Collectors.joining(", ", "(", ")"));
    }

    private static String text(Member member) {
        String prefix = Modifier.isStatic(member.getModifiers()) ? "static " : "";
        if (member instanceof Method method) {
            return prefix + name(method.getReturnType()) + " " + method.getName() + names(method.getParameterTypes());
        }
        if (member instanceof Constructor<?> constructor) {
            return constructor.getDeclaringClass().getSimpleName() + names(constructor.getParameterTypes());
        }
        return prefix + name(((Field) member).getType()) + " " + member.getName();
    }

    private static Member find(Row row) {
        return Stream.of(row.owner.getDeclaredMethods(), row.owner.getDeclaredConstructors(), row.owner.getDeclaredFields())
                .<Member>flatMap(Arrays::stream)
                .filter(member -> Modifier.isPublic(member.getModifiers()) && !member.isSynthetic())
                .filter(member -> text(member).equals(row.member))
                .findFirst()
                .orElse(null);
    }

    @Test
    void every_member_of_the_list_is_there() throws Exception {
        List<String> missing = new ArrayList<>();
        for (Row row : rows()) {
            assertFalse(row.does.isEmpty());
            if (find(row) == null) {
                missing.add(row.owner.getName() + " " + row.member);
            }
        }
        assertEquals(List.of(), missing);
        assertTrue(rows().size() > 300);
        assertEquals(java.io.File.class, File.class.getSuperclass());
        assertInstanceOf(java.nio.channels.spi.AbstractInterruptibleChannel.class, new IOCipherFileChannel(null, null, 0));
    }

    @Test
    void every_member_that_was_refused_refuses() throws Exception {
        int refused = 0;
        for (Row row : rows()) {
            if (!row.refused()) {
                continue;
            }
            Method method = (Method) find(row);
            Object[] arguments = Arrays.stream(method.getParameterTypes()).map(MembersTest::nothing).toArray();
            InvocationTargetException e = assertThrows(InvocationTargetException.class, () -> method.invoke(new Posix(), arguments));
            assertInstanceOf(UnsupportedOperationException.class, e.getCause(), row.member);
            refused++;
        }
        assertTrue(refused > 50);
    }

    private static Object nothing(Class<?> type) {
        return type == int.class ? (Object) 0 : type == long.class ? (Object) 0L : type == boolean.class ? (Object) false : null;
    }

    @Test
    void every_other_member_is_called_by_a_test() throws Exception {
        Set<String> called = new HashSet<>();
        for (Class<?> test : TESTS) {
            called.addAll(references(test));
        }
        List<String> not = new ArrayList<>();
        for (Row row : rows()) {
            Member member = find(row);
            if (row.refused() || member == null) {
                continue;
            }
            String descriptor = member instanceof Method method
                    ? method.getName() + MethodType.methodType(method.getReturnType(), method.getParameterTypes()).descriptorString()
                    : member instanceof Constructor<?> constructor
                            ? "<init>" + MethodType.methodType(void.class, constructor.getParameterTypes()).descriptorString()
                            : member.getName() + ((Field) member).getType().descriptorString();
            if (!called.contains(row.owner.getName().replace('.', '/') + " " + descriptor)) {
                not.add(row.owner.getSimpleName() + " " + row.member);
            }
        }
        assertEquals(List.of(), not);
    }

    /** Android's older versions have no java.nio.file: nothing there may need it. */
    @Test
    void no_class_of_the_old_face_names_java_nio_file() throws Exception {
        int classes = 0;
        for (String root : List.of("info/guardianproject", "org/strongroom")) {
            try (Stream<Path> all = Files.walk(Path.of("target/classes", root))) {
                for (Path path : all.filter(p -> p.toString().endsWith(".class")).toList()) {
                    boolean modern = path.toString().contains("/nio/") || path.endsWith("Unpack.class");
                    String content = new String(Files.readAllBytes(path), StandardCharsets.ISO_8859_1);
                    assertTrue(modern || !content.contains("java/nio/file/"), path.toString());
                    int version = content.charAt(7);
                    assertEquals(path.toString().contains("/nio/") ? 61 : 52, version, path.toString());
                    classes++;
                }
            }
        }
        assertTrue(classes > 40);
    }

    /** What a class calls or reads, from its constant pool (the Java Virtual Machine Specification, 4.4): owner, name, type. */
    private static Set<String> references(Class<?> type) throws IOException {
        byte[] bytes;
        try (InputStream in = type.getResourceAsStream(type.getSimpleName() + ".class")) {
            bytes = in.readAllBytes();
        }
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
        in.skipBytes(8);
        int count = in.readUnsignedShort();
        Object[] pool = new Object[count];
        for (int i = 1; i < count; i++) {
            int tag = in.readUnsignedByte();
            switch (tag) {
                case 1 -> pool[i] = in.readUTF();
                case 3, 4 -> in.readInt();
                case 5, 6 -> {
                    in.readLong();
                    i++;
                }
                case 7, 8, 16, 19, 20 -> pool[i] = new int[] {tag, in.readUnsignedShort()};
                case 9, 10, 11, 12, 17, 18 -> pool[i] = new int[] {tag, in.readUnsignedShort(), in.readUnsignedShort()};
                case 15 -> in.skipBytes(3);
                default -> throw new IOException("a constant of kind " + tag);
            }
        }
        Set<String> all = new HashSet<>();
        for (Object entry : pool) {
            if (entry instanceof int[] reference && reference[0] >= 9 && reference[0] <= 11) {
                int[] named = (int[]) pool[reference[2]];
                all.add(pool[((int[]) pool[reference[1]])[1]] + " " + pool[named[1]] + pool[named[2]]);
            }
        }
        return all;
    }
}
