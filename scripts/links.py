#!/usr/bin/env python3
"""Fails, with file and line, on links in the documents, or in the built book, whose file or heading does not exist. Opens no network.

  scripts/links.py                 the documents
  scripts/links.py DIRECTORY       the pages of a built book
"""

import functools
import html.parser
import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.S | re.M)


def blanked(text):
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


@functools.cache
def headings(path):
    """Anchors as GitHub and mdbook make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
    found, anchors = {}, set()
    for heading in re.findall(r"^#+ +(.*?) *#*$", text, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.add(anchor if anchor not in found else f"{anchor}-{found[anchor]}")
        found[anchor] = found.get(anchor, 0) + 1
    return anchors


def in_documents():
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        # A part of docs/performance.md, whose links are from there.
        if name == "benches/remarks.md" or name.startswith("vendor/") or not path.is_file():
            continue
        text = blanked(path.read_text())
        for link in LINK.finditer(text):
            target, _, anchor = link[1].partition("#")
            if re.match(r"[a-z+]+:", target):
                continue
            line = text.count("\n", 0, link.start()) + 1
            to = (path.parent / urllib.parse.unquote(target)).resolve() if target else path
            if not to.exists():
                yield f"{name}:{line}: {link[1]}: there is no such file"
            elif anchor and to.suffix == ".md" and anchor not in headings(to):
                yield f"{name}:{line}: {link[1]}: there is no such heading"


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.ids = [], set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])


@functools.cache
def page(path):
    parsed = Page()
    parsed.feed(path.read_text())
    return parsed


def in_book(book):
    for path in sorted(book.rglob("*.html")):
        # These two are made of other pages, or of nothing.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page(path).links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z+]+:|//", link):
                continue
            to = (path.parent / urllib.parse.unquote(target)) if target else path
            if not to.exists():
                yield f"{path.relative_to(book)}: {link}: there is no such file"
            elif anchor and to.suffix == ".html" and urllib.parse.unquote(anchor) not in page(to).ids:
                yield f"{path.relative_to(book)}: {link}: there is no such heading"


failures = list(in_book(pathlib.Path(sys.argv[1])) if len(sys.argv) > 1 else in_documents())
print(*failures, sep="\n", end="\n" if failures else "")
sys.exit(f"{len(failures)} links lead nowhere" if failures else None)
