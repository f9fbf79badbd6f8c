#!/usr/bin/env bash
# Tries rooms whose commits are in PostgreSQL or etcd, with the real programs: create, mount, fence, kill, passwords and TLS, a log that is
# not named, what the engine and the command line show.
#
#   scripts/logs.sh [BINARY]        default: target/release/strongroom-bucket
#
# Needs PostgreSQL, etcd and openssl (scripts/engines.sh installs them), and versitygw, which it builds where it is missing, with Go. Leaves
# nothing behind. Ends with 0 only if every check passed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom-bucket}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/logs.XXXXXX")
chmod 755 "$WORK"
. "$(dirname "$0")/s3.sh"
. "$(dirname "$0")/checks.sh"
. "$(dirname "$0")/postgres.sh"
PG_PORT=$((S3_PORT + 1)) ETCD_PORT=$((S3_PORT + 2)) ETCD_PEERS=http://127.0.0.1:$((S3_PORT + 3))
export XDG_CACHE_HOME=$WORK/cache XDG_STATE_HOME=$WORK/state HOME=$WORK/home LC_ALL=C
unset PGPASSWORD PGPASSFILE PGUSER
MOUNT=$WORK/mount KEY=(--passphrase-file "$WORK/pass")
A=(--cache "$WORK/a") B=(--cache "$WORK/b")
# The other machine remembers what it saw by itself.
OTHER=(env "XDG_STATE_HOME=$WORK/state.b" "$BIN")
SECRET=s3cret PG_PID= ETCD_PID=

