#!/usr/bin/env bash
# Kills senders, receivers, what is between them, and commands on snapshots of mounted and unmounted rooms:
# crates/cli/tests/suite/replicas.
#   SOAK_KILLS=1000     kills in all
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_KILLS=${SOAK_KILLS:-1000}
cargo_test suite replicas::
