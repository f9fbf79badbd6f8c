#!/usr/bin/env bash
# Kills the serving process at random moments under load: crates/cli/tests/kill. Three trials one after another: a mount by the
# kernel directly, one through fusermount3, and a room that is full and emptied all the time.
#   SOAK_ROUNDS=1000    rounds of each
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_KILL_ROUNDS=${SOAK_ROUNDS:-1000} STRONGROOM_KEEP=1
cargo_test kill --test-threads=1