start_postgres() {
    run_postgres "$WORK/engine/pg" "$PG_PORT"
    wait_for_postgres "$WORK/engine/pg" "$WORK/engine" "$PG_PORT"
}
cleanup() {
    local status=$?
    mountpoint -q "$MOUNT" && { umount -l "$MOUNT" 2>/dev/null || fusermount3 -uz "$MOUNT" || true; }
    stop_server
    kill -QUIT "$PG_PID" 2>/dev/null || true
    kill -9 "$ETCD_PID" 2>/dev/null || true
    wait 2>/dev/null || true
    [ $status -eq 0 ] || tail -n 5 "$WORK"/*.log "$WORK"/engine/*.log >&2 || true
    rm -rf "$WORK"
}

mkdir -p "$MOUNT" "$WORK/engine" "$WORK/home"
printf 'a passphrase of many words' >"$WORK/pass"
[ "$(id -u)" -ne 0 ] || chown postgres "$WORK/engine"
trap cleanup EXIT

start_server
"${AS_ENGINE[@]}" etcd --name one --data-dir "$WORK/engine/etcd" --log-level error --listen-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" --listen-peer-urls "$ETCD_PEERS" \
    --initial-advertise-peer-urls "$ETCD_PEERS" --initial-cluster "one=$ETCD_PEERS" >"$WORK/etcd.log" 2>&1 &
ETCD_PID=$!
"${AS_ENGINE[@]}" "$PG/initdb" -U owner -A trust -D "$WORK/engine/pg" >/dev/null
# A certificate for the name localhost, of an authority that only this script knows.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$WORK/ca.key" -out "$WORK/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$WORK/engine/pg/server.key" -out "$WORK/server.csr" 2>/dev/null
openssl x509 -req -in "$WORK/server.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial -days 2 \
    -extfile <(printf 'subjectAltName=DNS:localhost') -out "$WORK/engine/pg/server.crt" 2>/dev/null
# One of the same authority for a client.
openssl req -newkey rsa:2048 -nodes -subj /CN=bob -keyout "$WORK/bob.key" -out "$WORK/bob.csr" 2>/dev/null
openssl x509 -req -in "$WORK/bob.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial -days 2 \
    -extfile <(printf 'basicConstraints=CA:FALSE') -out "$WORK/bob.pem" 2>/dev/null
[ "$(id -u)" -ne 0 ] || chown postgres "$WORK/engine/pg"/server.*
chmod 600 "$WORK/engine/pg/server.key"
printf '%s\n' "listen_addresses = 'localhost'" "unix_socket_directories = '$WORK/engine'" "ssl = on" "ssl_ca_file = '$WORK/ca.pem'" >>"$WORK/engine/pg/postgresql.conf"
printf '%s\n' "local all all trust" "hostssl all bob all cert" "host all all all scram-sha-256" >"$WORK/engine/pg/pg_hba.conf"
start_postgres
wait_for_port "$ETCD_PORT" || die "etcd does not start"
psql() { "$PG/psql" -X -q -h "$WORK/engine" -p "$PG_PORT" -U owner -d "${2:-rooms}" -c "$1"; }
psql "CREATE ROLE ada LOGIN PASSWORD 's3cret'" postgres
psql "CREATE DATABASE rooms OWNER ada" postgres
psql "CREATE ROLE bob LOGIN IN ROLE ada" postgres

SOCKET="postgres://ada@/rooms?host=$WORK/engine&port=$PG_PORT"
TCP="postgres://ada@localhost:$PG_PORT/rooms?sslmode=require"
export SSL_CERT_FILE=$WORK/ca.pem
for engine in postgres etcd; do
    case $engine in
    postgres) LOG=$SOCKET ;;
    etcd) LOG=etcd://127.0.0.1:$ETCD_PORT/rooms ;;
    esac
    PLACE=s3://rooms/$engine
    A=(--cache "$WORK/$engine.a") B=(--cache "$WORK/$engine.b")
    check "$engine: create" "$BIN" create $PLACE --log "$LOG" "${KEY[@]}" "${A[@]}"
    refused "$engine: a second one at the same place" "already" "${OTHER[@]}" create $PLACE --log "$LOG" "${KEY[@]}" "${B[@]}"
    rm -rf "$WORK/$engine.b"
    check "$engine: mount; the log is remembered" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
    check "$engine: synced files" bash -c 'for n in $(seq 50); do echo "content of a secret file" >"$0/secret-name-$n" && sync "$0/secret-name-$n" || exit; done' "$MOUNT"
    refused "$engine: another machine without the log" "--log" "${OTHER[@]}" ls $PLACE "${KEY[@]}" "${B[@]}"
    check "$engine: and with it" bash -c '"$@" | grep -q secret-name-17' - "${OTHER[@]}" ls $PLACE --log "$LOG" "${KEY[@]}" "${B[@]}"
    check "$engine: it takes the room over" "${OTHER[@]}" mkdir $PLACE:/after --take-over "${KEY[@]}" "${B[@]}"
    check "$engine: the mount acknowledges nothing more" bash -c '! { echo x >"$0/fenced" && sync "$0/fenced"; } 2>/dev/null' "$MOUNT"
    "$BIN" umount "$MOUNT" >/dev/null 2>&1 || umount -l "$MOUNT" 2>/dev/null || true
    check "$engine: nothing of it came later" bash -c '! "$@"' - "${OTHER[@]}" cat $PLACE:/fenced "${KEY[@]}" "${B[@]}"
    check "$engine: check, all data" "$BIN" check $PLACE --read-data --take-over "${KEY[@]}" "${A[@]}"
    check "$engine: no commit is in the bucket" bash -c '[ ! -e "$0/commits" ] && [ -e "$0/log" ]' "$WORK/store/rooms/$engine"
done

A=(--cache "$WORK/c") PLACE=s3://rooms/secrets
refused "a password is asked for" "password" "$BIN" create $PLACE --log "$TCP" --store-timeout 4 "${KEY[@]}" "${A[@]}"
refused "a wrong one is refused" "password authentication failed" "$BIN" create $PLACE --log "${TCP/ada/ada:wrong}" "${KEY[@]}" "${A[@]}"
check "create, with the password in the place, over TLS" "$BIN" create $PLACE --log "${TCP/ada/ada:s3cret}" "${KEY[@]}" "${A[@]}"
check "PGPASSWORD" env PGPASSWORD=s3cret "$BIN" mkdir $PLACE:/one "${KEY[@]}" "${A[@]}"
printf 'localhost:%s:rooms:ada:s3cret\n' "$PG_PORT" >"$WORK/home/.pgpass"
chmod 600 "$WORK/home/.pgpass"
check "mount, with ~/.pgpass" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
check "what was written" ls "$MOUNT/one"
check "umount" "$BIN" umount "$MOUNT"
check "mount's own option for its log is left alone" "$BIN" mount $PLACE "$MOUNT" --log "$WORK/mount.log" "${KEY[@]}" "${A[@]}"
check "and umount" "$BIN" umount "$MOUNT"
rm "$WORK/home/.pgpass"
"$BIN" mount $PLACE "$MOUNT" --foreground --store-timeout 60 --log "${TCP/ada/ada:s3cret}" "${KEY[@]}" "${A[@]}" >"$WORK/foreground" 2>&1 &
for _ in $(seq 400); do mountpoint -q "$MOUNT" && break || sleep 0.05; done
check "mount, with the password in the place" mountpoint -q "$MOUNT"
check "its command line has the place" bash -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | grep -q "ada@localhost:[$0]"' "${PG_PORT:0:1}"
check "no command line shows it" bash -c '! cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | grep -q "ada:s3cre[t]"'
kill -QUIT "$PG_PID"
wait "$PG_PID" 2>/dev/null || true
start_postgres
check "the mount goes on after the server died and was started" bash -c 'echo x >"$0/later" && sync "$0/later"' "$MOUNT"
check "umount again" "$BIN" umount "$MOUNT"
check "no file of this machine has it" bash -c '! grep -raq s3cret "$@"' - "$WORK/c" "$WORK/state"
refused "a certificate that nobody vouches for" "certificate" env SSL_CERT_FILE=/dev/null "$BIN" ls $PLACE --log "${TCP/ada/ada:s3cret}" --store-timeout 3 "${KEY[@]}" "${A[@]}"

# Certificates that the place names, or variables; the process of a mount is confined, and reads them.
unset SSL_CERT_FILE
A=(--cache "$WORK/d") PLACE=s3://rooms/certificates BOB=postgres://bob@localhost:$PG_PORT/rooms?sslrootcert=$WORK/ca.pem
refused "a client without a certificate" "certificate" "$BIN" create $PLACE --log "$BOB" --store-timeout 4 "${KEY[@]}" "${A[@]}"
check "create, with one that the place names" "$BIN" create $PLACE --log "$BOB&sslcert=$WORK/bob.pem&sslkey=$WORK/bob.key" "${KEY[@]}" "${A[@]}"
check "mount; they are remembered" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
check "a synced file" bash -c 'echo x >"$0/f" && sync "$0/f"' "$MOUNT"
check "umount with certificates" "$BIN" umount "$MOUNT"
check "and named by variables" env PGSSLROOTCERT="$WORK/ca.pem" PGSSLCERT="$WORK/bob.pem" PGSSLKEY="$WORK/bob.key" \
    "$BIN" ls $PLACE --cache "$WORK/e" --log "postgres://bob@localhost:$PG_PORT/rooms?sslmode=require" "${KEY[@]}"
check "engines and bucket hold no name and no content" bash -c '! grep -raqE "secret-name|of a secret file|many words" "$@"' - "$WORK/store/rooms" "$WORK/engine"
say "$((CHECKS - FAILED)) passed, $FAILED failed"
[ $FAILED -eq 0 ]
