#!/usr/bin/env bash
# A pair of metadata servers of a room in a bucket: the one that serves is killed, stopped and woken, or steps down, while two clients write.
#   SOAK_ROUNDS=200     rounds
#   KIND=kill           only kill, stop or step-down
#   LOG=postgres://…    where the commits are, if not in the bucket
set -euo pipefail
. "$(dirname "$0")/lib.sh"

"$ROOT/scripts/standby.sh" "$STRONGROOM_BIN" "${SOAK_ROUNDS:-200}"
