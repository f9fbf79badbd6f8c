# shellcheck shell=bash
# What the campaigns of the crash explorer share: its binary, their time, seed and threads. Sourced with the script's arguments.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

SECONDS_IN_ALL=${1:-3600}
# Printed first: with it an earlier run is repeated.
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
THREADS=${THREADS:-$(nproc)}

cargo build --release --quiet -p strongroom-explorer
say "Seed $SEED"

# explorer SECONDS ARGUMENTS...
explorer() {
    local seconds=$1
    shift
    say "explorer $* --seconds $seconds --seed $SEED"
    "$TARGET_DIR/release/explorer" "$@" --seconds "$seconds" --seed "$SEED" --threads "$THREADS"
}
