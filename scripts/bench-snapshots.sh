#!/usr/bin/env bash
# Versions of the same files kept by a room, by Btrfs, and by the backup programs restic and borg (those that are installed), in turns: time to
# create one, the space it takes, restoring one file, and bringing it to a second place. Two kinds of change: 1 % of the files of a tree, and
# 1 % of the blocks of a disk image. Writes medians to benches/results/snapshots.md. Takes about ten minutes.
#
#   scripts/bench-snapshots.sh BINARY [ROUNDS]     rounds: 5
#
# BENCH_DIR: the disk that is measured (default: the target directory). OUT: another file for the result. As root, for Btrfs on a loop device.
# A version is durable when its time ends, here and at the second place. restic and borg keep their files in a directory beside the original;
# Btrfs is not encrypted.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
ROUNDS=${2:-5}
OUT=${OUT:-$ROOT/benches/results/snapshots.md}
IMAGE_MIB=512 FILES=5000

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-snapshots.XXXXXX")
export LC_ALL=C XDG_STATE_HOME=$WORK/state RESTIC_PASSWORD=bench RESTIC_CACHE_DIR=$WORK/cache BORG_PASSPHRASE=bench BORG_BASE_DIR=$WORK/borg-state
cleanup() {
    local status=$? at
    for at in room btrfs btrfs-second; do
        if mountpoint -q "$WORK/$at"; then umount "$WORK/$at" || umount -l "$WORK/$at"; fi
    done
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

STORES=(room)
mkdir "$WORK/room"
echo bench >"$WORK/passphrase"
ROOM=$WORK/room.d
"$BIN" create --quiet "$ROOM" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1
"$BIN" mount "$ROOM" "$WORK/room" --passphrase-file "$WORK/passphrase" >/dev/null
if [ "$(id -u)" -eq 0 ] && have mkfs.btrfs; then
    STORES+=(btrfs)
    for at in btrfs btrfs-second; do
        mkdir "$WORK/$at"
        truncate --size 8G "$WORK/$at.img"
        mkfs.btrfs -q "$WORK/$at.img" >/dev/null 2>&1
        mount -o loop "$WORK/$at.img" "$WORK/$at"
    done
    btrfs -q subvolume create "$WORK/btrfs/live"
fi
for tool in restic borg; do
    if have "$tool"; then
        STORES+=("$tool")
        mkdir "$WORK/$tool"
    fi
done
if have restic; then
    restic -q -r "$WORK/restic.d" init
    restic -q -r "$WORK/restic-second" init --from-repo "$WORK/restic.d" --from-password-file <(echo bench) --copy-chunker-params
fi
if have borg; then borg init -e repokey-blake2 "$WORK/borg.d" 2>/dev/null; fi

# live STORE: where its files are.
live() { if [ "$1" = btrfs ]; then echo "$WORK/btrfs/live"; else echo "$WORK/$1"; fi; }

# create STORE VERSION
create() {
    case $1 in
    room) "$BIN" --quiet snapshot create "$ROOM" "$2" >/dev/null ;;
    btrfs)
        btrfs -q subvolume snapshot -r "$WORK/btrfs/live" "$WORK/btrfs/$2"
        sync -f "$WORK/btrfs"
        ;;
    restic)
        restic -q -r "$WORK/restic.d" backup --tag "$2" "$WORK/restic"
        sync -f "$WORK/restic.d"
        ;;
    borg)
        (cd "$WORK/borg" && borg create "$WORK/borg.d::$2" .)
        sync -f "$WORK/borg.d"
        ;;
    esac
}

# transfer STORE VERSION [SINCE]: to the second place.
transfer() {
    case $1 in
    room)
        "$BIN" --quiet send "$ROOM@$2" ${3:+--since "$3"} --passphrase-file "$WORK/passphrase" | "$BIN" --quiet receive "$WORK/room-second" >/dev/null
        ;;
    btrfs)
        btrfs -q send ${3:+-p "$WORK/btrfs/$3"} "$WORK/btrfs/$2" | btrfs -q receive "$WORK/btrfs-second"
        sync -f "$WORK/btrfs-second"
        ;;
    restic)
        restic -q -r "$WORK/restic-second" copy --from-repo "$WORK/restic.d" --from-password-file <(echo bench) --tag "$2"
        sync -f "$WORK/restic-second"
        ;;
    borg)
        rsync -a "$WORK/borg.d/" "$WORK/borg-second"
        sync -f "$WORK/borg-second"
        ;;
    esac
}

# restore STORE VERSION: one file of 1 MiB, from the version to the live tree.
restore() {
    case $1 in
    room | btrfs)
        local from=$WORK/btrfs/$2/tree/one
        [ "$1" = btrfs ] || from=$WORK/room/.snapshots/$2/tree/one
        cp -a "$from" "$(live "$1")/tree/one"
        ;;
    restic) restic -q -r "$WORK/restic.d" restore latest --tag "$2" --include "$WORK/restic/tree/one" --target / ;;
    borg) (cd "$WORK/borg" && borg extract "$WORK/borg.d::$2" tree/one) ;;
    esac
    sync -f "$(live "$1")"
}

# bytes STORE first|second: what the store, or its second place, takes on the disk.
bytes() {
    local of=$1.d
    [ "$2" = first ] || of=$1-second
    if [ "$1" = btrfs ]; then
        btrfs filesystem usage -b "$WORK/${of%.d}" 2>/dev/null | awk '$1 == "Used:" { print $2; exit }'
    else
        sync -f "$WORK"
        du -sB1 "$WORK/$of" | cut -f 1
    fi
}

