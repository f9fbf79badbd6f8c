#!/usr/bin/env bash
# Tries rooms in a bucket against a real S3 server (versitygw, or Garage with commits in etcd): create, fill, mount, kill, go on elsewhere, two
# writers, the store away, a reader that follows, what the bucket shows.
#
#   scripts/bucket.sh [BINARY [suites]]   default: target/release/strongroom, with strongroom-bucket beside it
#
# suites: pjdfstest and fsx too, on a mount of such a room. `make test-engines` sets everything up.
#
#   BUCKET=garage      three nodes of Garage, and three members of etcd; default: versitygw
#
# Builds the server where it is missing; versitygw needs Go. Leaves nothing else behind. Ends with 0 only if every check passed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$(dirname "$BIN")/strongroom-bucket" ] || die "there is no strongroom-bucket beside $BIN: run make build"
mkdir -p "$TARGET_DIR"
WORK=$(mktemp -d "$TARGET_DIR/bucket.XXXXXX")
. "$(dirname "$0")/s3.sh"
if [ "${BUCKET:-}" = garage ]; then
    ENGINE=etcd ENGINE_PORT=$((S3_PORT + 1))
    . "$(dirname "$0")/engine-nodes.sh"
fi
. "$(dirname "$0")/checks.sh"
export XDG_CACHE_HOME=$WORK/cache XDG_STATE_HOME=$WORK/state LC_ALL=C
PASS=$WORK/pass PLACE=s3://rooms/team/work MOUNT=$WORK/mount READER=$WORK/reader
A=(--cache "$WORK/a") B=(--cache "$WORK/b") KEY=(--passphrase-file "$PASS")

