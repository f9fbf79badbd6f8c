#!/usr/bin/env bash
# Fuzzes what reads bytes that others may have made: each target of fuzz/ for a while, by libFuzzer, with the address
# sanitizer. What the targets try, and what must hold, is in the crates' `fuzzing` modules.
#
#   scripts/soak/fuzz.sh [SECONDS [TARGET...]]     default: 600 seconds each, every target
#   JOBS=2 scripts/soak/fuzz.sh                    two targets at once; default: one
#
# An input that fails is kept in target/fuzz-found/TARGET. Run it again with the command that is printed, fix the cause,
# and put the input into fuzz/corpus/TARGET as found-NAME: from then on `cargo test` tries it. What a run learnt stays
# in target/fuzz-corpus/TARGET, and the next one goes on from there.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

CARGO_FUZZ_VERSION=0.13.2
# The compiler with sanitizers and coverage; another nightly by its date: TOOLCHAIN=nightly-2026-05-19.
TOOLCHAIN=${TOOLCHAIN:-nightly}
SECONDS_EACH=${1:-600}
shift || true
JOBS=${JOBS:-1}
# Nothing that is parsed here has a reason to take more, in MiB: in all, and at once.
RSS_LIMIT=1024
MALLOC_LIMIT=64

cd "$ROOT"
mapfile -t ALL < <(sed -n '/^\[\[bin\]\]/,/^$/s/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml)
TARGETS=("$@")
[ ${#TARGETS[@]} -gt 0 ] || TARGETS=("${ALL[@]}")
case "$SECONDS_EACH" in
'' | *[!0-9]*) die "the first argument is the number of seconds for each target, not '$SECONDS_EACH'" ;;
esac
for target in "${TARGETS[@]}"; do
    printf '%s\n' "${ALL[@]}" | grep -qx "$target" || die "there is no fuzz target '$target', only: ${ALL[*]}"
done

have rustup || die "fuzzing needs a nightly compiler beside the stable one, and rustup to choose it: see https://rustup.rs"
rustc=$(rustup which --toolchain "$TOOLCHAIN" rustc 2>/dev/null) ||
    die "fuzzing needs a nightly compiler: run: rustup toolchain install $TOOLCHAIN --profile minimal"
have c++ || install_packages g++
cargo_tool cargo-fuzz "$CARGO_FUZZ_VERSION"
rm -rf "$TOOLS/build"

BUILD=$TARGET_DIR/fuzz
LOGS=$TARGET_DIR/fuzz-logs
HOST=$("$rustc" -vV | sed -n 's/^host: //p')
say "Building ${#TARGETS[@]} fuzz targets with $("$rustc" --version)"
for target in "${TARGETS[@]}"; do
    RUSTUP_TOOLCHAIN=$TOOLCHAIN "$TOOLS/bin/cargo-fuzz" build --sanitizer address --target-dir "$BUILD" "$target" ||
        die "the fuzz targets do not build"
done
rm -rf "$LOGS"
mkdir -p "$LOGS"

# Runs one target, and prints one line of what it did; its whole output goes to the log.
fuzz() {
    local target=$1 status=0 log=$LOGS/$1 found=$TARGET_DIR/fuzz-found/$1 learnt=$TARGET_DIR/fuzz-corpus/$1
    local dictionary=()
    mkdir -p "$found" "$learnt"
    [ ! -f "fuzz/$target.dict" ] || dictionary=("-dict=fuzz/$target.dict")
    # Rust has one definition of everything; the check of it cries wolf.
    ASAN_OPTIONS=detect_odr_violation=0 "$BUILD/$HOST/release/$target" "$learnt" "fuzz/corpus/$target" \
        "-max_total_time=$SECONDS_EACH" "-rss_limit_mb=$RSS_LIMIT" "-malloc_limit_mb=$MALLOC_LIMIT" -timeout=10 \
        "-artifact_prefix=$found/" -print_final_stats=1 ${dictionary[@]+"${dictionary[@]}"} >"$log" 2>&1 || status=$?
    final() { sed -n "s/^stat::$1: *//p" "$log"; }
    say "$target: $(final number_of_executed_units) executions, $(final average_exec_per_sec) a second," \
        "$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1), peak $(final peak_rss_mb) MiB"
    if [ "$status" -ne 0 ]; then
        say "$target FAILED:"
        grep -m 1 -A 3 -E 'panicked at|ERROR: ' "$log" || tail -n 20 "$log"
        say "again: $BUILD/$HOST/release/$target $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
        touch "$LOGS/failed"
    fi
}

# Only what this script started.
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; exit 130' INT TERM
set -m
for target in "${TARGETS[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
        wait -n || true
    done
    fuzz "$target" &
done
wait
[ ! -e "$LOGS/failed" ] || die "fuzzing found something: see above, and the logs in $LOGS"
say "No target found anything in $SECONDS_EACH seconds each"
