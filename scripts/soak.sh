#!/usr/bin/env bash
# Long trials of the release binary, each a campaign: a script of its own in scripts/soak.
#
#   scripts/soak.sh [CAMPAIGN...]      default: all, one after another
#   SEED=N scripts/soak.sh kill        repeat an earlier run: its seed is printed first
#
# A campaign's script says at its top what it does and which variables set how long. It gets STRONGROOM_BIN (default:
# target/release/strongroom) and SEED, writes to standard output, and ends with 0 only if all was well. What each wrote is
# kept in target/soak/CAMPAIGN.log; what it saved of a failure is in target/soak/CAMPAIGN.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

campaigns() { find "$ROOT/scripts/soak" -name '*.sh' ! -name lib.sh -printf '%f\n' | sed 's/\.sh$//' | sort; }

STRONGROOM_BIN=$(realpath "${STRONGROOM_BIN:-$TARGET_DIR/release/strongroom}")
export STRONGROOM_BIN SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
[ -x "$STRONGROOM_BIN" ] || die "there is no $STRONGROOM_BIN: run make build"
[ $# -gt 0 ] || mapfile -t all < <(campaigns)
[ $# -gt 0 ] || set -- "${all[@]}"
for campaign in "$@"; do
    [ -x "$ROOT/scripts/soak/$campaign.sh" ] || die "there is no campaign '$campaign': there are $(campaigns | paste -sd ' ')"
done

mkdir -p "$TARGET_DIR/soak"
FAILED=()
for campaign in "$@"; do
    say "== $campaign, seed $SEED"
    began=$SECONDS
    "$ROOT/scripts/soak/$campaign.sh" 2>&1 | tee "$TARGET_DIR/soak/$campaign.log" || FAILED+=("$campaign")
    say "== $campaign: $((SECONDS - began)) seconds"
done
[ ${#FAILED[@]} -eq 0 ] || die "failed: ${FAILED[*]}; see $TARGET_DIR/soak, and repeat with SEED=$SEED"
say "All ended well: $*"
