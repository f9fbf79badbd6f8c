# shellcheck shell=bash
# An engine of several nodes on loopback, for a script: three members of etcd, or PostgreSQL with a synchronous standby. Sourced behind
# lib.sh, with WORK set, ENGINE etcd or postgres, and ENGINE_PORT the first of three free ports (six with etcd).
#
#   start_engine     starts all nodes, and sets LOG to the place of a log there
#   lose_node        kills a node as the end of its machine would; PostgreSQL: the primary, and the standby is promoted
#   restore_node     brings it back; PostgreSQL: as the standby of the other one
#   stop_engine      ends all

declare -A NODE_PID NODE_PORT
LOST=

. "$(dirname "${BASH_SOURCE[0]}")/postgres.sh"
NODES=$WORK/engine
mkdir -p "$NODES"
chmod 755 "$WORK"
[ "$(id -u)" -ne 0 ] || chown postgres "$NODES"

# kill_node NAME: with its children, which would go on for a moment.
kill_node() {
    local children
    children=$(pgrep -P "${NODE_PID[$1]}" || true)
    # shellcheck disable=SC2086
    kill -9 "${NODE_PID[$1]}" $children 2>/dev/null || true
    wait "${NODE_PID[$1]}" 2>/dev/null || true
    unset "NODE_PID[$1]"
}
stop_engine() {
    local name
    for name in "${!NODE_PID[@]}"; do
        kill_node "$name"
    done
}

if [ "$ENGINE" = etcd ]; then
    NODE_PORT=([e1]=$ENGINE_PORT [e2]=$((ENGINE_PORT + 1)) [e3]=$((ENGINE_PORT + 2)))
    start_node() {
        local port=${NODE_PORT[$1]} name cluster=
        for name in e1 e2 e3; do
            cluster+=${cluster:+,}$name=http://127.0.0.1:$((NODE_PORT[$name] + 3))
        done
        "${AS_ENGINE[@]}" etcd --name "$1" --data-dir "$NODES/$1" --log-level error --listen-client-urls "http://127.0.0.1:$port" \
            --advertise-client-urls "http://127.0.0.1:$port" --listen-peer-urls "http://127.0.0.1:$((port + 3))" \
            --initial-advertise-peer-urls "http://127.0.0.1:$((port + 3))" --initial-cluster "$cluster" >>"$NODES/$1.log" 2>&1 &
        NODE_PID[$1]=$!
    }
    start_engine() {
        local name
        for name in e1 e2 e3; do start_node $name; done
        LOG=etcd://127.0.0.1:${NODE_PORT[e1]},127.0.0.1:${NODE_PORT[e2]},127.0.0.1:${NODE_PORT[e3]}/rooms
        local endpoints=${LOG#etcd://}
        local _
        for _ in $(seq 100); do
            ETCDCTL_API=3 etcdctl --endpoints "${endpoints%/rooms}" endpoint health >/dev/null 2>&1 && return
            sleep 0.2
        done
        die "etcd does not start: $(tail -n 3 "$NODES"/*.log)"
    }
    lose_node() {
        LOST=e$((RANDOM % 3 + 1))
        kill_node $LOST
    }
    restore_node() {
        start_node "$LOST"
        wait_for_port "${NODE_PORT[$LOST]}" || die "$LOST does not start again: $(tail -n 3 "$NODES/$LOST.log")"
    }
else
    NODE_PORT=([p1]=$ENGINE_PORT [p2]=$((ENGINE_PORT + 1)))
    PRIMARY=p1 SECOND=p2
    start_node() {
        run_postgres "$NODES/$1" "${NODE_PORT[$1]}"
        NODE_PID[$1]=$PG_PID
        wait_for_postgres "$NODES/$1" "$NODES" "${NODE_PORT[$1]}"
    }
    # sql NODE STATEMENT [DATABASE]
    sql() { "$PG/psql" -X -q -h "$NODES" -p "${NODE_PORT[$1]}" -U owner -d "${3:-postgres}" -c "$2"; }
    # Makes SECOND the synchronous standby of PRIMARY.
    add_standby() {
        rm -rf "${NODES:?}/$SECOND"
        "${AS_ENGINE[@]}" "$PG/pg_basebackup" -d "host=$NODES port=${NODE_PORT[$PRIMARY]} user=owner application_name=second" \
            -D "$NODES/$SECOND" -R -X stream -c fast --no-sync
        start_node $SECOND
        sql $PRIMARY "ALTER SYSTEM SET synchronous_standby_names = 'second'"
        sql $PRIMARY "SELECT pg_reload_conf()" >/dev/null
    }
    start_engine() {
        "${AS_ENGINE[@]}" "$PG/initdb" -U owner -A trust --no-sync -D "$NODES/p1" >/dev/null
        printf '%s\n' "listen_addresses = '127.0.0.1'" "unix_socket_directories = '$NODES'" \
            "wal_retrieve_retry_interval = 200ms" >>"$NODES/p1/postgresql.conf"
        start_node p1
        sql p1 "CREATE DATABASE rooms"
        add_standby
        LOG=postgres://owner@127.0.0.1:${NODE_PORT[p1]},127.0.0.1:${NODE_PORT[p2]}/rooms
    }
    lose_node() {
        kill_node $PRIMARY
        LOST=$PRIMARY
        PRIMARY=$SECOND SECOND=$LOST
        "${AS_ENGINE[@]}" "$PG/pg_ctl" promote -D "$NODES/$PRIMARY" -w >/dev/null
        # There is no standby to wait for until the lost node is back.
        sql $PRIMARY "ALTER SYSTEM RESET synchronous_standby_names"
        sql $PRIMARY "SELECT pg_reload_conf()" >/dev/null
    }
    restore_node() { add_standby; }
fi
