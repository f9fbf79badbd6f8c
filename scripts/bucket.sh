#!/usr/bin/env bash
# Tries rooms in a bucket against a real S3 server (versitygw): create, fill, mount, kill, go on elsewhere, two writers, the store away, what
# the bucket shows.
#
#   scripts/bucket.sh [BINARY]        default: target/release/strongroom, with strongroom-bucket beside it
#
# Builds versitygw where it is missing, which needs Go. Leaves nothing else behind. Ends with 0 only if every check passed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$(dirname "$BIN")/strongroom-bucket" ] || die "there is no strongroom-bucket beside $BIN: run make build"
SERVER=$(s3_server)

mkdir -p "$TARGET_DIR"
WORK=$(mktemp -d "$TARGET_DIR/bucket.XXXXXX")
PORT=${PORT:-$((20000 + $$ % 20000))}
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$PORT
export XDG_CACHE_HOME=$WORK/cache XDG_STATE_HOME=$WORK/state LC_ALL=C
PASS=$WORK/pass PLACE=s3://rooms/team/work MOUNT=$WORK/mount
A=(--cache "$WORK/a") B=(--cache "$WORK/b") KEY=(--passphrase-file "$PASS")
SERVER_PID=
CHECKS=0 FAILED=0

start_server() {
    ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testsecret "$SERVER" --port "127.0.0.1:$PORT" posix "$WORK/store" >>"$WORK/server.log" 2>&1 &
    SERVER_PID=$!
    for _ in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && return
        sleep 0.05
    done
    die "versitygw does not start: $(tail -n 3 "$WORK/server.log")"
}
stop_server() {
    kill -9 "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" 2>/dev/null || true
}
cleanup() {
    local status=$?
    mountpoint -q "$MOUNT" && { umount -l "$MOUNT" 2>/dev/null || fusermount3 -uz "$MOUNT" || true; }
    stop_server
    [ $status -eq 0 ] || tail -n 5 "$WORK/server.log" >&2 || true
    rm -rf "$WORK"
}
trap cleanup EXIT

# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    CHECKS=$((CHECKS + 1))
    if "$@" >"$WORK/out" 2>&1; then
        say "ok      $what"
    else
        FAILED=$((FAILED + 1))
        say "FAILED  $what: $*"
        sed 's/^/        /' "$WORK/out" | tail -n 5
    fi
}
# refused WHAT PATTERN COMMAND...: the command fails, and its message has the pattern.
refused() {
    local what=$1 pattern=$2
    shift 2
    check "$what" bash -c '! "${@:2}" >"$0" 2>&1 && grep -q -- "$1" "$0" || { cat "$0"; false; }' "$WORK/refusal" "$pattern" "$@"
}
# The process that serves the mount.
server_of_mount() { "$BIN" info --json "$MOUNT" | sed -E 's/.*"pid":([0-9]+).*/\1/'; }

mkdir -p "$WORK/store/rooms" "$MOUNT" "$WORK/tree/sub"
printf 'a passphrase of many words' >"$PASS"
for n in $(seq 50); do echo "content number $n of a secret file" >"$WORK/tree/sub/secret-name-$n"; done
head -c 30000000 /dev/urandom >"$WORK/tree/large"
start_server

check "create" "$BIN" create $PLACE "${KEY[@]}" "${A[@]}"
refused "a second one at the same place" "already" "$BIN" create $PLACE "${KEY[@]}" "${B[@]}"
check "cp into it" "$BIN" cp -r "$WORK/tree" $PLACE:/ "${KEY[@]}" "${A[@]}"
check "ls, from another machine" bash -c '"$0" ls "$1:/tree/sub" "${@:2}" | grep -q secret-name-17' "$BIN" $PLACE "${KEY[@]}" "${B[@]}"
check "cat" bash -c '"$0" cat "$1:/tree/large" "${@:3}" | cmp - "$2"' "$BIN" $PLACE "$WORK/tree/large" "${KEY[@]}" "${B[@]}"
check "check, all data" "$BIN" check $PLACE --read-data "${KEY[@]}" "${B[@]}"
check "info without a key" "$BIN" info $PLACE "${B[@]}"
refused "a wrong passphrase" "passphrase" bash -c 'echo wrong | "$0" ls "$@" --passphrase-file -' "$BIN" $PLACE "${A[@]}"

