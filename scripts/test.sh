#!/usr/bin/env bash
# Runs every part of `make test`, each whatever became of the ones before it, and ends with a table and one line of sums:
#
#   N passed, N failed, N skipped
#
#   scripts/test.sh [PART...]     default: words links fmt build rust clippy python java deny
#
# Exits with 1 if anything failed. What each part printed is kept in target/test/PART.log. A part without tests of its own
# counts as one, and so does a part that fails without a failed test: what does not compile, a test program that is killed.
#
# `clippy`, `python` and `java` begin with `rust`, and are shown when it has ended: tests leave time to the others. The bindings load the libraries
# of `build`, where that part is asked for: a library built for itself alone has fewer features, and much would be compiled twice.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

ALL=(words links fmt build rust clippy python java deny)
PARTS=("$@")
[ ${#PARTS[@]} -gt 0 ] || PARTS=("${ALL[@]}")
for part in "${PARTS[@]}"; do
    [[ " ${ALL[*]} " == *" $part "* ]] || die "there is no part '$part': there are ${ALL[*]}"
done
LOCKED=()
[ -f Cargo.lock ] && LOCKED=(--locked)
LOGS=$TARGET_DIR/test
mkdir -p "$LOGS"
for part in "${PARTS[@]}"; do
    rm -f "$LOGS/$part.log" "$LOGS/$part.seconds"
done

asked() { [[ " ${PARTS[*]} " == *" $1 "* ]]; }
! asked build || export BUILT_LIBRARIES=$TARGET_DIR/debug

run() {
    case "$1" in
    # The book's source, so that a document that no part of it has is noticed.
    links) scripts/links.py && scripts/book.py "$TARGET_DIR/book-source" ;;
    fmt) cargo fmt --all --check ;;
    clippy)
        # Cargo lets one command at a time compile: the tests first, which then run on. They are also the ones that are waited for.
        ! asked rust || until grep -qs '^ *Running ' "$LOGS/rust.log" || [ -e "$LOGS/rust.seconds" ]; do sleep 1; done
        nice cargo clippy --workspace --all-targets "${LOCKED[@]}" -- -D warnings
        ;;
    build) cargo build --workspace --all-targets "${LOCKED[@]}" ;;
    # Two tests a processor: many wait for disks, servers and the kernel more than they compute.
    rust) RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} cargo test --workspace --no-fail-fast "${LOCKED[@]}" ;;
    *) "scripts/${SCRIPT_OF[$1]}" ;;
    esac
}
declare -A SCRIPT_OF=([words]=words.py [python]=test-python.sh [java]=test-java.sh [deny]=deny.sh)

# counts PART LOG: passed, failed, skipped, as the part's own summary lines say; nothing if there are none.
counts() {
    case "$1" in
    # One line for each test program and each crate's documentation.
    rust) sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p' "$2" |
        awk '{ p += $1; f += $2; s += $3 } END { if (NR) print p, f, s }' ;;
    # "3 failed, 120 passed, 1 skipped, 1 error in 7.31s", without what is zero.
    python) grep -E '^[0-9]+ [a-z]+(, [0-9]+ [a-z]+)* in [0-9.]+s' "$2" | tail -n 1 | sed 's/ in .*//; s/, /\n/g' |
        awk '{ n[$2] += $1 } END { if (NR) print n["passed"] + 0, n["failed"] + n["error"] + n["errors"], n["skipped"] + 0 }' ;;
    java) sed -nE 's/^Java: tests ([0-9]+), failures ([0-9]+), errors ([0-9]+), skipped ([0-9]+)$/\1 \2 \3 \4/p' "$2" |
        awk '{ print $1 - $2 - $3 - $4, $2 + $3, $4 }' ;;
    esac
}

# failures PART LOG: the names of the failed tests.
failures() {
    case "$1" in
    rust) sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$2" ;;
    python) sed -nE 's/^(FAILED|ERROR) ([^ ]+\.py[^ ]*).*/\2/p' "$2" ;;
    java) sed -nE 's/^Java: failed: (.*)/\1/p' "$2" ;;
    esac
}

declare -A BESIDE=()
trap 'trap - INT TERM; kill 0' INT TERM

# timed PART: runs it, and keeps how long it took.
timed() {
    local began=$SECONDS status=0
    run "$1" || status=$?
    echo $((SECONDS - began)) >"$LOGS/$1.seconds"
    return "$status"
}

# beside PART: begins it in the background.
beside() {
    timed "$1" >"$LOGS/$1.log" 2>&1 &
    BESIDE[$1]=$!
}

TABLE=$(printf '%-8s %-7s %7s %7s %7s %9s' part result passed failed skipped seconds)
FAILED=()
PASSED_SUM=0 FAILED_SUM=0 SKIPPED_SUM=0
for part in "${ALL[@]}"; do
    asked "$part" || continue
    say "== $part"
    log=$LOGS/$part.log result=passed
    if [ "$part" = rust ]; then
        for other in clippy python java; do
            ! asked "$other" || beside "$other"
        done
    fi
    if [ -n "${BESIDE[$part]:-}" ]; then
        wait "${BESIDE[$part]}" || result=FAILED
        cat "$log"
    else
        timed "$part" 2>&1 | tee "$log" || result=FAILED
    fi
    seconds=$(<"$LOGS/$part.seconds")
    read -r passed failed skipped < <(counts "$part" "$log") || read -r passed failed skipped <<<"0 0 0"
    if [ $result = FAILED ]; then
        [ "$failed" -gt 0 ] || failed=1
        mapfile -t names < <(failures "$part" "$log")
        FAILED+=("$part, see $log" "${names[@]/#/    }")
    elif [ $((passed + failed + skipped)) -eq 0 ]; then
        passed=1
    fi
    TABLE+=$(printf '\n%-8s %-7s %7d %7d %7d %9d' "$part" "$result" "$passed" "$failed" "$skipped" "$seconds")
    PASSED_SUM=$((PASSED_SUM + passed)) FAILED_SUM=$((FAILED_SUM + failed)) SKIPPED_SUM=$((SKIPPED_SUM + skipped))
done

say ""
say "$TABLE"
if [ ${#FAILED[@]} -gt 0 ]; then
    say ""
    say "Failed:"
    printf '%s\n' "${FAILED[@]}"
fi
say ""
say "$PASSED_SUM passed, $FAILED_SUM failed, $SKIPPED_SUM skipped"
[ "$FAILED_SUM" -eq 0 ]
