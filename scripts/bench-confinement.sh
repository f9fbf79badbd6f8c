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
STORES=(unconfined confined)
declare -A BIN_OF=([unconfined]=$BIN [confined]=$BIN)
# Both by the device: without confinement there is no mount over io_uring.
options_of() {
    printf '%s\n' -o noio_uring
    [ "$1" = confined ] || printf '%s\n' --confinement off
}
. "$(dirname "$0")/mounts.sh"

mounts_in_turns "$ROUNDS"
{
    printf '## The cost of confinement\n\n'
    say "Speed of a mount whose process is confined by Landlock and seccomp, as it is by default, as a ratio to one with \`--confinement off\`, both by /dev/fuse. Medians of"
    say "$ROUNDS rounds in turns, with the least and the most, on $(nproc) processors, at $(git -C "$ROOT" rev-parse --short HEAD). Made by \`scripts/bench-confinement.sh\`."
    say ""
    mounts_table
} >"$OUT"
cat "$OUT"
