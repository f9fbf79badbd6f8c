#!/usr/bin/env bash
# A pair of metadata servers of a room in a bucket: the one that serves is killed, stopped and woken, or steps down, or a disk or a node of
# the engine is killed, while six clients write and one holds locks.
#   SOAK_ROUNDS=200     rounds
#   KIND=kill           only kill, stop, step-down, disk or node
#   ENGINE=etcd         commits and disks in three members of etcd; postgres: in PostgreSQL with a synchronous standby
#   LOG=postgres://…    where the commits are, if not in the bucket and not in an ENGINE of the trial's own
#   CLIENTS=6           clients that write
#   LONGEST=5           seconds that calls may take, in 99 of 100 rounds
set -euo pipefail
. "$(dirname "$0")/lib.sh"

export LONGEST=${LONGEST:-5} CLIENTS=${CLIENTS:-6}
"$ROOT/scripts/standby.sh" "$STRONGROOM_BIN" "${SOAK_ROUNDS:-200}"
