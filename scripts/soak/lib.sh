# shellcheck shell=bash
# What the campaigns share: the binary, the seed, and a place that is gone afterwards. Sourced, never run.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

CAMPAIGN=$(basename "$0" .sh)
STRONGROOM_BIN=$(realpath -m "${STRONGROOM_BIN:-$TARGET_DIR/release/strongroom}")
export STRONGROOM_BIN
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
# For what a failure leaves to be looked into.
# shellcheck disable=SC2034
KEPT=$TARGET_DIR/soak/$CAMPAIGN
mkdir -p "$TARGET_DIR/soak"

# cargo_test NAME ARGUMENT...: runs that test program of crates/cli/tests, built for release, on STRONGROOM_BIN.
cargo_test() {
    local name=$1
    shift
    [ -x "$STRONGROOM_BIN" ] || die "there is no $STRONGROOM_BIN: run make build"
    (cd "$ROOT" && cargo test --quiet --release --locked -p strongroom-cli --test "$name" -- --nocapture "$@")
}

# begin_explorer [SECONDS]: builds the crash explorer, and says what it shall have; prints the seed, with which a run is repeated.
begin_explorer() {
    # shellcheck disable=SC2034
    SECONDS_IN_ALL=${1:-3600}
    THREADS=${THREADS:-$(nproc)}
    cargo build --release --quiet -p strongroom-explorer
    say "Seed $SEED"
}

# explorer SECONDS ARGUMENTS...
explorer() {
    local seconds=$1
    shift
    say "explorer $* --seconds $seconds --seed $SEED"
    "$TARGET_DIR/release/explorer" "$@" --seconds "$seconds" --seed "$SEED" --threads "$THREADS"
}
