#!/usr/bin/env bash
# Tests that need engines of other projects: an S3 server for rooms in buckets, PostgreSQL and etcd as their logs. Installs what is missing.
#
#   scripts/engines.sh [PART...]      default: rust logs bucket standby garage
#
#   rust    the tests of crate bucket over both engines, clusters and standbys included
#   logs    scripts/logs.sh: the programs against versitygw, PostgreSQL and etcd
#   bucket  scripts/bucket.sh: rooms in a bucket of versitygw, with pjdfstest and fsx on a mount
#   standby scripts/standby.sh: a pair of metadata servers with commits in the bucket, in three members of etcd, and in PostgreSQL with a
#           synchronous standby; with the engines the disks are in the bucket too. 8 and 10 rounds, nodes of the engines killed
#   garage  scripts/bucket.sh and scripts/standby.sh with the bucket in three nodes of Garage, which are killed too: 12 rounds with each engine.
#           Builds Garage, which takes minutes
#
# STRONGROOM_BIN: the program, with strongroom-bucket beside it; default: target/release/strongroom. Longer fights:
# STRONGROOM_FIGHT_ROUNDS=1000. Ends with a line of sums, and with 0 only if everything passed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

BIN=${STRONGROOM_BIN:-$TARGET_DIR/release/strongroom}
PARTS=("$@")
[ ${#PARTS[@]} -gt 0 ] || PARTS=(rust logs bucket standby garage)

# Debian's PostgreSQL would set up and start a server of its own, and etcd's package would start one.
if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    install_packages postgresql-common
    as_root sh -c 'mkdir -p /etc/postgresql-common/createcluster.d && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/strongroom.conf'
fi
install_packages postgresql etcd-server etcd-client openssl

LOGS=$TARGET_DIR/engines
mkdir -p "$LOGS"
PASSED=0 FAILED=0
for part in "${PARTS[@]}"; do
    log=$LOGS/$part.log
    status=0
    case $part in
    rust) cargo test --workspace --no-fail-fast --features strongroom-bucket/engines --test postgres --test etcd 2>&1 | tee "$log" || status=1 ;;
    logs) scripts/logs.sh "$BIN-bucket" 2>&1 | tee "$log" || status=1 ;;
    bucket) scripts/bucket.sh "$BIN" suites 2>&1 | tee "$log" || status=1 ;;
    standby)
        {
            scripts/standby.sh "$BIN" 8 || status=1
            for engine in etcd postgres; do
                say "standby, commits in $engine:"
                ENGINE=$engine scripts/standby.sh "$BIN" 10 || status=1
            done
            [ $status -eq 0 ]
        } 2>&1 | tee "$log" || status=1
        ;;
    garage)
        {
            BUCKET=garage scripts/bucket.sh "$BIN" || status=1
            for engine in etcd postgres; do
                say "Garage, commits in $engine:"
                BUCKET=garage ENGINE=$engine scripts/standby.sh "$BIN" 12 || status=1
            done
            [ $status -eq 0 ]
        } 2>&1 | tee "$log" || status=1
        ;;
    *) die "there is no part '$part': there are rust, logs, bucket, standby and garage" ;;
    esac
    # "N passed; N failed" of each test program, or "N passed, N failed" of a script, which counts test programs that it runs itself.
    form='([0-9]+) passed, ([0-9]+) failed'
    [ "$part" != rust ] || form='test result: .* ([0-9]+) passed; ([0-9]+) failed'
    read -r passed failed < <(sed -nE "s/^$form.*/\\1 \\2/p" "$log" |
        awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }')
    [ $status -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
    PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed))
done
say "engines: $PASSED passed, $FAILED failed"
[ $FAILED -eq 0 ]
