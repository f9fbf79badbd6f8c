#!/usr/bin/env bash
# Three fsx at once on one mounted room, until each has done its operations; then the room is checked, every unit read.
#
#   scripts/soak.sh [BINARY [OPERATIONS]]      default: target/release/strongroom 5000000
#   SEED=N scripts/soak.sh                     repeat an earlier run: its seed is printed first
#
# What fsx saves when it finds a difference stays in target/soak-failure.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
OPERATIONS=${2:-5000000}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
[ -x "$BIN" ] || die "there is no $BIN: run make build"
[ -x "$TOOLS/bin/fsx" ] || die "fsx is not built: run scripts/setup.sh test"

mkdir -p "$TARGET_DIR"
WORK=$(mktemp -d "$TARGET_DIR/soak.XXXXXX")
MNT=$WORK/mnt
export XDG_STATE_HOME=$WORK/state
RUNS=()

cleanup() {
    local status=$? run
    for run in ${RUNS[@]+"${RUNS[@]}"}; do
        kill "$run" 2>/dev/null || true
    done
    wait
    if mountpoint -q "$MNT"; then
        "$BIN" umount "$MNT" >/dev/null 2>&1 || fusermount3 -uz "$MNT" || true
    fi
    if [ "$status" -ne 0 ] && [ -d "$WORK/artifacts" ]; then
        rm -rf "$TARGET_DIR/soak-failure"
        mv "$WORK/artifacts" "$TARGET_DIR/soak-failure"
        say "What fsx printed and saved is in $TARGET_DIR/soak-failure; repeat with SEED=$SEED"
    fi
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "Seed $SEED, $OPERATIONS operations each"
head -c 24 /dev/urandom | base64 >"$WORK/passphrase"
chmod 600 "$WORK/passphrase"
mkdir "$MNT" "$WORK/artifacts"
"$BIN" create "$WORK/room" --passphrase-file "$WORK/passphrase" >/dev/null
"$BIN" mount "$WORK/room" "$MNT" --passphrase-file "$WORK/passphrase" >/dev/null
for number in 0 1 2; do
    "$TOOLS/bin/fsx" -f "$ROOT/tests/external/fsx.toml" -N "$OPERATIONS" -S $((SEED + number)) -P "$WORK/artifacts" \
        "$MNT/fsx-$number" >"$WORK/artifacts/output-$number" 2>&1 &
    RUNS+=($!)
done
FAILED=
for number in 0 1 2; do
    if wait "${RUNS[$number]}"; then
        say "fsx $number (seed $((SEED + number))): $(tail -n 1 "$WORK/artifacts/output-$number")"
    else
        say "fsx $number (seed $((SEED + number))) FAILED:"
        tail -n 20 "$WORK/artifacts/output-$number"
        FAILED=1
    fi
done
RUNS=()
"$BIN" umount "$MNT"
"$BIN" check --read-data "$WORK/room" --passphrase-file "$WORK/passphrase" || FAILED=1
[ -z "$FAILED" ] || die "the soak run failed"
say "All three ended well, and the room is sound"
