#!/usr/bin/env bash
# A room in a bucket beside JuiceFS (if it is installed) on the same S3 server, versitygw on loopback, in turns: a source tree, small synced files, one
# large file, a cold listing. Then the requests that each took at the store, and what they cost at a large provider. Writes
# benches/results/bucket.md. A round takes two to three minutes.
#
#   scripts/bench-bucket.sh BINARY [ROUNDS]     rounds: 5
#
# BENCH_DIR: the disk that is measured (default: the target directory). OUT: another file for the result. Builds versitygw, by Go. Needs
# rclone, the client of the store that large files are compared with, PostgreSQL, root, and strongroom-bucket beside BINARY.
#
# Two rooms: with commits in the store, and in PostgreSQL on this machine. JuiceFS encrypts (RSA and AES-256-GCM), and has its names in PostgreSQL. ZeroFS
# is not in it: its releases that can be built from crates.io are mounted by NFS or 9P, which the kernel must have.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$(dirname "$BIN")/strongroom-bucket" ] || die "there is no strongroom-bucket beside $BIN: run make build"
ROUNDS=${2:-5}
OUT=${OUT:-$ROOT/benches/results/bucket.md}
MIB=1024 SMALL=500

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-bucket.XXXXXX")
. "$ROOT/scripts/s3.sh"
. "$ROOT/scripts/postgres.sh"
[ -n "$PG" ] || die "there is no PostgreSQL: apt install postgresql"
have rclone || die "there is no rclone: apt install rclone"
export RCLONE_CONFIG_STORE_TYPE=s3 RCLONE_CONFIG_STORE_PROVIDER=Other RCLONE_CONFIG_STORE_ENV_AUTH=true RCLONE_CONFIG=$WORK/rclone.conf \
    RCLONE_CONFIG_STORE_ENDPOINT=$AWS_ENDPOINT_URL RCLONE_CONFIG_STORE_NO_CHECK_BUCKET=true LC_ALL=C XDG_STATE_HOME=$WORK/state
touch "$RCLONE_CONFIG"
# The store is asked without TLS, and rclone of Debian 12 stops at authorities for others.
unset AWS_CA_BUNDLE
PG_PORT=$((S3_PORT + 1))
STORES=(room room-pg)
if have juicefs; then STORES+=(juicefs); fi

