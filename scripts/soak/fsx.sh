#!/usr/bin/env bash
# Three fsx at once on one mounted room, each in another of the modes that tests/external has; for each seed a new room,
# which is checked afterwards with every unit read. Then pjdfstest, and three fsx, in each setting: mounted by the kernel directly,
# mounted through fusermount3, in a nearly full room, and on shared storage (crates/cli/tests/external.rs).
#   SOAK_OPS=10000000   operations in all with new rooms; a tenth as many in each setting
#   SOAK_SEEDS=10       seeds
set -euo pipefail
. "$(dirname "$0")/lib.sh"

OPERATIONS=${SOAK_OPS:-10000000}
SEEDS=${SOAK_SEEDS:-10}
FSX=$TOOLS/bin/fsx
[ -x "$FSX" ] || die "fsx is not built: run scripts/setup.sh test"
MODES=(fsx fsx-unmapped fsx-odd fsx-large fsx-synced fsx-reopened fsx-direct)
# How many operations each mode has, relative to the others, so that all take about as long.
declare -A SHARE=([fsx-large]=4 [fsx-synced]=10 [fsx-reopened]=10 [fsx-direct]=1)
ALL_SHARES=0
for ((turn = 0; turn < SEEDS * 3; turn++)); do
    ALL_SHARES=$((ALL_SHARES + ${SHARE[${MODES[turn % ${#MODES[@]}]}]:-20}))
done
# fsx 0.3.2 never unmaps what it reads through a mapping: it gets slower and slower, and the kernel ends it at 65,530. So each
# runs in pieces, which begin with the piece's own seed and an empty file.
PIECE=20000

WORK=$(mktemp -d "$TARGET_DIR/soak/fsx.XXXXXX")
MNT=$WORK/mnt
export XDG_STATE_HOME=$WORK/state
RUNS=()
LOOPS=()

detach_loops() {
    local loop
    for loop in ${LOOPS[@]+"${LOOPS[@]}"}; do
        as_root losetup -d "$loop" || true
    done
    LOOPS=()
}

cleanup() {
    local status=$? run
    for run in ${RUNS[@]+"${RUNS[@]}"}; do
        # The shell that runs the pieces, and the piece it runs.
        pkill -P "$run" 2>/dev/null || true
        kill "$run" 2>/dev/null || true
    done
    wait
    detach_loops
    if mountpoint -q "$MNT"; then
        "$STRONGROOM_BIN" umount "$MNT" >/dev/null 2>&1 || fusermount3 -uz "$MNT" || true
    fi
    if [ "$status" -ne 0 ] && [ -d "$WORK/artifacts" ]; then
        rm -rf "$KEPT"
        mv "$WORK/artifacts" "$KEPT"
        say "What fsx printed and saved is in $KEPT; repeat with SEED=$SEED"
    fi
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

head -c 24 /dev/urandom | base64 >"$WORK/passphrase"
chmod 600 "$WORK/passphrase"
mkdir "$MNT" "$WORK/artifacts"

# pieces MODE SEED OPERATIONS FILE
pieces() {
    local left=$3 piece seed=$2
    while ((left > 0)); do
        piece=$((left < PIECE ? left : PIECE))
        "$FSX" -f "$ROOT/tests/external/$1.toml" -N "$piece" -S "$seed" -P "$WORK/artifacts" "$4" || {
            echo "-N $piece -S $seed"
            return 1
        }
        left=$((left - piece))
        # Far from the seeds of the others.
        seed=$((seed + 1000))
    done
}

# start MODE SEED OPERATIONS NUMBER: sets RUNS[NUMBER]
start() {
    local mode=$1 seed=$2 operations=$3 number=$4 file=$MNT/fsx-$4
    if [ "$mode" = fsx-direct ]; then
        truncate -s 16M "$file"
        file=$(as_root losetup --find --show --direct-io=on "$file")
        LOOPS+=("$file")
    fi
    pieces "$mode" "$seed" "$operations" "$file" >"$WORK/artifacts/output-$number" 2>&1 &
    RUNS[number]=$!
}

DONE=0
TURN=0
BEGAN=$SECONDS
for ((round = 0; round < SEEDS; round++)); do
    rm -rf "$WORK/room" "$WORK/artifacts"
    mkdir "$WORK/artifacts"
    "$STRONGROOM_BIN" create --quiet "$WORK/room" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1
    "$STRONGROOM_BIN" mount "$WORK/room" "$MNT" --passphrase-file "$WORK/passphrase" >/dev/null
    MODE_OF=()
    for number in 0 1 2; do
        mode=${MODES[TURN++ % ${#MODES[@]}]}
        operations=$((OPERATIONS * ${SHARE[$mode]:-20} / ALL_SHARES + 1))
        if [ "$mode" = fsx-direct ] && ! { [ -e /dev/loop-control ] && { [ "$(id -u)" -eq 0 ] || have sudo; }; }; then
            warn "fsx-direct is skipped: it needs root and loop devices"
            mode=fsx
        fi
        MODE_OF[number]="$mode, seed $((SEED + round * 3 + number)), $operations operations"
        DONE=$((DONE + operations))
        start "$mode" $((SEED + round * 3 + number)) "$operations" "$number"
    done
    for number in 0 1 2; do
        if wait "${RUNS[number]}"; then
            say "${MODE_OF[number]}: $(tail -n 1 "$WORK/artifacts/output-$number")"
        else
            say "${MODE_OF[number]}: FAILED"
            tail -n 20 "$WORK/artifacts/output-$number"
            exit 1
        fi
    done
    RUNS=()
    detach_loops
    "$STRONGROOM_BIN" umount "$MNT"
    "$STRONGROOM_BIN" check --read-data "$WORK/room" --passphrase-file "$WORK/passphrase"
done
say "$DONE operations over $SEEDS seeds, no difference; $((DONE / (SECONDS - BEGAN + 1))) operations a second"
STRONGROOM_SEED=$SEED STRONGROOM_FSX_OPS=$((OPERATIONS / 30 + 1)) cargo_test external --test-threads=1
