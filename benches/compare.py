#!/usr/bin/env python3
"""Compares the speed of Strongroom with a plain directory and with other encrypted stores, on one disk in one run.

    benches/compare.py                      every store that is installed, three rounds
    benches/compare.py --rounds 5 --stores plain,strongroom --json out.json
    benches/compare.py --rows append,rm     rows whose name contains one of these

Each round runs each store once for the large file and once for the tree, in an order that turns from round to round, so
that a disturbance of the machine meets all of them. Every store starts in a fresh directory each time: file systems
slow down after many files were removed. Ratios are taken within a round, to the plain directory of that round; shown
are the median of all rounds and, in brackets, the least and the greatest. What is read is compared with what was
written: a store that is fast and wrong is reported as wrong.

Needs Python 3.9, tar, and root for rows called cold (the page cache is dropped; without root those are marked). The
others are installed with: apt install gocryptfs securefs cryfs; cargo install cofferfs --root target/tools
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

# Nothing is left behind in the source tree.
sys.dont_write_bytecode = True
import rows  # noqa: E402
import stores  # noqa: E402

PROJECT = Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--stores", default=",".join(stores.STORES), metavar="A,B", help="of: %(default)s")
    parser.add_argument("--rows", default="", metavar="A,B", help="only rows whose name contains one of these")
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="of the large file (default %(default)s)")
    parser.add_argument("--dir", default=str(PROJECT / "target"), metavar="DIR", help="where to work: decides the disk (default: target)")
    parser.add_argument("--strongroom", default=str(PROJECT / "target/release/strongroom"), metavar="FILE")
    parser.add_argument("--mount-options", default="", metavar="WORDS", help="more words for strongroom mount, to try one out")
    parser.add_argument("--json", metavar="FILE", help="write every measurement")
    options = parser.parse_args()
    options.strongroom = str(Path(options.strongroom).resolve())
    if options.rounds < 1 or options.size < 1:
        parser.error("--rounds and --size are at least 1")
    options.stores = options.stores.split(",")
    for name in options.stores:
        if name not in stores.STORES:
            parser.error(f"there is no store '{name}': use {', '.join(stores.STORES)}")
    parts = [part for part in options.rows.split(",") if part]
    options.rows = [row for row in rows.ROWS if not parts or any(part in row for part in parts)]
    if not options.rows:
        parser.error(f"no row's name contains '{','.join(parts)}': they are {'; '.join(rows.ROWS)}")
    return options


def drop_caches():
    """Writes back everything and empties the page cache. False where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError:
        return False
    return True


def note(text):
    print(text, file=sys.stderr, flush=True)


class Run:
    """One comparison: its measurements, and what went wrong."""

    def __init__(self, options, work, data):
        self.options = options
        self.work = work
        self.data = data
        self.values = {}  # row -> store -> [rate of each round]
        self.failures = {}  # store -> first message
        self.peak_kib = {}  # store -> KiB

    def part(self, name, number, kind, measure, wanted):
        """One store through one group of rows."""
        store = stores.STORES[name](self.work / f"{number}-{kind}-{name}", self.options)

        def cold():
            store.unmount()
            drop_caches()
            store.mount()

        started = time.monotonic()
        try:
            store.create()
            store.mount()
            for row, rate in measure(store, self.data, wanted, cold, os.sync):
                if row in wanted:
                    self.values[row][name][number] = rate
            store.unmount()
            self.peak_kib[name] = max(self.peak_kib.get(name, 0), store.peak_kib)
        except (stores.StoreError, rows.WrongData, OSError) as error:
            self.failures.setdefault(name, f"{kind}, round {number + 1}: {error}")
            note(f"  {name}: {error}")
        finally:
            store.abandon()
        note(f"  round {number + 1} {kind} {name}: {time.monotonic() - started:.1f} s")

    def all(self, names):
        kinds = [("large file", rows.big_rows, rows.BIG_ROWS), ("tree", rows.tree_rows, rows.TREE_ROWS)]
        for row in self.options.rows:
            self.values[row] = {name: [None] * self.options.rounds for name in names}
        for number in range(self.options.rounds):
            turn = number % len(names)
            for kind, measure, known in kinds:
                wanted = [row for row in self.options.rows if row in known]
                if not wanted:
                    continue
                for name in names[turn:] + names[:turn]:
                    self.part(name, number, kind, measure, wanted)

    def ratios(self, row, name):
        plain = self.values[row].get("plain", [])
        return [mine / base for mine, base in zip(self.values[row][name], plain) if mine and base]


def figure(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values, show):
    if not values:
        return "–"
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))}–{show(max(values))})"


def table(heads, lines):
    text = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text)


def report(run, names, can_drop):
    options = run.options
    print(f"{options.size} MiB file in 128 KiB calls; {rows.RANDOM_OPERATIONS} random calls; {rows.APPENDS} appends; "
          f"{rows.TREE_FILES:,} files of {run.data.tree_bytes / rows.MIB:.1f} MiB; {options.rounds} rounds; "
          f"{os.cpu_count()} cores, Linux {platform.release()}.")  # fmt: skip
    if not can_drop:
        print("\nNot run as root: the page cache was not dropped, and the rows called cold are not.")
    others = [name for name in names if name != "plain"]
    if "plain" in names and others:
        print("\nRatio to the plain directory (more is better)\n")
        heads = ["row", *others] + (["strongroom promises"] if "strongroom" in others else [])
        lines = []
        for row in options.rows:
            line = [row] + [spread(run.ratios(row, name), lambda value: f"{value:.2f}") for name in others]
            if "strongroom" in others:
                least = rows.ROWS[row][1]
                mine = run.ratios(row, "strongroom")
                line.append(f"{least:.2f} {'kept' if mine and statistics.median(mine) >= least else 'NOT KEPT'}")
            lines.append(line)
        print(table(heads, lines))
    print("\nRates\n")
    print(table(
        ["row", "unit", *names],
        [[row, rows.ROWS[row][0]] + [spread([v for v in run.values[row][name] if v], figure) for name in names] for row in options.rows],
    ))  # fmt: skip
    if others:
        print("\nGreatest resident memory of the store's process, MiB\n")
        print(table(others, [[figure(run.peak_kib.get(name, 0) / 1024) for name in others]]))
    for name, message in run.failures.items():
        print(f"\n{name} failed: {message}")


def main():
    options = arguments()
    names = []
    for name in options.stores:
        reason = stores.STORES[name].missing(options)
        if reason:
            note(f"left out: {name}: {reason}")
        else:
            names.append(name)
    if not names:
        sys.exit("error: none of the stores is here")
    Path(options.dir).mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="strongroom-compare-", dir=options.dir))
    try:
        can_drop = drop_caches()
        note("Making the test data")
        run = Run(options, work, rows.Data(work, options.size * rows.MIB))
        run.all(names)
        report(run, names, can_drop)
        if options.json:
            Path(options.json).write_text(json.dumps({
                "size_mib": options.size, "rounds": options.rounds, "cores": os.cpu_count(),
                "kernel": platform.release(), "cold": can_drop, "rates": run.values,
                "units": {row: rows.ROWS[row][0] for row in options.rows},
                "peak_kib": run.peak_kib, "failures": run.failures,
            }, indent=1) + "\n", encoding="utf-8")  # fmt: skip
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if run.failures else 0)


if __name__ == "__main__":
    main()
