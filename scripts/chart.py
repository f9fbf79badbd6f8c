#!/usr/bin/env python3
"""Draws docs/chart.svg, the README's picture, from the result of `strongroom bench tools` in benches/results/peers.json.

  scripts/chart.py           write it
  scripts/chart.py --check   fail if it is not what the result gives

A work that the benchmark found INVALID for Strongroom is not shown; a store for which it is has no bar.
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "docs/chart.svg"
WORKS = [
    ("append, 4 KiB, fsync each", "append 4 KiB and sync it"),
    ("mailbox delivery, 4 KiB", "deliver a mail"),
    ("SQLite transactions, write-ahead log", "SQLite transactions, write-ahead log"),
    ("SQLite transactions, rollback journal", "SQLite transactions, rollback journal"),
    ("untar", "unpack a source tree"),
    ("md5sum of all, cold", "read all files of a source tree"),
    ("rm -r", "remove a source tree"),
]
STORES = [("mounted", "Strongroom", "#2563eb"), ("gocryptfs", "gocryptfs", "#b45309"), ("securefs", "securefs", "#7c3aed"),
          ("cryfs", "CryFS", "#be123c")]
# Few units, shown large: on a phone, 350 pixels wide, the words can still be read.
WIDTH, SHOWN, LEFT, BAR, GAP, TOP = 520, 640, 16, 19, 36, 66


def measured():
    """{(work, store): how many times as fast as a plain directory}, of what is valid."""
    result = json.loads((ROOT / "benches/results/peers.json").read_text())
    # As crates/bench/src/report/older.rs: names on a mount were not synced to the disk.
    wrong = [] if result.get("works", 0) >= 1 else ["untar", "rm -r"]
    valid = [of for of in result["comparisons"] if of["ratio"] and not of["invalid"] and of["work"] not in wrong]
    return {(of["work"], of["other"]): of["ratio"] for of in valid}


def draw():
    ratios = measured()
    works = [(work, label) for work, label in WORKS if (work, "mounted") in ratios]
    bars = {work: [store for store in STORES if (work, store[0]) in ratios] for work, _ in works}
    most = max(1.0, max(ratios[work, store[0]] for work, _ in works for store in bars[work]))
    scale = (WIDTH - LEFT - 124) / most
    height = TOP + sum(len(bars[work]) * BAR + GAP for work, _ in works) - GAP + 12
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{SHOWN}" height="{height * SHOWN // WIDTH}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        "<title>Speed of encrypted folders, with a plain directory as 1; longer is better</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="16" y="26" font-size="15" font-weight="600" fill="#111827">Encrypted folders: speed, a plain directory is 1</text>',
        f'<line x1="{LEFT + scale:.1f}" y1="{TOP - 4}" x2="{LEFT + scale:.1f}" y2="{height - 10}" stroke="#9aa4b2" stroke-dasharray="3 3"/>',
    ]
    y = TOP
    for work, label in works:
        out.append(f'<text x="{LEFT}" y="{y - 6}" font-weight="600" fill="#111827">{escape(label)}</text>')
        for store, name, colour in bars[work]:
            ratio = ratios[work, store]
            length, weight = max(ratio * scale, 2), "600" if store == "mounted" else "400"
            out += [
                f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" rx="2" fill="{colour}"/>',
                f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}" font-weight="{weight}" fill="#111827" stroke="#ffffff" stroke-width="3" '
                f'paint-order="stroke">{escape(name)} {ratio:.2f}</text>',
            ]
            y += BAR
        y += GAP
    out.append("</svg>")
    return "\n".join(out) + "\n"


svg = draw()
if sys.argv[1:] == ["--check"]:
    sys.exit(None if CHART.exists() and CHART.read_text() == svg else "docs/chart.svg is not what benches/results/peers.json gives: run scripts/chart.py")
CHART.write_text(svg)
