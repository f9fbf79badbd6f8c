#!/usr/bin/env bash
# Every campaign of the crash explorer, one after the other, for so many seconds in all; each prints one line of sums.
#
#   scripts/soak/explorer.sh [SECONDS]         default: 3600
#   SEED=N scripts/soak/explorer.sh            repeat an earlier run: its seed is printed first
#   THREADS=N                                  default: as many as there are processors
#
# A failure prints a story and the command that makes it again; then this ends with status 1, after the other campaigns.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

SECONDS_IN_ALL=${1:-3600}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
THREADS=${THREADS:-$(nproc)}
BIN=$TARGET_DIR/release/explorer

cargo build --release --quiet -p strongroom-explorer
say "Seed $SEED"
status=0

# campaign SHARE ARGUMENTS...: of a hundred parts of the time.
campaign() {
    local seconds=$((SECONDS_IN_ALL * $1 / 100))
    shift
    say "explorer $* --seconds $seconds --seed $SEED"
    "$BIN" "$@" --seconds "$seconds" --seed "$SEED" --threads "$THREADS" || status=1
}

campaign 15 ones --each 400
campaign 35 twos --each 300
campaign 20 keys --each 500
campaign 25 random --each 4000
# Each sync left out: what is not caught is printed and is no failure here (see docs/reliability.md).
say "explorer sites"
"$BIN" sites --every 40 --each 400 --seconds $((SECONDS_IN_ALL * 5 / 100 / 20 + 1)) --seed "$SEED" --threads "$THREADS" || true
exit "$status"
