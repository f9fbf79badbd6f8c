#!/usr/bin/env bash
# Kills the serving process at random moments under load: crates/cli/tests/kill.
#   SOAK_ROUNDS=1000    rounds
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_KILL_ROUNDS=${SOAK_ROUNDS:-1000} STRONGROOM_KEEP=1
cargo_test kill
