#!/usr/bin/env bash
# Faults at the operations of the explorer's workloads: every kind, each operation in turn or one in so many.
#
#   scripts/soak/faults.sh [SECONDS]           default: 3600, shared by the families
#   STRIDE=N scripts/soak/faults.sh            of a workload's operations one in so many; 1: every one
#   THREADS=N                                  default: as many as there are processors
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

SECONDS_IN_ALL=${1:-3600}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
THREADS=${THREADS:-$(nproc)}
BIN=$TARGET_DIR/release/explorer

cargo build --release --quiet -p strongroom-explorer
say "Seed $SEED"
status=0
for family in ones keys random:60 twos; do
    say "explorer faults $family"
    "$BIN" faults "$family" --stride "${STRIDE:-1}" --seconds $((SECONDS_IN_ALL / 4)) --seed "$SEED" --threads "$THREADS" ||
        status=1
done
exit "$status"
