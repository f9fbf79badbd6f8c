#!/usr/bin/env bash
# The formal model of the capability protocol within larger bounds than the tests have: every state of each set-up.
#   SOAK_MODEL="2 1 1 1 1 1"   requests, orders of the metadata server, forgeries, restarts, epochs, steps of time
# The default takes several GB of memory. docs/capability-model.md says what the numbers mean and what the last run found.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

read -ra BOUNDS <<<"${SOAK_MODEL:-2 1 1 1 1 1}"
cd "$ROOT"
for setup in secure private; do
    cargo run --quiet --release --locked -p strongroom-capability-model --example check -- "$setup" "${BOUNDS[@]}"
done
