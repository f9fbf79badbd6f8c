#!/usr/bin/env bash
# Counts the instructions of small reads and writes of a room, with callgrind: a figure that a busy machine does not change.
#
#   scripts/instructions.sh [COUNT]        default: 1000 of each operation
#
# Prints the instructions of one operation, the cipher's and the catalog's included; the kernel's are not. The program is built without
# optimisation across crates, so that functions keep their names: target/instructions/callgrind.out has them all (callgrind_annotate).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

COUNT=${1:-1000}
have valgrind || install_packages valgrind
OUT=$TARGET_DIR/instructions
mkdir -p "$OUT"
# rustix reads what valgrind does not show, unless libc reads it.
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo build --quiet --release --locked -p strongroom-room --example instructions \
    --features rustix/use-libc-auxv --target-dir "$OUT"
rm -f "$OUT"/callgrind.out
valgrind --quiet --tool=callgrind --callgrind-out-file="$OUT/callgrind.out" "$OUT/release/examples/instructions" "$COUNT"
say "instructions of one operation:"
callgrind_annotate --inclusive=yes --threshold=100 "$OUT/callgrind.out" 2>/dev/null |
    sed -nE 's/^ *([0-9,]+) .*instructions::((read|append|write|sync)_[a-z_]+)( .*)?$/\2 \1/p' |
    tr -d , | sort -k1,1 -k2,2rn | awk -v n="$COUNT" '$1 != last { printf "  %-22s %8d\n", $1, $2 / n; last = $1 }'
