#!/usr/bin/env bash
# What changes cost or gained: a room that an earlier program makes and mounts, and one that a later program does, in turns. Prints the ratios of speed.
# Takes some four seconds a round.
#
#   scripts/bench-before.sh EARLIER LATER [ROUNDS]     paths of programs; rounds: 9
#
# BENCH_DIR: the disk that is measured (default: the target directory).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "say which two programs: $0 EARLIER LATER [ROUNDS]"
STORES=(earlier later)
declare -A BIN_OF=([earlier]=$(realpath "$1") [later]=$(realpath "$2"))
for store in "${STORES[@]}"; do
    [ -x "${BIN_OF[$store]}" ] || die "there is no program ${BIN_OF[$store]}"
done
options_of() { :; }
. "$(dirname "$0")/mounts.sh"

mounts_in_turns "${3:-9}"
mounts_table
