# shellcheck shell=bash
# Two rooms at six works of a mount, in turns. Sourced behind lib.sh, by a script that says which two:
#
#   STORES=(BASE OTHER)   their names: the first is what the other is compared with
#   BIN_OF=([NAME]=...)   the program that makes, mounts and unmounts the room (an associative array)
#   options_of NAME       prints further arguments of its `mount`, a line each
#   BENCH_DIR             the disk that is measured (default: the target directory)

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-mounts.XXXXXX")
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

attach() {
    local more
    mapfile -t more < <(options_of "$1")
    "${BIN_OF[$1]}" mount "$WORK/$1.d" "$WORK/$1" --passphrase-file "$WORK/passphrase" "${more[@]}" >/dev/null
}
detach() { "${BIN_OF[$1]}" umount "$WORK/$1" >/dev/null; }
unpack() { mkdir "$WORK/$1/tree" && tar -xf "$WORK/source.tar" -C "$WORK/$1/tree" && sync -f "$WORK/$1"; }
walk() { tar -cf - -C "$WORK/$1" tree | cat >/dev/null; }

# mounts_in_turns ROUNDS: who is first changes with each round.
mounts_in_turns() {
    local round store order
    echo bench >"$WORK/passphrase"
    git -C "$ROOT" archive -o "$WORK/source.tar" HEAD
    head -c 256M /dev/urandom >"$WORK/large"
    for store in "${STORES[@]}"; do
        mkdir "$WORK/$store"
        "${BIN_OF[$store]}" create --quiet "$WORK/$store.d" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1
    done
    for ((round = 1; round <= $1; round++)); do
        order=("${STORES[@]}")
        [ $((round % 2)) -eq 1 ] || order=("${STORES[1]}" "${STORES[0]}")
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
        say "round $round of $1" >&2
    done
}

# mounts_table: a row for each work, a column with the other store's name.
mounts_table() {
    PYTHONPATH=$ROOT/scripts python3 -B - "$WORK/times" "${STORES[@]}" <<'PYTHON'
import sys

import ratios

times, *stores = sys.argv[1:]
took = ratios.read(times)
WORKS = {
    "mount": "mounting",
    "unpack": "a source tree unpacked, until durable",
    "walk": "the tree read, cold in the room",
    "appends": "4 KiB appended and synced, 1,000 times",
    "write": "256 MiB written and synced",
    "read": "256 MiB read, cold in the room",
}
ratios.head([""], stores)
for work, name in WORKS.items():
    print(f"| {name} | " + " | ".join(ratios.cells(took, (work,), stores)) + " |")
PYTHON
}
