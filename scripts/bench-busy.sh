#!/usr/bin/env bash
# What a durable small write costs while others use the processors: plain directory, mounted room, gocryptfs and securefs (those that are
# installed) in turns, idle and beside busy loops, one for each processor. Writes medians of ratios to the plain directory, which is under
# the same load, to benches/results/busy.md. What is measured: scripts/durable.py. Takes about six minutes.
#
#   scripts/bench-busy.sh BINARY [ROUNDS [COUNT]]     rounds: 5; changes made durable in each: 300
#
# BENCH_DIR: the disk that is measured (default: the target directory). OUT: another file for the result.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
ROUNDS=${2:-5}
COUNT=${3:-300}
OUT=${OUT:-$ROOT/benches/results/busy.md}
WORKS=(appends mailbox journal wal)

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-busy.XXXXXX")
export XDG_STATE_HOME=$WORK/state
. "$ROOT/scripts/stores.sh"
LOOPS=()
quiet() {
    [ ${#LOOPS[@]} -eq 0 ] || kill "${LOOPS[@]}" 2>/dev/null || true
    LOOPS=()
}
cleanup() {
    local status=$?
    quiet
    unmount_stores
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

offer_stores
for ((round = 1; round <= ROUNDS; round++)); do
    for load in idle busy; do
        if [ $load = busy ]; then
            for ((i = 0; i < $(nproc); i++)); do
                (while :; do :; done) &
                LOOPS+=($!)
            done
        fi
        for work in "${WORKS[@]}"; do
            for store in "${STORES[@]}"; do
                timed "$load $work" "$store" python3 "$ROOT/scripts/durable.py" "$work" "$WORK/$store" "$COUNT"
                rm -rf "$WORK/$store/durable-$work"
            done
        done
        quiet
    done
    say "round $round of $ROUNDS"
done

PYTHONPATH=$ROOT/scripts python3 -B - "$WORK/times" "$COUNT" "$ROUNDS" "$(git -C "$ROOT" rev-parse --short HEAD)" "$(nproc)" "${STORES[@]}" \
    >"$OUT" <<'PYTHON'
import statistics
import sys

import ratios

times, count, rounds, commit, processors, *stores = sys.argv[1:]
NAMES = {
    "appends": "4 KiB append, synced",
    "mailbox": "mailbox delivery, synced",
    "journal": "SQLite, FULL, rollback journal",
    "wal": "SQLite, FULL, write-ahead log",
}
took = ratios.read(times)
print("## Durable small writes beside other work\n")
print(f"Medians of {rounds} rounds of {count} changes, in turns, at {commit} on {processors} processors; the ratio to the plain directory, which")
print(f"is under the same load, with its least and most. Busy: {processors} loops beside it. Made by `scripts/bench-busy.sh`.\n")
ratios.head(["", "", "plain, changes/s"], stores)
for work, name in NAMES.items():
    for load in ("idle", "busy"):
        plain = int(count) / statistics.median(took[load, work, "plain"])
        print(f"| {name} | {load} | {plain:,.0f} | " + " | ".join(ratios.cells(took, (load, work), stores)) + " |")
PYTHON
cat "$OUT"
