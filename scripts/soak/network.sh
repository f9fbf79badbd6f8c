#!/usr/bin/env bash
# Shared storage: kills of clients, metadata server and disks at random moments under load, and the network cut between any two
# of them: crates/cli/tests/network. As root, or on loopback, where nothing can be cut. And what users may do, beside the kernel.
#   SOAK_ROUNDS=200         rounds of kills
#   SOAK_CUT_SECONDS=60     how long each cut lasts
#   SOAK_NAME_OPERATIONS=50000, SOAK_NAME_KILLS=500   operations on names, and kills of the metadata server among them
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export STRONGROOM_SEED=$SEED STRONGROOM_NET_ROUNDS=${SOAK_ROUNDS:-200} STRONGROOM_NET_CUT_SECONDS=${SOAK_CUT_SECONDS:-60}
export STRONGROOM_NET_NAME_OPERATIONS=${SOAK_NAME_OPERATIONS:-50000} STRONGROOM_NET_NAME_KILLS=${SOAK_NAME_KILLS:-500}
cargo_test network
(cd "$ROOT" && STRONGROOM_POLICY_STEPS=${SOAK_POLICY_STEPS:-20000} cargo test --release --locked -p strongroom-metadata-server --test policy)
