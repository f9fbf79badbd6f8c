#!/usr/bin/env python3
"""Prepares the source of the book in a directory: the documents with links as they are there, SUMMARY.md and book.toml.

  scripts/book.py DIRECTORY
"""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Chapters, by parts. What docs/ has beside them is an error, so that no document is forgotten.
PARTS = [
    ("Use", ["install", "commands", "limits", "keys", "backup", "snapshots", "replication", "import", "bucket", "shared-storage", "scale", "volumes", "embedding", "benchmark", "performance"]),
    ("Trust", ["threats", "reliability", "capability-model"]),
    ("Reference", ["format", "netdisk", "glossary"]),
]
TOP = [("ARCHITECTURE.md", "Architecture"), ("CONTRIBUTING.md", "Contributing"), ("SECURITY.md", "Security"), ("CHANGELOG.md", "Changes")]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
TOML = """[book]
title = "Strongroom"
description = "Encrypted storage for Linux that you can mount, embed or share"
language = "en"
src = "src"

[build]
build-dir = "../book"
create-missing = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
no-section-label = true

additional-css = ["book.css"]

[output.html.search]
enable = true
limit-results = 20
use-boolean-and = true
"""

# Tables: compact, so that the widest fits beside the list of chapters at 1280 pixels. On a narrower screen it is scrolled by itself, and
# the first column, which names the rows, stays.
CSS = """:root { --content-max-width: 96rem; }
.table-wrapper { margin-block: 1em; }
.content table { font-size: 0.85em; }
.content table :is(td, th) { padding: 4px 8px; }
.content thead tr { background: var(--table-header-bg); }
.content tbody tr { background: var(--bg); }
.content tr > :first-child { position: sticky; left: 0; background: inherit; }
@media (max-width: 620px) {
    .content :is(h2, h3) { margin-block-start: 1.5em; }
    .content pre { font-size: 0.9em; }
}
"""


def in_book(path):
    """Where a file of the repository is in the book; None where it is not part of it."""
    try:
        name = path.resolve().relative_to(ROOT)
    except ValueError:
        return None
    if name.parts[:1] == ("docs",) and (path.is_file()):
        return pathlib.Path(*name.parts[1:])
    if str(name) == "README.md" or str(name) in dict(TOP):
        return name
    return None


def relinked(source, text):
    here = in_book(source).parent

    def link(found):
        picture, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or re.match(r"[a-z+]+:", target):
            return found[0]
        if (source.parent / target).resolve() == ROOT / "docs/decisions":
            to = pathlib.Path("decisions/0001-set-up-and-outside-tools.md")
        else:
            to = in_book(source.parent / target)
        if to is None:
            return words
        up = "../" * len(here.parts)
        return f"{picture}[{words}]({up}{to.as_posix()}{anchor})"

    return LINK.sub(link, text)


def title(path):
    return re.search(r"^# +(.*)$", path.read_text(), re.M)[1].replace("`", "")


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    source = out / "src"
    (source / "decisions").mkdir(parents=True)
    docs, decisions = ROOT / "docs", sorted((ROOT / "docs/decisions").glob("*.md"))
    chapters = {name for _, names in PARTS for name in names}
    forgotten = {path.stem for path in docs.glob("*.md")} - chapters - {"english"}
    if forgotten:
        sys.exit(f"no part of the book has {sorted(forgotten)}: add them to scripts/book.py")
    lines = ["# Summary", "", "[Strongroom](README.md)", ""]
    pages = [ROOT / "README.md"]
    for part, names in PARTS:
        lines += [f"# {part}", ""]
        for path in (docs / f"{name}.md" for name in names):
            if path.exists():
                lines.append(f"- [{title(path)}]({path.name})")
                pages.append(path)
        lines.append("")
    lines += ["# Development", ""]
    for name, words in TOP:
        lines.append(f"- [{words}]({name})")
        pages.append(ROOT / name)
    lines.append("- [Plain English](english.md)")
    pages.append(docs / "english.md")
    lines += ["", "# Decisions", ""]
    for path in decisions:
        lines.append(f"- [{title(path)}](decisions/{path.name})")
        pages.append(path)
    for path in pages:
        (source / in_book(path)).write_text(relinked(path, path.read_text()))
    for path in docs.glob("*.svg"):
        shutil.copy(path, source)
    for path in docs.glob("*.json"):
        shutil.copy(path, source)
    (source / "SUMMARY.md").write_text("\n".join(lines) + "\n")
    (out / "book.toml").write_text(TOML)
    (out / "book.css").write_text(CSS)


main()
