#!/usr/bin/env bash
# A room's files in an object store: requests that are lost, repeated, late or refused, and writers that die at any of them, alone
# and beside each other (crates/bucket/tests/bucket/explore.rs and beside.rs).
#   SOAK_STATES=1000000     openings in all, each compared with what was acknowledged
#   SOAK_STORES=2000        stores to which threads write beside each other, with eight openings each
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_BUCKET_STATES=${SOAK_STATES:-1000000} STRONGROOM_BUCKET_STORES=${SOAK_STORES:-2000}
cd "$ROOT"
cargo test --quiet --release --locked -p strongroom-bucket --test bucket -- --nocapture explore:: beside::
