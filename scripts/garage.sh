# shellcheck shell=bash
# Three nodes of Garage on loopback that keep three copies of everything, and HAProxy in front of them, for a script. Sourced by s3.sh,
# and has the names of that one. Builds Garage where it is missing, which takes minutes, and installs HAProxy.
#
# Garage does not honour `If-None-Match: *`: a room in it needs a log elsewhere.
#
#   start_server             starts all, with a bucket "rooms" that is empty the first time
#   lose_store               kills a node as the end of its machine would
#   restore_store            brings it back
#   stop_server              ends all

GARAGE_VERSION=2.5.0
cargo_tool garage $GARAGE_VERSION --no-default-features --features bundled-libs,lmdb
rm -rf "$TOOLS/build"
GARAGE=$TOOLS/bin/garage
install_packages haproxy
# A node's port for S3; the next one is for other nodes. A node's name among them.
declare -A GARAGE_PID GARAGE_PORT GARAGE_ID
GARAGE_PORT=([g1]=$((S3_PORT + 20)) [g2]=$((S3_PORT + 22)) [g3]=$((S3_PORT + 24)))
LOST_STORE=
random_hex() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }
export AWS_ACCESS_KEY_ID=GK0123456789abcdef01234567
AWS_SECRET_ACCESS_KEY=$(random_hex)
export AWS_SECRET_ACCESS_KEY
mkdir -p "$WORK/store"

# garage NODE COMMAND...
garage() { RUST_LOG=error "$GARAGE" -c "$WORK/store/$1.toml" "${@:2}"; }
start_store_node() {
    RUST_LOG=warn "$GARAGE" -c "$WORK/store/$1.toml" server >>"$WORK/garage-$1.log" 2>&1 &
    GARAGE_PID[$1]=$!
    wait_for_port "${GARAGE_PORT[$1]}" || die "Garage does not start: $(tail -n 3 "$WORK/garage-$1.log")"
}
# By themselves, nodes look for each other again after 30 to 60 seconds.
join_stores() {
    local name other
    for name in g1 g2 g3; do
        for other in g1 g2 g3; do
            [ $name = $other ] || garage $name node connect "${GARAGE_ID[$other]}" >/dev/null
        done
    done
}
# Three nodes that know each other, the bucket, and HAProxy's configuration.
configure_store() {
    local name secret
    secret=$(random_hex)
    for name in g1 g2 g3; do
        cat >"$WORK/store/$name.toml" <<CONFIGURATION
metadata_dir = "$WORK/store/$name.meta"
data_dir = "$WORK/store/$name.data"
db_engine = "lmdb"
replication_factor = 3
metadata_fsync = true
data_fsync = true
# So that a search of its files for what must not be there means something.
compression_level = "none"
rpc_secret = "$secret"
rpc_bind_addr = "127.0.0.1:$((GARAGE_PORT[$name] + 1))"
rpc_public_addr = "127.0.0.1:$((GARAGE_PORT[$name] + 1))"

[s3_api]
s3_region = "$AWS_REGION"
api_bind_addr = "127.0.0.1:${GARAGE_PORT[$name]}"
CONFIGURATION
        chmod 600 "$WORK/store/$name.toml"
        start_store_node $name
        GARAGE_ID[$name]=$(garage $name node id -q)
    done
    join_stores
    for name in g1 g2 g3; do
        garage g1 layout assign "${GARAGE_ID[$name]%@*}" -z "$name" -c 10G >/dev/null
    done
    garage g1 layout apply --version 1 >/dev/null
    garage g1 key import --yes "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >/dev/null
    garage g1 bucket create rooms >/dev/null
    garage g1 bucket allow --read --write --owner rooms --key "$AWS_ACCESS_KEY_ID" >/dev/null
    {
        printf '%s\n' 'defaults' '  mode tcp' '  timeout connect 1s' '  timeout client 1m' '  timeout server 1m' '  retries 3' '  option redispatch 1' \
            'listen s3' "  bind 127.0.0.1:$S3_PORT" '  balance roundrobin' '  default-server check inter 500ms fall 2 rise 2 on-marked-down shutdown-sessions'
        for name in g1 g2 g3; do
            echo "  server $name 127.0.0.1:${GARAGE_PORT[$name]}"
        done
    } >"$WORK/store/haproxy.cfg"
}
start_server() {
    local name
    if [ -f "$WORK/store/haproxy.cfg" ]; then
        for name in g1 g2 g3; do start_store_node $name; done
        join_stores
    else
        configure_store
    fi
    haproxy -q -db -f "$WORK/store/haproxy.cfg" >>"$WORK/haproxy.log" 2>&1 &
    S3_PID=$!
    wait_for_port "$S3_PORT" || die "HAProxy does not start: $(tail -n 3 "$WORK/haproxy.log")"
}
lose_store() {
    LOST_STORE=g$((RANDOM % 3 + 1))
    kill -9 "${GARAGE_PID[$LOST_STORE]}"
    wait "${GARAGE_PID[$LOST_STORE]}" 2>/dev/null || true
}
restore_store() {
    start_store_node "$LOST_STORE"
    join_stores
}
stop_server() {
    local name
    [ -z "$S3_PID" ] || { kill -9 "$S3_PID" 2>/dev/null && wait "$S3_PID" 2>/dev/null; } || true
    S3_PID=
    for name in "${!GARAGE_PID[@]}"; do
        kill -9 "${GARAGE_PID[$name]}" 2>/dev/null || true
        wait "${GARAGE_PID[$name]}" 2>/dev/null || true
        unset "GARAGE_PID[$name]"
    done
}
