#!/usr/bin/env bash
# The Rust tests again and again on a busy machine: a test that fails once in many rounds fails on somebody's machine.
#
#   scripts/soak/rounds.sh [ROUNDS [TEST...]]     default: 20 rounds of all; TEST: a test program, such as `network`
#   scripts/soak/rounds.sh 20 -p strongroom-seal -p strongroom-pages      all tests of these crates
#   BUSY=4 scripts/soak/rounds.sh 5 network       beside four busy loops; default: 2
#   FILTER=grants:: scripts/soak/rounds.sh 5 suite    only tests with that in their names
#
# Goes on after a failure. What a failed round wrote is kept in target/soak/rounds.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# The tests use the program they were built with.
unset STRONGROOM_BIN

ROUNDS=${1:-20}
shift || true
BUSY=${BUSY:-2}
# Far more than the slowest program needs: who runs longer hangs.
LIMIT=${LIMIT:-3600}
WHICH=()
while [ $# -gt 0 ]; do
    case $1 in
    -p)
        WHICH+=(-p "${2:?the name of a crate}")
        shift
        ;;
    *) WHICH+=(--test "$1") ;;
    esac
    shift
done
[[ " ${WHICH[*]-}" == *" -p "* ]] || WHICH+=(--workspace)

cd "$ROOT"
cargo test --quiet --locked --no-run "${WHICH[@]}"
rm -rf "$KEPT"
mkdir -p "$KEPT"
LOOPS=()
trap 'kill ${LOOPS[@]+"${LOOPS[@]}"} 2>/dev/null || true' EXIT
for ((i = 0; i < BUSY; i++)); do
    while :; do :; done &
    LOOPS+=($!)
done
failed=0
for ((round = 1; round <= ROUNDS; round++)); do
    log=$KEPT/$round.log began=$SECONDS
    if timeout "$LIMIT" cargo test --locked --no-fail-fast "${WHICH[@]}" -- ${FILTER:+"$FILTER"} >"$log" 2>&1; then
        say "round $round: $(grep -c '^test .* \.\.\. ok' "$log") passed, $((SECONDS - began)) seconds"
        rm "$log"
    else
        failed=$((failed + 1))
        say "round $round: FAILED after $((SECONDS - began)) seconds, see $log"
        sed -nE 's/^test (.*) \.\.\. FAILED$/    \1/p' "$log"
    fi
done
[ "$failed" -eq 0 ] || die "$failed of $ROUNDS rounds failed"
say "$ROUNDS rounds passed beside $BUSY busy loops"
