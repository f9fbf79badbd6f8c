package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class ListTest {
    private static final Class<?>[] SUITE = {
        FilesTest.class, NamesTest.class, KeysTest.class, ThreadsTest.class, TransactionsTest.class, FaultsTest.class,
        SnapshotsTest.class, PolicyTest.class
    };

    @Test
    void every_case_of_the_contract_has_a_test_and_every_test_a_case() throws IOException {
        Set<String> cases = Files.readAllLines(Path.of("../../tests/contract/cases.tsv")).stream()
                .filter(line -> !line.startsWith("#") && !line.isEmpty())
                .map(line -> line.split("\t")[0])
                .collect(Collectors.toCollection(TreeSet::new));
        Set<String> tests = new TreeSet<>();
        for (Class<?> suite : SUITE) {
            for (Method method : suite.getDeclaredMethods()) {
                if (method.isAnnotationPresent(Test.class)) {
                    assertTrue(tests.add(method.getName()), "twice: " + method.getName());
                }
            }
        }
        assertEquals(cases, tests);
        assertTrue(cases.size() > 80);
    }
}
