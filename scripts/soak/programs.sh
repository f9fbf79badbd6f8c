#!/usr/bin/env bash
# SQLite, git, a mailbox and PostgreSQL with their mount killed under them, cargo, rsync and tar: crates/cli/tests/programs.
#   SOAK_KILLS=20       how often each is killed
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_PROGRAM_ROUNDS=${SOAK_KILLS:-20}
# One after another: each is to have the machine.
cargo_test programs --include-ignored --test-threads=1
