#!/usr/bin/env bash
# Measures what docs/performance.md shows, and leaves each result in benches/results/NAME.json. `make performance` then writes
# the document. Takes about half an hour on a quiet machine; what else runs meanwhile is in the numbers.
#
#   scripts/bench.sh BINARY [NAME...]       default: all but bucket, which takes an hour. cost dd small-files ladder scale stores peers busy
#                                           programs snapshots confinement bucket storage cipher; and tools-memory, tools-io-uring, as root
#   BENCH_DIR=DIR scripts/bench.sh BINARY   measure the disk that DIR is on (default: the target directory)
#   DD_MIB=2048                             size of the image that `dd` reads (twice that is needed)
#   ROUNDS=7 FILES=10000                    rounds of each row, and files of a tree
#   MAX_FILES=100000 MAX_BYTES=1GiB         how far `scale` goes
#
# Leaves nothing in DIR. Run it as root, or caches are emptied less thoroughly.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
shift || true
NAMES=("$@")
[ ${#NAMES[@]} -gt 0 ] || NAMES=(cost dd small-files ladder scale stores peers busy programs snapshots confinement storage cipher)
RESULTS=$ROOT/benches/results
DD_MIB=${DD_MIB:-2048}
ROUNDS=${ROUNDS:-7}
FILES=${FILES:-10000}
MAX_FILES=${MAX_FILES:-100000}
MAX_BYTES=${MAX_BYTES:-1GiB}

# Names and attributes are only cold when the whole machine's caches are emptied.
COLD=()
[ "$(id -u)" -ne 0 ] || COLD=(--drop-caches)

# CryFS takes minutes for what takes the others seconds: it is in `peers` only.
TOOLS=()
QUICK_TOOLS=()

mkdir -p "${BENCH_DIR:-$TARGET_DIR}" "$RESULTS"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench.XXXXXX")
MNT=$WORK/mnt
export LC_ALL=C
for tool in gocryptfs securefs; do
    if have "$tool"; then
        TOOLS+=("$tool:$WORK")
        QUICK_TOOLS+=(--with "$tool")
    fi
done

# Whether the kernel offers FUSE over io_uring, and what it was when it is changed here.
OFFERED=/sys/module/fuse/parameters/enable_uring
WAS_OFFERED=
SERVER=
cleanup() {
    local status=$?
    [ -z "$WAS_OFFERED" ] || echo "$WAS_OFFERED" >"$OFFERED"
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true
    if mountpoint -q "$MNT"; then
        "$BIN" umount "$MNT" >/dev/null 2>&1 || fusermount3 -uz "$MNT" || true
    fi
    ! mountpoint -q "$WORK/disk" || umount "$WORK/disk"
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# measure NAME ARGUMENT...: a result replaces the old one only when it is whole. Paths of the working directory, which is new each
# time, are shortened: they say nothing.
measure() {
    local name=$1
    shift
    say "strongroom bench $*"
    "$BIN" --json bench "$@" >"$WORK/result.json"
    sed "s|$WORK|.|g" "$WORK/result.json" >"$RESULTS/$name.json"
}

# beside_tools NAME DIRECTORY [WORD...]: on a source tree there.
beside_tools() {
    measure "$1" tools "${@:2}" --fuse-ceiling --rounds "$ROUNDS" --files "$FILES" --seconds 60 "${COLD[@]}"
}

# Mounts ext4 on a file in memory, which goes with the mount.
disk_in_memory() {
    local image status=0
    DISK=$WORK/disk
    ! mountpoint -q "$DISK" || return 0
    mkdir "$DISK"
    image=$(mktemp /dev/shm/bench.XXXXXX)
    { truncate -s 12G "$image" && mkfs.ext4 -q "$image" && mount -o loop "$image" "$DISK"; } || status=$?
    rm "$image"
    return "$status"
}

# The image, and the same bytes in a mounted room; then a volume and its contents, read by the benchmark itself and by way of our
# server.
dd_stores() {
    local raw=$WORK/raw.img half=$((DD_MIB / 2)) volume=$WORK/volume.img
    local how=(--read "4KiB:${half}MiB" --read "64KiB:${DD_MIB}MiB" --rounds "$ROUNDS" --seconds 600 "${COLD[@]}")
    head -c 24 /dev/urandom | base64 >"$WORK/passphrase"
    chmod 600 "$WORK/passphrase"
    mkdir "$MNT"
    "$BIN" create --quiet "$WORK/room" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1
    "$BIN" mount "$WORK/room" "$MNT" --passphrase-file "$WORK/passphrase" >/dev/null
    head -c "$((DD_MIB << 20))" /dev/urandom >"$raw"
    cp "$raw" "$MNT/decrypted.img"
    sync
    measure dd dd "$raw" "$MNT/decrypted.img" "${how[@]}"
    "$BIN" umount "$MNT" >/dev/null
    rm -rf "$WORK/room"

    # The same noise, now taken for ciphertext; the header goes before it.
    truncate --size 16M "$volume"
    cat "$raw" >>"$volume"
    rm "$raw"
    "$BIN" volume format --quiet "$volume" --key-file "$WORK/passphrase" --kdf pbkdf2 --kdf-iterations 1000 >/dev/null
    sync
    measure dd-volume dd "$volume" "volume:$volume" --key-file "$WORK/passphrase" "${how[@]}"
    "$BIN" --quiet serve nbd "$volume" --read-only --key-file "$WORK/passphrase" --socket "$WORK/nbd" >/dev/null 2>"$WORK/nbd.log" &
    SERVER=$!
    timeout 60 sh -c 'until [ -S "$1" ]; do sleep 0.1; done' wait "$WORK/nbd" || die "the volume is not served: $(cat "$WORK/nbd.log")"
    measure dd-served dd "$volume" "nbd+unix:///?socket=$WORK/nbd" "${how[@]}"
    kill "$SERVER"
    wait "$SERVER" || true
    SERVER=
    rm "$volume"
}

for name in "${NAMES[@]}"; do
    case "$name" in
    cost) measure cost cost "$WORK" --rounds "$ROUNDS" --size 512MiB --fuse-ceiling ;;
    dd) dd_stores ;;
    small-files) measure small-files small-files "$WORK" "${COLD[@]}" ;;
    ladder) measure ladder ladder "$WORK" ;;
    scale) measure scale scale "$WORK" --max-files "$MAX_FILES" --max-bytes "$MAX_BYTES" ;;
    stores) measure stores compare "$WORK" "mounted:$WORK" "${TOOLS[@]}" --rounds "$ROUNDS" --size 256MiB "${COLD[@]}" ;;
    peers) beside_tools peers "$WORK" ;;
    tools-memory)
        disk_in_memory
        beside_tools tools-memory "$DISK" "${QUICK_TOOLS[@]}"
        ;;
    tools-io-uring)
        [ -f "$OFFERED" ] || die "this kernel has no FUSE over io_uring (Linux 6.14)"
        disk_in_memory
        WAS_OFFERED=$(cat "$OFFERED")
        echo Y >"$OFFERED"
        beside_tools tools-io-uring "$DISK" "${QUICK_TOOLS[@]}"
        echo "$WAS_OFFERED" >"$OFFERED"
        WAS_OFFERED=
        ;;
    busy) BENCH_DIR=$WORK "$ROOT/scripts/bench-busy.sh" "$BIN" "$ROUNDS" ;;
    programs) "$ROOT/scripts/bench-programs.sh" "$BIN" "$ROUNDS" ;;
    snapshots | confinement | bucket) BENCH_DIR=$WORK "$ROOT/scripts/bench-$name.sh" "$BIN" "$ROUNDS" ;;
    storage) measure storage storage "$WORK" --rounds "$ROUNDS" ;;
    cipher) measure cipher cipher ;;
    *) die "there is no measurement '$name': cost dd small-files ladder scale stores peers busy programs snapshots confinement bucket storage cipher" ;;
    esac
done
