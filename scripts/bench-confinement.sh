#!/usr/bin/env bash
# What the confinement of the process that serves a mount costs: two rooms, one mounted as usual and one with `--confinement off`, in turns. Writes the
# ratios of speed to benches/results/confinement.md. Takes about three minutes.
#
#   scripts/bench-confinement.sh BINARY [ROUNDS]     rounds: 9
#
# BENCH_DIR: the disk that is measured (default: the target directory). OUT: another file for the result.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
ROUNDS=${2:-9}
OUT=${OUT:-$ROOT/benches/results/confinement.md}
STORES=(off on)

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-confinement.XXXXXX")
export XDG_STATE_HOME=$WORK/state LC_ALL=C
cleanup() {
    local status=$? store
    for store in "${STORES[@]}"; do
        mountpoint -q "$WORK/$store" && { umount -l "$WORK/$store" || true; }
    done
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

echo bench >"$WORK/passphrase"
git -C "$ROOT" archive -o "$WORK/source.tar" HEAD
head -c 256M /dev/urandom >"$WORK/large"
# Both by the device: without confinement there is no mount over io_uring.
attach() {
    local how=(-o noio_uring)
    [ "$1" = on ] || how+=(--confinement off)
    "$BIN" mount "$WORK/$1.d" "$WORK/$1" --passphrase-file "$WORK/passphrase" "${how[@]}" >/dev/null
}
detach() { "$BIN" umount "$WORK/$1" >/dev/null; }
for store in "${STORES[@]}"; do
    mkdir "$WORK/$store"
    "$BIN" create --quiet "$WORK/$store.d" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1
done

unpack() { mkdir "$WORK/$1/tree" && tar -xf "$WORK/source.tar" -C "$WORK/$1/tree" && sync -f "$WORK/$1"; }
walk() { tar -cf - -C "$WORK/$1" tree | cat >/dev/null; }
for ((round = 1; round <= ROUNDS; round++)); do
    order=("${STORES[@]}")
    [ $((round % 2)) -eq 1 ] || order=(on off)
    for store in "${order[@]}"; do timed mount "$store" attach "$store"; done
    for store in "${order[@]}"; do timed unpack "$store" unpack "$store"; done
    for store in "${order[@]}"; do timed appends "$store" python3 "$ROOT/scripts/durable.py" appends "$WORK/$store" 1000; done
    for store in "${order[@]}"; do timed write "$store" dd if="$WORK/large" of="$WORK/$store/large" bs=1M conv=fsync status=none; done
    for store in "${order[@]}"; do
        detach "$store"
        attach "$store"
    done
    for store in "${order[@]}"; do timed walk "$store" walk "$store"; done
    for store in "${order[@]}"; do timed read "$store" dd if="$WORK/$store/large" of=/dev/null bs=1M status=none; done
    for store in "${order[@]}"; do
        rm -rf "$WORK/$store/tree" "$WORK/$store/large" "$WORK/$store"/durable-*
        detach "$store"
    done
    say "round $round of $ROUNDS"
done

PYTHONPATH=$ROOT/scripts python3 -B - "$WORK/times" "$ROUNDS" "$(git -C "$ROOT" rev-parse --short HEAD)" "$(nproc)" >"$OUT" <<'PYTHON'
import sys

import ratios

times, rounds, commit, processors = sys.argv[1:]
took = ratios.read(times)
WORKS = {
    "mount": "mounting",
    "unpack": "a source tree unpacked, until durable",
    "walk": "the tree read, cold in the room",
    "appends": "4 KiB appended and synced, 1,000 times",
    "write": "256 MiB written and synced",
    "read": "256 MiB read, cold in the room",
}
print("## The cost of confinement\n")
print("Speed of a mount whose process is confined by Landlock and seccomp, as it is by default, as a ratio to one with `--confinement off`, both by /dev/fuse. Medians of")
print(f"{rounds} rounds in turns, with the least and the most, on {processors} processors, at {commit}. Made by `scripts/bench-confinement.sh`.\n")
print("| | confined |")
print("|---|---|")
for work, name in WORKS.items():
    print(f"| {name} | " + " | ".join(ratios.cells(took, (work,), ["off", "on"])) + " |")
PYTHON
cat "$OUT"
