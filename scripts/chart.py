#!/usr/bin/env python3
"""Draws docs/chart.svg, the README's picture, from the result of `strongroom bench tools` in benches/results/peers.json.

  scripts/chart.py           write it
  scripts/chart.py --check   fail if it is not what the result gives
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "docs/chart.svg"
ROWS = [("untar, s", "unpack a source tree"), ("md5sum of all, s", "read all its files"), ("rm -r, s", "remove it")]
STORES = [("directory", "plain directory", "#9aa4b2"), ("mounted", "Strongroom", "#2563eb"), ("gocryptfs", "gocryptfs", "#b45309"),
          ("securefs", "securefs", "#7c3aed"), ("cryfs", "CryFS", "#be123c")]
# Few units, shown large: on a phone, 350 pixels wide, the words can still be read.
WIDTH, SHOWN, LEFT, BAR, GAP, TOP = 520, 640, 16, 19, 36, 66


def measured():
    """{(row, store): seconds as text}, of what was measured here."""
    table = next(t for t in json.loads((ROOT / "benches/results/peers.json").read_text())["tables"] if "one workload" in t["title"])
    columns = [column.removesuffix(" (here)") if column.endswith(" (here)") else None for column in table["columns"]]
    return {(row["name"], name): cell for row in table["rows"] for name, cell in zip(columns, row["cells"]) if name}


def draw():
    cells = measured()
    most = max(float(cells[row, store]) for row, _ in ROWS for store, *_ in STORES)
    scale = (WIDTH - LEFT - 96) / most
    height = TOP + len(ROWS) * (len(STORES) * BAR + GAP) - GAP + 12
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{SHOWN}" height="{height * SHOWN // WIDTH}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        "<title>Seconds to unpack, read and remove a source tree; shorter is better</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="16" y="26" font-size="15" font-weight="600" fill="#111827">A source tree in encrypted folders: seconds, less is better</text>',
    ]
    y = TOP
    for row, label in ROWS:
        out.append(f'<text x="{LEFT}" y="{y - 6}" font-weight="600" fill="#111827">{escape(label)}</text>')
        for store, name, colour in STORES:
            seconds = float(cells[row, store])
            length, weight = max(seconds * scale, 2), "600" if store == "mounted" else "400"
            out += [
                f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" rx="2" fill="{colour}"/>',
                f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}" font-weight="{weight}" fill="#111827">{escape(name)} {seconds:.2f}</text>',
            ]
            y += BAR
        y += GAP
    out.append("</svg>")
    return "\n".join(out) + "\n"


svg = draw()
if sys.argv[1:] == ["--check"]:
    sys.exit(None if CHART.exists() and CHART.read_text() == svg else "docs/chart.svg is not what benches/results/peers.json gives: run scripts/chart.py")
CHART.write_text(svg)
