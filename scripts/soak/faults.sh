#!/usr/bin/env bash
# Faults at the operations of the explorer's workloads: every kind, each operation in turn or one in so many.
#
#   scripts/soak/faults.sh [SECONDS]           default: 3600, shared by the families
#   SEED=N scripts/soak/faults.sh              which workloads come first; of an earlier run it is printed first
#   STRIDE=N scripts/soak/faults.sh            of a workload's operations one in so many; 1: every one
#   THREADS=N                                  default: as many as there are processors
set -euo pipefail
. "$(dirname "$0")/lib.sh"
begin_explorer "$@"

status=0
for family in ones keys snapshots ahead grants random:60 twos; do
    explorer $((SECONDS_IN_ALL / 7)) faults "$family" --stride "${STRIDE:-1}" || status=1
done
exit "$status"
