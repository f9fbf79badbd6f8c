package org.strongroom.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.strongroom.ClosedException;
import org.strongroom.Room;

/** Calls of the native half with numbers of rooms and files that were never given, or are of the other kind. */
final class Invented {
    private Invented() {}

    static void check(Room room) throws Exception {
        Class<?> face = Class.forName("org.strongroom.Native");
        int checked = 0;
        for (Method method : face.getDeclaredMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (types.length == 0 || types[0] != long.class || types.length == 1 && method.getExceptionTypes().length == 0) {
                continue;
            }
            boolean harmless = method.getName().equals("close") || method.getName().equals("abandon");
            method.setAccessible(true);
            // Files and rooms are counted together from 1, so 1 to 3 may be rooms, and are then no files.
            for (long number : new long[] {0, -1, Long.MIN_VALUE, Long.MAX_VALUE, 0xDEAD_BEEFL}) {
                Object[] arguments = new Object[types.length];
                arguments[0] = number;
                for (int i = 1; i < types.length; i++) {
                    arguments[i] = argument(types[i]);
                }
                if (harmless) {
                    method.invoke(null, arguments);
                } else {
                    InvocationTargetException e = assertThrows(InvocationTargetException.class,
                            () -> method.invoke(null, arguments), method.getName());
                    assertEquals(ClosedException.class, e.getCause().getClass(), method.getName() + ": " + e.getCause());
                }
                checked++;
            }
        }
        assertTrue(checked > 100, "only " + checked);
        assertTrue(room.isOpen());
    }

    private static Object argument(Class<?> type) {
        if (type == long.class) {
            return 0L;
        }
        if (type == int.class) {
            return 0;
        }
        if (type == boolean.class) {
            return true;
        }
        if (type == long[].class) {
            return new long[32];
        }
        // 32 bytes: a key, or a path of so many letters.
        byte[] bytes = new byte[32];
        java.util.Arrays.fill(bytes, (byte) 'x');
        return type == byte[].class ? bytes : java.nio.ByteBuffer.allocateDirect(8);
    }
}
