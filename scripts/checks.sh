# shellcheck shell=bash
# Checks for a script that tries the programs: a line for each, and how many there were. Sourced behind lib.sh, with WORK set.

CHECKS=0 FAILED=0
# A password that no refusal may show, for a script that uses one.
SECRET=

# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    CHECKS=$((CHECKS + 1))
    if "$@" >"$WORK/out" 2>&1; then
        say "ok      $what"
    else
        FAILED=$((FAILED + 1))
        say "FAILED  $what: $*"
        sed 's/^/        /' "$WORK/out" | tail -n 5
    fi
}
# refused WHAT PATTERN COMMAND...: the command fails, its message has the pattern, and not the secret.
refused() {
    local what=$1 pattern=$2
    shift 2
    check "$what" bash -c '! "${@:3}" >"$0" 2>&1 && grep -q -- "$1" "$0" && { [ -z "$2" ] || ! grep -q -- "$2" "$0"; } || { cat "$0"; false; }' \
        "$WORK/refusal" "$pattern" "$SECRET" "$@"
}
