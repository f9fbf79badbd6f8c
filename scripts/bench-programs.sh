#!/usr/bin/env bash
# What programs take whose files are in a mounted room: a git repository cloned and checked out, and PostgreSQL under pgbench (4 clients,
# its data directory there). A plain directory, the room, gocryptfs and securefs (those that are installed) in turns. Writes medians of
# ratios to the plain directory to benches/results/programs.md. Takes about ten minutes.
#
#   scripts/bench-programs.sh BINARY [ROUNDS [SECONDS]]     rounds: 5; seconds of pgbench in each: 20
#
# BENCH_DIR: the disk that is measured (default: the target directory); every user must be able to reach it. OUT: another file for
# the result. git: as it is set up, so what it wrote is durable where it asks for that.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/postgres.sh"
. "$ROOT/scripts/stores.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
[ -n "$PG" ] || die "there is no PostgreSQL: apt install postgresql"
ROUNDS=${2:-5}
SECONDS_EACH=${3:-20}
OUT=${OUT:-$ROOT/benches/results/programs.md}
PORT=$((20000 + $$ % 12000))

mkdir -p "${BENCH_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-programs.XXXXXX")
export XDG_STATE_HOME=$WORK/state
PG_PID=
end_postgres() {
    [ -n "$PG_PID" ] || return 0
    kill -INT "$PG_PID" 2>/dev/null || true
    wait "$PG_PID" 2>/dev/null || true
    PG_PID=
}
cleanup() {
    local status=$?
    end_postgres
    unmount_stores
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

offer_stores
git clone --quiet --bare "$ROOT" "$WORK/source.git"
# Sockets are kept out of the stores: not every one can hold them.
mkdir "$WORK/logs"
[ "$(id -u)" -ne 0 ] || chown postgres "$WORK/logs"

# start_postgres STORE
start_postgres() {
    ln -sfn "$WORK/$1/pg" "$WORK/logs/$1"
    run_postgres "$WORK/logs/$1" "$PORT"
    wait_for_postgres "$WORK/logs/$1" "$WORK/logs" "$PORT"
}
# can_hold_postgres STORE: where files belong to the user who mounted it, the server refuses its own data directory.
can_hold_postgres() {
    local file=$WORK/$1/pg/owner
    "${AS_ENGINE[@]}" touch "$file"
    [ "$(stat -c %u "$file")" = "$("${AS_ENGINE[@]}" id -u)" ] && rm "$file"
}
DATABASES=()
for store in "${STORES[@]}"; do
    mkdir "$WORK/$store/pg"
    [ "$(id -u)" -ne 0 ] || chown postgres:postgres "$WORK/$store/pg"
    can_hold_postgres "$store" || continue
    chmod 700 "$WORK/$store/pg"
    DATABASES+=("$store")
    "${AS_ENGINE[@]}" "$PG/initdb" -D "$WORK/$store/pg" -A trust -U postgres >/dev/null
    printf "%s\n" "unix_socket_directories = '$WORK/logs'" "listen_addresses = ''" |
        "${AS_ENGINE[@]}" tee -a "$WORK/$store/pg/postgresql.conf" >/dev/null
    start_postgres "$store"
    "$PG/pgbench" -h "$WORK/logs" -p "$PORT" -U postgres --quiet -i -s 10 postgres >/dev/null 2>&1
    end_postgres
done

for ((round = 1; round <= ROUNDS; round++)); do
    for store in "${STORES[@]}"; do
        timed clone "$store" git clone --quiet --no-checkout "file://$WORK/source.git" "$WORK/$store/clone"
        timed checkout "$store" git -C "$WORK/$store/clone" checkout --quiet HEAD
        rm -rf "$WORK/$store/clone"
    done
    for store in "${DATABASES[@]}"; do
        start_postgres "$store"
        rate=$("$PG/pgbench" -h "$WORK/logs" -p "$PORT" -U postgres -c 4 -T "$SECONDS_EACH" postgres 2>&1 |
            sed -n 's/^tps = \([0-9.]*\).*/\1/p')
        end_postgres
        printf 'pgbench %s 0 %s\n' "$store" "$(awk -v rate="$rate" 'BEGIN { print 1 / rate }')" >>"$WORK/times"
    done
    say "round $round of $ROUNDS"
done

PYTHONPATH=$ROOT/scripts python3 -B - "$WORK/times" "$SECONDS_EACH" "$ROUNDS" "$(git -C "$ROOT" rev-parse --short HEAD)" "$(nproc)" "${STORES[@]}" \
    >"$OUT" <<'PYTHON'
import statistics
import sys

import ratios

times, seconds, rounds, commit, processors, *stores = sys.argv[1:]
NAMES = {
    "clone": ("git clone of this project, without checkout", "s", 1),
    "checkout": ("git checkout of it", "s", 1),
    "pgbench": (f"pgbench, 4 clients, {seconds} s", "transactions/s", -1),
}
took = ratios.read(times)
print("## Programs on a mounted room\n")
print(f"Medians of {rounds} rounds in turns, at {commit} on {processors} processors; the ratio of speed to the plain directory, with its least and")
print("most. Made by `scripts/bench-programs.sh`. Refused: files there belong to the user who mounted it, and PostgreSQL wants its own.\n")
ratios.head(["", "plain"], stores)
for work, (name, unit, power) in NAMES.items():
    plain = statistics.median(took[work, "plain"]) ** power
    plain = f"{plain:,.0f}" if plain >= 100 else f"{plain:.3g}"
    print(f"| {name} | {plain} {unit} | " + " | ".join(ratios.cells(took, (work,), stores)) + " |")
PYTHON
cat "$OUT"
