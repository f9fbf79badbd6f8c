# shellcheck shell=bash
# PostgreSQL's server, for a script. Sourced behind lib.sh. PG is where the newest programs are. AS_ENGINE is what an engine is started
# with: as the user `postgres`, since it refuses root.

PG=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin | sort -V | tail -n 1)
AS_ENGINE=()
[ "$(id -u)" -ne 0 ] || AS_ENGINE=(setpriv --reuid=postgres --regid=postgres --clear-groups)

# run_postgres DATA PORT: starts the server of a data directory, with its log in DATA.log, and sets PG_PID.
run_postgres() {
    "${AS_ENGINE[@]}" "$PG/postgres" -D "$1" -p "$2" >>"$1.log" 2>&1 &
    PG_PID=$!
}
# wait_for_postgres DATA SOCKETS PORT: until that server answers, which is after it listens; at most 20 seconds.
wait_for_postgres() {
    local _
    for _ in $(seq 400); do
        "$PG/pg_isready" -q -h "$2" -p "$3" && return
        sleep 0.05
    done
    die "PostgreSQL does not start: $(tail -n 3 "$1.log")"
}