# change KIND SEED: the same change in every store, durable. KIND: all at first, then tree or image.
change() {
    local store places=()
    for store in "${STORES[@]}"; do places+=("$(live "$store")"); done
    python3 - "$1" "$2" "$IMAGE_MIB" "$FILES" "${places[@]}" <<'PYTHON'
import os
import random
import sys

kind, seed, mib, files, *places = sys.argv[1:]
mib, files = int(mib), int(files)


def name(place, at):
    return f"{place}/tree/{at % 100}/{at}"


for place in places:
    draw = random.Random(int(seed))
    if kind == "all":
        for at in range(100):
            os.makedirs(f"{place}/tree/{at}")
        with open(f"{place}/image", "wb") as image:
            for _ in range(mib):
                image.write(draw.randbytes(1 << 20))
        with open(f"{place}/tree/one", "wb") as one:
            one.write(draw.randbytes(1 << 20))
    if kind != "image":
        some = range(files) if kind == "all" else draw.sample(range(files), files // 100)
        for at in some:
            with open(name(place, at), "wb") as file:
                file.write(draw.randbytes(draw.randrange(1 << 10, 64 << 10)))
    if kind == "image":
        blocks = mib * 256
        image = os.open(f"{place}/image", os.O_WRONLY)
        for at in draw.sample(range(blocks), blocks // 100):
            os.pwrite(image, draw.randbytes(4096), at * 4096)
        os.close(image)
    os.system(f"sync -f '{place}'")
PYTHON
}

change all 1
for store in "${STORES[@]}"; do
    timed "create all" "$store" create "$store" v0
    timed "transfer all" "$store" transfer "$store" v0
done
before=v0 seed=1
for ((round = 1; round <= ROUNDS; round++)); do
    for kind in tree image; do
        version=$kind$round
        declare -A held there
        for store in "${STORES[@]}"; do
            held[$store]=$(bytes "$store" first)
            there[$store]=$(bytes "$store" second)
        done
        change $kind $((++seed))
        for store in "${STORES[@]}"; do
            timed "create $kind" "$store" create "$store" "$version"
            timed "transfer $kind" "$store" transfer "$store" "$version" "$before"
            printf 'space %s %s %s\nsent %s %s %s\n' $kind "$store" $(($(bytes "$store" first) - held[$store])) \
                $kind "$store" $(($(bytes "$store" second) - there[$store])) >>"$WORK/sizes"
        done
        before=$version
    done
    for store in "${STORES[@]}"; do timed "restore one" "$store" restore "$store" v0; done
    say "round $round of $ROUNDS"
done

PYTHONPATH=$ROOT/scripts python3 -B - "$WORK" "$ROUNDS" "$(git -C "$ROOT" rev-parse --short HEAD)" "$(nproc)" "$IMAGE_MIB" "$FILES" "${STORES[@]}" >"$OUT" <<'PYTHON'
import statistics
import sys

import ratios

work, rounds, commit, processors, mib, files, *stores = sys.argv[1:]
found = ratios.read(f"{work}/times")
for line in open(f"{work}/sizes"):
    *what, size = line.split()
    found.setdefault(tuple(what), []).append(float(size))
ROWS = [
    ("create all", "first version of everything, s", 1),
    ("create tree", "version after 1 % of the files changed, s", 1),
    ("create image", "version after 1 % of the blocks of the image changed, s", 1),
    ("space tree", "space that change and version took: files, MiB", 1 << 20),
    ("space image", "the same: blocks of the image, MiB", 1 << 20),
    ("transfer all", "first version to a second place, s", 1),
    ("transfer tree", "increment to a second place: files, s", 1),
    ("transfer image", "the same: blocks of the image, s", 1),
    ("sent tree", "what the second place grew by: files, MiB", 1 << 20),
    ("sent image", "the same: blocks of the image, MiB", 1 << 20),
    ("restore one", "one file of 1 MiB put back, s", 1),
]


def shown(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


changed = (int(files) // 100 * 32.5 / 1024, int(mib) / 100)
print("## Versions: a room beside Btrfs, restic and borg\n")
print(f"A tree of {int(files):,} files of 1 to 64 KiB, and a disk image of {mib} MiB. Medians of {rounds} rounds in turns, with the least and the most; what")
print(f"concerns everything was measured once. A change of files is {changed[0]:.1f} MiB on average, one of blocks {changed[1]:.1f} MiB in single blocks of 4 KiB. Everything is durable when its")
print("time ends. Btrfs, on a loop device, is not encrypted. The second place is a directory of the same disk: `send` to `receive` of a room, `btrfs send`,")
print("`restic copy`, and `rsync` of the repository of borg. restic and borg read all files again and keep changed pieces of about 1 MiB, which is why scattered blocks cost")
print(f"them most. {processors} processors, at {commit}; made by `scripts/bench-snapshots.sh`.\n")
print("| | " + " | ".join(stores) + " |")
print("|---" * (len(stores) + 1) + "|")
for what, name, unit in ROWS:
    cells = []
    for store in stores:
        values = [value / unit for value in found[(*what.split(), store)]]
        cell = shown(statistics.median(values))
        cells.append(cell if len(values) == 1 else f"{cell} ({shown(min(values))}–{shown(max(values))})")
    print(f"| {name} | " + " | ".join(cells) + " |")
PYTHON
cat "$OUT"