check "mount" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
check "the tree in the mount" diff -r "$WORK/tree" "$MOUNT/tree"
check "info of the mount" "$BIN" info "$MOUNT"
check "a synced file" bash -c 'echo durable >"$0/durable" && sync "$0/durable"' "$MOUNT"
echo lost >"$MOUNT/not-synced"
refused "another machine does not take it by accident" "take-over" "$BIN" mkdir $PLACE:/x "${KEY[@]}" "${B[@]}"
kill -9 "$(server_of_mount)"
umount -l "$MOUNT" 2>/dev/null || fusermount3 -uz "$MOUNT"
check "another machine goes on when asked to" "$BIN" mkdir $PLACE:/after --take-over "${KEY[@]}" "${B[@]}"
check "what was synced is there" bash -c '[ "$("$0" cat "$1:/durable" "${@:2}")" = durable ]' "$BIN" $PLACE "${KEY[@]}" "${B[@]}"

check "mount again" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
check "the other machine takes it over" "$BIN" mkdir $PLACE:/second --take-over "${KEY[@]}" "${B[@]}"
check "the mount acknowledges nothing more" bash -c '! { echo x >"$0/fenced" && sync "$0/fenced"; }' "$MOUNT"
check "what it had can still be read there" cmp "$WORK/tree/large" "$MOUNT/tree/large"
"$BIN" umount "$MOUNT" >/dev/null 2>&1 || umount -l "$MOUNT" 2>/dev/null || true
check "nothing of the fenced writer came later" bash -c '! "$0" cat "$1:/fenced" "${@:2}"' "$BIN" $PLACE "${KEY[@]}" "${B[@]}"

check "mount with a short timeout" "$BIN" mount $PLACE "$MOUNT" --take-over --store-timeout 2s "${KEY[@]}" "${A[@]}"
check "read once" cmp "$WORK/tree/large" "$MOUNT/tree/large"
stop_server
check "with the store away, what is cached is read" bash -c 'echo 3 >/proc/sys/vm/drop_caches 2>/dev/null; cmp "$0/large" "$1/tree/large"' "$WORK/tree" "$MOUNT"
check "and a sync fails in time" timeout 60 bash -c '! { echo x >"$0/away" && sync "$0/away"; }' "$MOUNT"
start_server
"$BIN" umount "$MOUNT" >/dev/null 2>&1 || umount -l "$MOUNT" 2>/dev/null || true
check "the room goes on" "$BIN" check $PLACE --read-data "${KEY[@]}" "${A[@]}"

check "backup to a directory" "$BIN" backup $PLACE "$WORK/backup" "${KEY[@]}" "${A[@]}"
check "the backup has the file" bash -c '[ "$("$0" cat "$1:/durable" "${@:2}")" = durable ]' "$BIN" "$WORK/backup" "${KEY[@]}"
check "a key is added" bash -c 'head -c 32 /dev/urandom >"$2" && "$0" key add "$1" --new-raw-key-file "$2" "${@:3}"' "$BIN" $PLACE "$WORK/raw" "${KEY[@]}" "${A[@]}"
check "and opens the room elsewhere" "$BIN" ls $PLACE --raw-key-file "$WORK/raw" "${B[@]}"
check "bucket and caches hold no name, content or passphrase" bash -c '! grep -raqE "secret-name|of a secret file|many words|team/work:/" "$@"' - "$WORK/store/rooms" "$WORK/a" "$WORK/b"
say "$((CHECKS - FAILED)) passed, $FAILED failed"
[ $FAILED -eq 0 ]
