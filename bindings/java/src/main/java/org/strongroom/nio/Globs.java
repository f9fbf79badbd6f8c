package org.strongroom.nio;

import java.util.regex.PatternSyntaxException;

/** Globs as {@code FileSystem.getPathMatcher} describes them, as regular expressions. */
final class Globs {
    private static final String SPECIAL = "\\.[]{}()<>*+-=!?^$|";

    private Globs() {}

    static String regex(String glob) {
        StringBuilder out = new StringBuilder();
        boolean group = false;
        for (int i = 0; i < glob.length(); i++) {
            char c = glob.charAt(i);
            switch (c) {
                case '\\':
                    if (++i == glob.length()) {
                        throw new PatternSyntaxException("nothing to escape", glob, i - 1);
                    }
                    quote(out, glob.charAt(i));
                    break;
                case '*':
                    if (i + 1 < glob.length() && glob.charAt(i + 1) == '*') {
                        out.append(".*");
                        i++;
                    } else {
                        out.append("[^/]*");
                    }
                    break;
                case '?':
                    out.append("[^/]");
                    break;
                case '[':
                    i = bracket(glob, i, out);
                    break;
                case '{':
                    if (group) {
                        throw new PatternSyntaxException("a group in a group", glob, i);
                    }
                    out.append("(?:(?:");
                    group = true;
                    break;
                case '}':
                    out.append(group ? "))" : "\\}");
                    group = false;
                    break;
                case ',':
                    out.append(group ? ")|(?:" : ",");
                    break;
                default:
                    quote(out, c);
            }
        }
        if (group) {
            throw new PatternSyntaxException("a group without an end", glob, glob.length() - 1);
        }
        return out.toString();
    }

    private static void quote(StringBuilder out, char c) {
        if (SPECIAL.indexOf(c) >= 0) {
            out.append('\\');
        }
        out.append(c);
    }

    /** From `[` to its end; in it only `!` at the start and `-` between two are special. Never matches a slash. */
    private static int bracket(String glob, int start, StringBuilder out) {
        int i = start + 1;
        out.append("[[^/]&&[");
        if (i < glob.length() && glob.charAt(i) == '!') {
            out.append('^');
            i++;
        }
        int first = i;
        for (; i < glob.length(); i++) {
            char c = glob.charAt(i);
            if (c == ']' && i > first) {
                out.append("]]");
                return i;
            }
            if (c == '/') {
                throw new PatternSyntaxException("a slash in a class", glob, i);
            }
            if (c == '-' && i > first && i + 1 < glob.length() && glob.charAt(i + 1) != ']') {
                if (glob.charAt(i - 1) > glob.charAt(i + 1)) {
                    throw new PatternSyntaxException("a range that goes down", glob, i);
                }
                out.append('-');
            } else {
                if ("\\[]&^-".indexOf(c) >= 0) {
                    out.append('\\');
                }
                out.append(c);
            }
        }
        throw new PatternSyntaxException("a class without an end", glob, start);
    }
}