# The store, and what keeps its order of commits.
start_all() {
    start_server
    [ "${BUCKET:-}" != garage ] || start_engine
}
stop_all() {
    stop_server
    [ "${BUCKET:-}" != garage ] || stop_engine
}
cleanup() {
    local status=$?
    for mount in "$READER" "$MOUNT"; do
        mountpoint -q "$mount" && { umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" || true; }
    done
    stop_all
    [ $status -eq 0 ] || tail -n 5 "$WORK"/*.log >&2 || true
    rm -rf "$WORK"
}
trap cleanup EXIT

# Waits until the command that is $2 succeeds, at most 30 seconds.
SOON='{ for _ in $(seq 150); do (eval "$2") >/dev/null 2>&1 && break; sleep 0.2; done; eval "$2"; }'
# The process that serves the mount.
server_of_mount() { "$BIN" info --json "$MOUNT" | sed -E 's/.*"pid":([0-9]+).*/\1/'; }

mkdir -p "$MOUNT" "$READER" "$WORK/tree/sub"
printf 'a passphrase of many words' >"$PASS"
for n in $(seq 50); do echo "content number $n of a secret file" >"$WORK/tree/sub/secret-name-$n"; done
head -c 30000000 /dev/urandom >"$WORK/tree/large"
start_all
if [ "${BUCKET:-}" = garage ]; then
    refused "a store that does not keep the order of commits" "overwrites a commit.*--log" "$BIN" create $PLACE "${KEY[@]}" "${A[@]}"
    A+=(--log "$LOG") B+=(--log "$LOG")
fi

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
check "info of the mount, with requests and an estimate" bash -c '"$0" info "$1" >"$2" && grep -q "^requests .* PUT" "$2" && grep -q "^estimate .* USD" "$2"' "$BIN" "$MOUNT" "$WORK/info"
[ "${BUCKET:-}" = garage ] || check "its objects are those of the store" bash -c 'n=$(find "$2" -type f | wc -l); "$0" info --json "$1" | grep -q "\"objects\":$n[,}]"' "$BIN" "$MOUNT" "$WORK/store/rooms/team/work"
check "an estimate by other prices" bash -c 'echo "{\"currency\":\"EUR\",\"put_1000\":1e6}" >"$2" && "$0" info "$1" --prices "$2" | grep -q "^estimate *[1-9].* EUR"' "$BIN" "$MOUNT" "$WORK/prices"
refused "a table that is none" "not a table of prices" bash -c 'echo x >"$2" && "$0" info "$1" --prices "$2"' "$BIN" "$MOUNT" "$WORK/prices"
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
stop_all
check "with the store away, what is cached is read" bash -c 'echo 3 >/proc/sys/vm/drop_caches 2>/dev/null; cmp "$0/large" "$1/tree/large"' "$WORK/tree" "$MOUNT"
check "and a sync fails in time" timeout 60 bash -c '! { echo x >"$0/away" && sync "$0/away"; }' "$MOUNT"
start_all
"$BIN" umount "$MOUNT" >/dev/null 2>&1 || umount -l "$MOUNT" 2>/dev/null || true
check "the room goes on" "$BIN" check $PLACE --read-data "${KEY[@]}" "${A[@]}"

check "mount for writing" "$BIN" mount $PLACE "$MOUNT" "${KEY[@]}" "${A[@]}"
refused "to follow and write" "read-only" "$BIN" mount $PLACE "$READER" --follow "${KEY[@]}" "${B[@]}"
check "another machine follows it" "$BIN" mount $PLACE "$READER" -o "ro,follow,cache=$WORK/b,passphrase-file=$PASS"
check "it has the tree" diff -r "$WORK/tree" "$READER/tree"
check "what the writer syncs is there" bash -c 'echo one >"$0/news" && sync "$0/news" && '"$SOON"' && [ "$(cat "$1/news")" = one ]' "$MOUNT" "$READER" 'cat "$1/news"'
exec 4<"$READER/news"
check "what it changes" bash -c 'echo second >"$0/news" && sync "$0/news" && '"$SOON" "$MOUNT" "$READER" 'grep -q second "$1/news"'
check "through an open file too" grep -q second /proc/self/fd/4
check "what it renames" bash -c 'mv "$0/tree" "$0/moved" && sync -f "$0" && '"$SOON"' && [ ! -e "$1/tree" ]' "$MOUNT" "$READER" 'cmp "$3/large" "$1/moved/large"' "$WORK/tree"
check "what it deletes" bash -c 'rm "$0/news" && sync -f "$0" && '"$SOON" "$MOUNT" "$READER" '! cat "$1/news"'
refused "reading a deleted file that is open" "Stale" bash -c 'sleep 1; cat <&4'
exec 4<&-
refused "changes there" "Read-only" touch "$READER/x"
check "info of it" bash -c '"$0" info "$1" | grep -q read-only' "$BIN" "$READER"
check "many files" bash -c 'mkdir "$0/many" && for n in $(seq 30); do head -c 300000 /dev/urandom >"$0/many/$n" || exit; done && sync -f "$0" && '"$SOON" "$MOUNT" "$READER" '[ "$(ls "$1/many" | wc -l)" = 30 ]'
kill -STOP "$S3_PID"
READS=()
for n in $(seq 30); do
    cmp "$MOUNT/many/$n" "$READER/many/$n" &
    READS+=($!)
done
sleep 1
check "while the store does not answer, what is cached is read beside reads that wait for it" timeout 20 cmp "$WORK/tree/large" "$READER/moved/large"
kill -CONT "$S3_PID"
check "which end when it answers" wait "${READS[@]}"
check "rename back" bash -c 'mv "$0/moved" "$0/tree" && sync -f "$0"' "$MOUNT"
check "unmount the reader" "$BIN" umount "$READER"
check "and the writer" "$BIN" umount "$MOUNT"

check "backup to a directory" "$BIN" backup $PLACE "$WORK/backup" "${KEY[@]}" "${A[@]}"
check "the backup has the file" bash -c '[ "$("$0" cat "$1:/durable" "${@:2}")" = durable ]' "$BIN" "$WORK/backup" "${KEY[@]}"
check "a key is added" bash -c 'head -c 32 /dev/urandom >"$2" && "$0" key add "$1" --new-raw-key-file "$2" "${@:3}"' "$BIN" $PLACE "$WORK/raw" "${KEY[@]}" "${A[@]}"
check "and opens the room elsewhere" "$BIN" ls $PLACE --raw-key-file "$WORK/raw" "${B[@]}"
check "bucket and caches hold no name, content or passphrase" bash -c '! grep -raqE "secret-name|of a secret file|many words|team/work:/" "$@"' - "$WORK/store" "$WORK/a" "$WORK/b"
SKIPPED=0
if [ "${2:-}" = suites ]; then
    # Two outside suites on a mount of such a room; what they leave out is said in crates/cli/tests/external.rs.
    log=$WORK/suites.log
    PATH=$(dirname "$S3_SERVER"):$PATH cargo test --workspace --test external in_a_bucket -- --nocapture 2>&1 | tee "$log" || true
    ok=$(grep -cE '^test .*in_a_bucket.* ok$' "$log" || true)
    # A test that says so ran nothing.
    SKIPPED=$(grep -c '^skipped: ' "$log" || true)
    CHECKS=$((CHECKS + 2 - SKIPPED)) FAILED=$((FAILED + 2 - ok))
fi
say "$((CHECKS - FAILED)) passed, $FAILED failed, $SKIPPED skipped"
[ $FAILED -eq 0 ]