cleanup() {
    local status=$? store
    for store in "${STORES[@]}"; do
        mountpoint -q "$WORK/$store" && { umount -l "$WORK/$store" || true; }
    done
    stop_server
    [ -z "${PG_PID:-}" ] || { kill -INT "$PG_PID" 2>/dev/null && wait "$PG_PID" || true; }
    [ $status -eq 0 ] || tail -n 3 "$WORK"/*.log >&2 || true
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

start_server --quiet --access-log "$WORK/requests"
chmod 755 "$WORK"
mkdir "$WORK/engine"
[ "$(id -u)" -ne 0 ] || chown postgres "$WORK/engine"
"${AS_ENGINE[@]}" "$PG/initdb" -U owner -A trust -D "$WORK/engine/pg" >/dev/null
printf '%s\n' "listen_addresses = '127.0.0.1'" "unix_socket_directories = '$WORK/engine'" | "${AS_ENGINE[@]}" tee -a "$WORK/engine/pg/postgresql.conf" >/dev/null
run_postgres "$WORK/engine/pg" "$PG_PORT"
wait_for_postgres "$WORK/engine/pg" "$WORK/engine" "$PG_PORT"
for database in rooms names; do
    "$PG/psql" -X -q -h "$WORK/engine" -p "$PG_PORT" -U owner -d postgres -c "CREATE DATABASE $database"
done
NAMES="postgres://owner@127.0.0.1:$PG_PORT/names?sslmode=disable"

echo 'a passphrase of many words' >"$WORK/pass"
KEY=(--passphrase-file "$WORK/pass")
log_of() { if [ "$1" = room-pg ]; then printf '%s\n' --log "postgres://owner@/rooms?host=$WORK/engine&port=$PG_PORT"; fi; }
for store in "${STORES[@]}"; do
    mkdir "$WORK/$store" "$WORK/store/$store"
    case $store in
    juicefs)
        openssl genrsa -out "$WORK/rsa" 2048 2>/dev/null
        juicefs format --storage s3 --bucket "$AWS_ENDPOINT_URL/juicefs" --access-key test --secret-key testsecret --trash-days 0 \
            --encrypt-rsa-key "$WORK/rsa" "$NAMES" bench >>"$WORK/juicefs.log" 2>&1
        ;;
    *)
        mapfile -t log < <(log_of "$store")
        "$BIN" create --quiet "s3://$store/room" "${KEY[@]}" --kdf-memory 8 --kdf-passes 1 --cache "$WORK/$store.cache" "${log[@]}"
        ;;
    esac
done

attach() {
    case $1 in
    juicefs)
        juicefs mount -d --no-usage-report --cache-dir "$WORK/juicefs.cache" --log "$WORK/juicefs.log" "$NAMES" "$WORK/juicefs" >>"$WORK/juicefs.log" 2>&1
        ;;
    *)
        mapfile -t log < <(log_of "$1")
        "$BIN" mount "s3://$1/room" "$WORK/$1" "${KEY[@]}" --cache "$WORK/$1.cache" "${log[@]}" >/dev/null
        ;;
    esac
}
detach() {
    case $1 in
    juicefs) juicefs umount "$WORK/juicefs" >>"$WORK/juicefs.log" 2>&1 ;;
    *) "$BIN" umount "$WORK/$1" >/dev/null ;;
    esac
}
# Nothing is in a cache of the mount, of the tool or of the kernel.
cold() {
    detach "$1"
    rm -rf "$WORK/$1.cache"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    attach "$1"
}

# counted WORK STORE COMMAND...: timed, and its requests with those of the second after it in a file.
counted() {
    local first
    # Of what was before nothing is left to be written, here or by the store.
    sync
    sleep 1
    first=$(wc -l <"$WORK/requests")
    timed "$@"
    sleep 1
    tail -n +$((first + 1)) "$WORK/requests" >"$WORK/requests.$1.$2.$round"
}
# durable STORE: until all that was written is at the store. The kernel passes syncfs on to no FUSE file system; JuiceFS has uploaded
# a file once it is closed.
durable() {
    case $1 in
    juicefs) sync -f "$WORK/juicefs" ;;
    *) "$BIN" sync "$WORK/$1" >/dev/null ;;
    esac
}
untar() { tar -xf "$WORK/source.tar" -C "$WORK/$1" && durable "$1"; }
small() {
    python3 - "$1" "$SMALL" <<'PYTHON'
import os
import sys

directory, count = sys.argv[1:]
os.mkdir(f"{directory}/small")
data = os.urandom(4096)
for at in range(int(count)):
    file = os.open(f"{directory}/small/{at}", os.O_WRONLY | os.O_CREAT)
    os.write(file, data)
    os.fsync(file)
    os.close(file)
PYTHON
}
git -C "$ROOT" archive -o "$WORK/source.tar" HEAD
head -c "$((MIB << 20))" /dev/urandom >"$WORK/large"
mkdir "$WORK/store/client"
client=(rclone copyto --s3-upload-concurrency 8 --s3-chunk-size 64M --multi-thread-streams 8 --multi-thread-cutoff 64M --ignore-times)
client_put() { "${client[@]}" "$WORK/large" store:client/large; }
client_get() { "${client[@]}" store:client/large "$WORK/got"; }

for store in "${STORES[@]}"; do attach "$store"; done
for ((round = 1; round <= ROUNDS; round++)); do
    counted write client client_put
    sync
    echo 3 >/proc/sys/vm/drop_caches
    counted read client client_get
    rm "$WORK/got"
    for store in "${STORES[@]}"; do
        at=$WORK/$store
        counted untar "$store" untar "$store"
        counted small "$store" small "$at"
        counted write "$store" dd if="$WORK/large" of="$at/large" bs=1M conv=fsync status=none
        cold "$store"
        counted list "$store" sh -c 'ls -lR "$1" >/dev/null' ls "$at"
        counted read "$store" dd if="$at/large" of=/dev/null bs=1M status=none
        find "$at" -mindepth 1 -maxdepth 1 ! -name '.*' -exec rm -rf {} +
        rm -rf "$at"/.[a-z]* 2>/dev/null || true
    done
    say "round $round of $ROUNDS"
done

PYTHONPATH=$ROOT/scripts python3 -B - "$WORK" "$ROUNDS" "$(git -C "$ROOT" rev-parse --short HEAD)" "$(nproc)" "$MIB" "$SMALL" \
    "$(tar -tf "$WORK/source.tar" | grep -vc '/$')" "${STORES[@]}" >"$OUT" <<'PYTHON'
import glob
import re
import statistics
import sys

import ratios

work, rounds, commit, processors, mib, small, files, *stores = sys.argv[1:]
took = ratios.read(f"{work}/times")
ROWS = {
    "untar": f"a source tree of {int(files):,} files unpacked, until durable, s",
    "small": f"{small} files of 4 KiB created and synced, a second",
    "write": f"{int(mib) >> 10} GiB written and synced, MB/s",
    "read": "the same read, cold, MB/s",
    "list": "`ls -lR` of all, cold, s",
}
RATE = {"small": int(small), "write": int(mib) * 1.048576, "read": int(mib) * 1.048576}
# By the beginning of an action's name. Others (PutObject, CreateMultipartUpload, ListObjectsV2) have the price of a PUT.
KINDS = {"Get": "get", "Head": "get", "Delete": "delete", "Abort": "delete"}
PRICES = {"put": 5e-6, "get": 4e-7, "delete": 0.0}


def requests(what, store):
    """Requests of each price, medians of the rounds."""
    found = []
    for path in glob.glob(f"{work}/requests.{what}.{store}.*"):
        of = {"put": 0, "get": 0, "delete": 0}
        for line in open(path, errors="replace"):
            action = re.search(r" s3_([A-Z][a-z]+)", line)
            if not action:
                sys.exit(f"a line of the store's log is of another form: {line}")
            of[KINDS.get(action[1], "put")] += 1
        found.append(of)
    return {name: statistics.median(of[name] for of in found) for name in ("put", "get", "delete")}


def spread(values):
    shown = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown(statistics.median(values))} ({shown(min(values))}–{shown(max(values))})"


names = {"room": "room, commits in the store", "room-pg": "room, commits in PostgreSQL", "juicefs": "JuiceFS, names in PostgreSQL"}
print("## A room in a bucket beside JuiceFS\n")
print(f"Medians of {rounds} rounds in turns, with the least and the most, at {commit} on {processors} processors that also run the store, versitygw 1.8.0 on loopback, and")
print("PostgreSQL 15. JuiceFS encrypts. Cold: mounted afresh, without the tool's cache and the kernel's. The client is rclone with 8 requests in flight and parts of 64 MiB; what it reads it also writes to the disk. Made by")
print("`scripts/bench-bucket.sh`.\n")
print("| | " + " | ".join(names[store] for store in stores) + " | the store's client |")
print("|---" * (len(stores) + 2) + "|")
for what, name in ROWS.items():
    cells = []
    for store in [*stores, "client"]:
        seconds = took.get((what, store))
        if not seconds:
            cells.append("–")
            continue
        values = [RATE[what] / of for of in seconds] if what in RATE else seconds
        cells.append(spread(values))
    print(f"| {name} | " + " | ".join(cells) + " |")
print("\nRequests at the store for each (PUT, POST and LIST; GET and HEAD; DELETE), and the price of the requests at AWS S3 Standard's list in us-east-1,")
print("USD for 1,000 repetitions. One second after the end is included, so that what happens in the background is in it.\n")
print("| | " + " | ".join(names[store] for store in stores) + " | the store's client |")
print("|---" * (len(stores) + 2) + "|")
for what, name in ROWS.items():
    cells = []
    for store in [*stores, "client"]:
        if (what, store) not in took:
            cells.append("–")
            continue
        of = requests(what, store)
        price = 1000 * sum(of[kind] * PRICES[kind] for kind in PRICES)
        cells.append(f"{of['put']:,.0f} / {of['get']:,.0f} / {of['delete']:,.0f}; {price:.2f}")
    print(f"| {name.rsplit(',', 1)[0]} | " + " | ".join(cells) + " |")
PYTHON
cat "$OUT"
