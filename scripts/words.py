#!/usr/bin/env python3
"""Fails, with file and line, on words that docs/english.md rules out.

  scripts/words.py            check
  scripts/words.py --lower    write the counts of today into scripts/words.allowed, if no word is used more often than before

Documents, and the help texts and messages of the command line, use none of these words. Code from before the rule may keep what
scripts/words.allowed counts for each file: a count above that fails, and so does one below, until --lower records it.
A file that moves takes its counts along: --lower compares the sums over all files.
"""

import collections
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = "scripts/words.tsv"
ALLOWED = "scripts/words.allowed"
# These name the words to rule them out; the last is written from stored results.
EXEMPT = {LIST, ALLOWED, "scripts/words.py", "docs/english.md", "docs/performance.md"}
EXEMPT_BELOW = ("vendor/", "tests/contract/", "benches/results/")
CODE = {".rs", ".py", ".pyi", ".java", ".c", ".h", ".sh", ".toml", ".service", ".yml"}
# What separates two words of a phrase: also the end of a line of a comment.
GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?://[/!]?|#|\*|>)?[ \t]*)"
# Parts of a name: camelCase and snake_case. Nothing is inserted that would move a line.
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
# A string, raw or not, or a documentation comment; other comments, characters and lifetimes are matched to skip them.
RUST = re.compile(
    r'(?P<text>br?#*"|r#*"|"(?:[^"\\]|\\.)*"|//[/!][^\n]*)|//[^\n]*|/\*.*?\*/|\'(?:[^\'\\\n]|\\[^\n]{1,8}?)\'', re.S
)


class Word:
    def __init__(self, line):
        name, pattern, instead, *only = line.split("\t")
        self.name, self.instead, self.only = name, instead, only[0] if only else ""
        phrases = (GAP.join(map(re.escape, phrase.split(" "))) for phrase in pattern.split("|"))
        self.pattern = re.compile(r"(?<![A-Za-z])(?:" + "|".join(phrases) + r")(?![A-Za-z])", re.I)


def words():
    lines = (ROOT / LIST).read_text().splitlines()
    return [Word(line) for line in lines if line and not line.startswith("#")]


def texts_of_rust(source):
    """The source with everything blanked but strings and documentation comments, tests left out."""
    source = source.split("#[cfg(test)]\nmod ", 1)[0]
    out, at = [], 0
    while found := RUST.search(source, at):
        end = found.end()
        opening = found["text"]
        if opening and re.fullmatch(r'b?r?#*"', opening) and opening != '""':
            closing = '"' + "#" * opening.count("#")
            end = source.find(closing, end)
            end = len(source) if end < 0 else end + len(closing)
        blank = re.sub(r"[^\n]", " ", source[at : found.start()])
        text = source[found.start() : end]
        out += [blank, text if opening else re.sub(r"[^\n]", " ", text)]
        at = end
    out.append(re.sub(r"[^\n]", " ", source[at:]))
    # A line that continues a string.
    return "".join(out).replace("\\\n", " \n")


def is_document(path):
    return path.endswith(".md")


def is_command_line(path):
    return path.startswith("crates/cli/src/") and path.endswith(".rs") and "/tests" not in path


@functools.cache
def separated(text):
    """Names taken apart, with the same lines."""
    return CAMEL.sub(" ", text)


def uses(path, word, text):
    """The lines on which the word is. One that ends with `words.py: ` and a reason may have it, as may the line below it."""
    if word.only and word.only not in path:
        return []
    separate = separated(text)
    lines = [separate.count("\n", 0, found.start()) + 1 for found in word.pattern.finditer(separate)]
    return [line for line in lines if not excused(path, line)] if lines else []


@functools.cache
def lines_of(path):
    return (ROOT / path).read_text(errors="replace").splitlines()


def excused(path, line):
    return any("words.py: " in text for text in lines_of(path)[max(line - 2, 0) : line])


def prose(document):
    """A document without its inline code: names of formats, tests and options are as they are."""
    return re.sub(r"`[^`\n]+`", lambda code: " " * len(code[0]), document)


def files():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for path in sorted(filter(None, listed.split("\0"))):
        if path in EXEMPT or path.startswith(EXEMPT_BELOW) or not (ROOT / path).is_file():
            continue
        if is_document(path) or pathlib.Path(path).suffix in CODE:
            yield path


def read_allowed():
    allowed = {}
    if (ROOT / ALLOWED).exists():
        for line in (ROOT / ALLOWED).read_text().splitlines():
            if not line.startswith("#"):
                path, name, count = line.split("\t")
                allowed[path, name] = int(count)
    return allowed


def main():
    lower = sys.argv[1:] == ["--lower"]
    if sys.argv[1:] and not lower:
        sys.exit(__doc__)
    listed, allowed = words(), read_allowed()
    found, never = {}, []
    for path in files():
        text = (ROOT / path).read_text(errors="replace")
        if is_document(path):
            text = prose(text)
        texts = texts_of_rust(text) if is_command_line(path) else ""
        for word in listed:
            lines = uses(path, word, text)
            if is_document(path):
                never += [(path, line, word) for line in lines]
                continue
            if texts:
                never += [(path, line, word) for line in uses(path, word, texts)]
            if lines:
                found[path, word.name] = lines
    failures = [f"{path}:{line}: '{word.name}' is ruled out: {word.instead}" for path, line, word in never]
    counts = {key: len(lines) for key, lines in found.items()}
    if lower:
        sums, before = collections.Counter(), collections.Counter()
        for (_, name), count in counts.items():
            sums[name] += count
        for (_, name), count in allowed.items():
            before[name] += count
        failures += [
            f"{ALLOWED}: '{name}' is used {sums[name]} times, {before[name]} are allowed" for name in sums if allowed and sums[name] > before[name]
        ]
        if not failures:
            head = "# Uses that are left of words that are ruled out, for each file: scripts/words.py --lower writes this.\n"
            rows = "".join(f"{path}\t{name}\t{count}\n" for (path, name), count in sorted(counts.items()))
            (ROOT / ALLOWED).write_text(head + rows)
    else:
        instead = {word.name: word.instead for word in listed}
        for path, name in sorted(counts.keys() | allowed.keys()):
            count, most = counts.get((path, name), 0), allowed.get((path, name), 0)
            if count > most:
                failures += [f"{path}:{line}: '{name}' is ruled out: {instead[name]}" for line in found[path, name]]
                failures.append(f"{path}: '{name}' is used {count} times, {most} are allowed")
            elif count < most:
                failures.append(f"{ALLOWED}: {path}: '{name}' is used {count} times, {most} are allowed: run scripts/words.py --lower")
    print(*failures, sep="\n", end="\n" if failures else "")
    if failures:
        sys.exit(f"{len(failures)} failures; docs/english.md has the words")


if __name__ == "__main__":
    main()
