#!/usr/bin/env bash
# Measures the ciphers without the processor's AES instructions: the picture of a phone or a small board that has none. Builds the
# program so into a target directory of its own, and leaves benches/results/cipher-soft.json, which `make performance` shows. Building
# takes as long as any first release build, measuring two minutes.
#
#   scripts/bench-soft.sh                                   build, and measure the ciphers
#   BUILD_ONLY=1 scripts/bench-soft.sh                      build, and print where the program is
#   SOFT_BIN=PROGRAM scripts/bench-volumes.sh BINARY        serve a volume by it, beside the others
#
# Two libraries have AES here, and both need the setting: the crate `aes` when it is built, AWS-LC when it runs (x86 only).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

SOFT_DIR=$TARGET_DIR/soft
# The processor has no AES-NI (bit 57) and no carry-less multiplication (bit 33).
CAPABILITIES='~0x200000200000000'
RESULTS=$ROOT/benches/results

cd "$ROOT"
RUSTFLAGS="${RUSTFLAGS:-} --cfg aes_backend=\"soft\"" CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$SOFT_DIR \
    cargo build --release --locked -p strongroom-cli
BIN=$SOFT_DIR/release/strongroom
say "AES in software: $BIN"
[ -z "${BUILD_ONLY:-}" ] || exit 0

mkdir -p "$RESULTS"
result=$(mktemp)
trap 'rm -f "$result"' EXIT
OPENSSL_ia32cap=$CAPABILITIES "$BIN" --json bench cipher >"$result"
cp "$result" "$RESULTS/cipher-soft.json"
say "Left $RESULTS/cipher-soft.json; for serving: SOFT_BIN=$BIN scripts/bench-volumes.sh BINARY"
