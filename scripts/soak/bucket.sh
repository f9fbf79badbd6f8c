#!/usr/bin/env bash
# A room's files in an object store: requests that are lost, repeated, late or refused, and writers that die at any of them
# (crates/bucket/tests/bucket/explore.rs).
#   SOAK_STATES=1000000     openings in all, each compared with what was acknowledged
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_BUCKET_STATES=${SOAK_STATES:-1000000}
cd "$ROOT"
cargo test --quiet --release --locked -p strongroom-bucket --test bucket -- --nocapture explore::
