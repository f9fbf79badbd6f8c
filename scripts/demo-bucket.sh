#!/usr/bin/env bash
# Shows a room in an S3 bucket: it is created, mounted and filled; another machine follows it; its writer is killed, and the other machine
# goes on with all that was synced; then what the store sees. The S3 server is versitygw on this machine, and "machines" are two
# caches that share nothing.
#
#   scripts/demo-bucket.sh [BINARY]   default: target/release/strongroom, with strongroom-bucket beside it
#
# Works as root and as an ordinary user; leaves nothing behind but versitygw. Ends with 0 only if everything compared the same.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$(dirname "$BIN")/strongroom-bucket" ] || die "there is no strongroom-bucket beside $BIN: run make build"
mkdir -p "${DEMO_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${DEMO_DIR:-$TARGET_DIR}/demo-bucket.XXXXXX")
. "$(dirname "$0")/s3.sh"
export XDG_STATE_HOME=$WORK/state LC_ALL=C
PLACE=s3://rooms/team/work
PASS=$WORK/passphrase TREE=$WORK/tree ONE=$WORK/one TWO=$WORK/two
A=(--cache "$WORK/machine-one" --passphrase-file "$PASS") B=(--cache "$WORK/machine-two" --passphrase-file "$PASS")
FAILED=

cleanup() {
    local status=$?
    for mount in "$ONE" "$TWO"; do
        mountpoint -q "$mount" && { umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" || true; }
    done
    stop_server
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# same WHAT COMMAND...
same() {
    if "${@:2}" >/dev/null 2>&1; then
        say "  the same: $1"
    else
        say "  DIFFERENT: $1"
        FAILED=1
    fi
}
# soon COMMAND...: waits until it succeeds, and says how long that took.
soon() {
    local from=$EPOCHREALTIME
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then
            say "  seen after $(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s"
            return
        fi
        sleep 0.1
    done
    say "  NOT seen within 30 s"
    FAILED=1
}

title "A store, and a room in it"
start_server
head -c 24 /dev/urandom | base64 >"$PASS"
chmod 600 "$PASS"
mkdir "$ONE" "$TWO" "$TREE"
show create $PLACE "${A[@]}"
show mount $PLACE "$ONE" "${A[@]}"

title "Machine one fills it"
for n in $(seq 300); do
    mkdir -p "$TREE/papers-$((n % 10))"
    echo "the secret of paper $n" >"$TREE/papers-$((n % 10))/revealing-name-$n.txt"
done
head -c 64M /dev/urandom >"$TREE/large"
cp -a "$TREE" "$ONE/tree"
show sync "$ONE"
say "$(find "$TREE" | wc -l) files and directories, $(du -sm "$TREE" | cut -f 1) MiB, synced: all of it is in the bucket"

title "Machine two follows it, and only reads"
show mount $PLACE "$TWO" --read-only --follow "${B[@]}"
same "the tree, on machine two" diff -r "$TREE" "$TWO/tree"
say "Machine one writes and syncs a file."
echo "just written" >"$ONE/news"
sync "$ONE/news"
soon grep -q "just written" "$TWO/news"
show umount "$TWO"

title "Machine one dies"
echo "nobody synced this" >"$ONE/not-synced"
kill -9 "$("$BIN" info --json "$ONE" | sed -E 's/.*"pid":([0-9]+).*/\1/')"
umount -l "$ONE" 2>/dev/null || fusermount3 -uz "$ONE"
say "Its process was killed. Machine two is refused at first, because the room counts as open:"
if show mount $PLACE "$TWO" "${B[@]}"; then
    say "  NOT refused"
    FAILED=1
fi

title "Machine two goes on"
show mount $PLACE "$TWO" --take-over "${B[@]}"
same "the tree" diff -r "$TREE" "$TWO/tree"
same "what was synced last" grep -q "just written" "$TWO/news"
echo "of machine two" >"$TWO/after"
sync "$TWO/after"
show umount "$TWO"
show check $PLACE --read-data "${B[@]}"

title "What the store sees"
find "$WORK/store/rooms" -type f -printf '%P %s\n' | sed 's|^team/work/||' | sort |
    awk '{ split($1, part, "/"); n[part[1]]++; bytes[part[1]] += $2 } END { for (d in n) printf "  %-12s %4d objects, %9d bytes\n", d, n[d], bytes[d] }' | sort
if grep -raqE "revealing-name|the secret of|just written" "$WORK/store/rooms" "$WORK/machine-one" "$WORK/machine-two"; then
    say "  FOUND: a name or content in clear"
    FAILED=1
else
    say "  no name and no content, neither in the bucket nor in the caches"
fi
[ -z "$FAILED" ] || die "something is different"
