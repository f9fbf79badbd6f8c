#!/usr/bin/env bash
# Shows Strongroom at work: a room is created, mounted, filled with a real source tree, unmounted, mounted again and compared
# with what went in; then what an outsider sees, and sizes and speeds beside the plain disk.
#
#   scripts/demo.sh [BINARY]          default: target/release/strongroom
#   DEMO_DIR=DIR scripts/demo.sh      work in DIR, and so on its disk (default: the target directory)
#
# Works as root and as an ordinary user; leaves nothing behind. Ends with 0 only if everything compared the same and
# nothing could be read from outside.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
FILES=4000
BIG_MIB=256

mkdir -p "${DEMO_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${DEMO_DIR:-$TARGET_DIR}/demo.XXXXXX")
ROOM=$WORK/work.strongroom
MNT=$WORK/mnt
TREE=$WORK/tree
PLAIN=$WORK/plain
PASS=$WORK/passphrase
# What the machine remembers of the room goes when the demonstration goes.
export XDG_STATE_HOME=$WORK/state
export LC_ALL=C

cleanup() {
    local status=$?
    if mountpoint -q "$MNT"; then
        "$BIN" umount "$MNT" >/dev/null 2>&1 || fusermount3 -uz "$MNT" || true
    fi
    # A tree may hold directories that their owner cannot write to.
    chmod -R u+rwX "$WORK" 2>/dev/null || true
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# seconds COMMAND...: runs it, its output dropped, and leaves the time in SECONDS_TAKEN.
seconds() {
    local from=$EPOCHREALTIME
    "$@" >/dev/null
    SECONDS_TAKEN=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
}

COLD="caches dropped"
drop_caches() {
    sync
    if ! { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null; then
        COLD="caches not dropped: that needs root"
    fi
}

mount_room() { "$BIN" mount "$ROOM" "$MNT" --passphrase-file "$PASS"; }
umount_room() { "$BIN" umount "$MNT"; }

# A real source tree: the dependencies' sources, which every build of this project has just read; else the C headers.
make_tree() {
    local sources=("$HOME"/.cargo/registry/src/*/*/) count=0 source
    [ -d "${sources[0]}" ] || sources=(/usr/include/*/)
    mkdir "$TREE"
    for source in "${sources[@]}"; do
        cp -a "$source" "$TREE/"
        count=$((count + $(find "$source" | wc -l)))
        [ "$count" -lt "$FILES" ] || break
    done
    # And what source trees seldom have.
    local odd=$TREE/odd-things
    mkdir "$odd"
    echo "meet me under the clock at noon" >"$odd/a-very-revealing-name.txt"
    ln "$odd/a-very-revealing-name.txt" "$odd/hard-link"
    ln -s ../odd-things/a-very-revealing-name.txt "$odd/symlink"
    ln -s nowhere "$odd/dangling symlink"
    mkfifo "$odd/fifo"
    truncate -s 64M "$odd/sparse"
    echo end >>"$odd/sparse"
    : >"$odd/"$'new\nline and \xff byte'
    : >"$odd/$(printf 'n%.0s' {1..255})"
    mkdir -m 1777 "$odd/sticky"
    install -m 4755 /dev/null "$odd/set-user-id"
    touch -d '1969-07-20 20:17:40.123456789 UTC' "$odd/symlink" "$odd/set-user-id"
    touch -h -d '2038-01-19 03:14:08.987654321 UTC' "$odd/dangling symlink"
    setfattr -n user.note -v "kept" "$odd/hard-link" 2>/dev/null || warn "this disk keeps no extended attributes: not compared"
    setfacl -m u:65534:r "$odd/set-user-id" 2>/dev/null || warn "this disk keeps no ACLs: not compared"
    if [ "$(id -u)" -eq 0 ]; then
        mknod "$odd/device" c 1 3
        install -m 0000 -o 12345 -g 54321 /dev/null "$odd/mode-0"
    fi
}

# Everything of a tree but contents: type, mode, owner, links, size, time to the nanosecond, target; which names are one
# file; extended attributes with ACLs. (The size of a directory is each file system's own affair.)
listing() {
    (
        cd "$1"
        find . -type d -printf '%p|%y|%m|%U|%G|%T@\0' -o -printf '%p|%y|%m|%U|%G|%n|%s|%T@|%l\0' | sort -z | tr '\0' '\n'
        echo "-- links"
        find . ! -type d -links +1 -printf '%i %p\n' | sort -k 2 |
            awk '{ inode = $1; sub(/^[0-9]+ /, ""); if (!(inode in first)) first[inode] = $0; print first[inode] " = " $0 }'
        echo "-- attributes"
        find . -print0 | sort -z | xargs -0 getfattr -h -d -e hex -m -
    )
}

# The contents: every regular file's SHA-256. Files of mode 0 can be read by root only.
sums() {
    (
        cd "$1"
        find . -type f -readable -print0 | sort -z | xargs -0 sha256sum
    )
}

title "A room"
head -c 24 /dev/urandom | base64 >"$PASS"
chmod 600 "$PASS"
mkdir "$MNT"
show create "$ROOM" --passphrase-file "$PASS"
show mount "$ROOM" "$MNT" --passphrase-file "$PASS"
mountpoint -q "$MNT" || die "mount said it was done, and nothing is mounted"

title "A source tree goes in"
make_tree
head -c "${BIG_MIB}M" /dev/urandom >"$WORK/big"
ENTRIES=$(find "$TREE" | wc -l)
TREE_KIB=$(du -sk "$TREE" | cut -f 1)
say "$ENTRIES files, directories and others, $((TREE_KIB / 1024)) MiB"
sync
copy_in() {
    cp -a "$TREE" "$1/tree"
    # All dirty pages, and then a commit of everything.
    sync -f "$1"
    sync "$1/tree/odd-things/sparse"
}
mkdir "$PLAIN"
seconds copy_in "$PLAIN"
PLAIN_COPY=$SECONDS_TAKEN
seconds copy_in "$MNT"
ROOM_COPY=$SECONDS_TAKEN
seconds dd if="$WORK/big" of="$PLAIN/big" bs=1M conv=fsync status=none
PLAIN_WRITE=$SECONDS_TAKEN
seconds dd if="$WORK/big" of="$MNT/big" bs=1M conv=fsync status=none
ROOM_WRITE=$SECONDS_TAKEN
df -h "$MNT" | tail -n 1

title "Unmounted, and mounted again"
show umount "$MNT"
mountpoint -q "$MNT" && die "umount said it was done, and something is still mounted"
[ -z "$(ls -A "$MNT")" ] || die "there is something in the empty mountpoint"
show mount "$ROOM" "$MNT" --passphrase-file "$PASS"

title "The same?"
FAILED=
compare() {
    if cmp -s "$2" "$3"; then
        say "  the same: $1 ($(wc -l <"$2") lines)"
    else
        say "  DIFFERENT: $1"
        diff "$2" "$3" | head -n 20 || true
        FAILED=1
    fi
}
sums "$TREE" >"$WORK/sums.in"
sums "$MNT/tree" >"$WORK/sums.out"
compare "contents, by SHA-256" "$WORK/sums.in" "$WORK/sums.out"
listing "$TREE" >"$WORK/list.in" 2>/dev/null
listing "$MNT/tree" >"$WORK/list.out" 2>/dev/null
compare "types, modes, owners, sizes, times, links, extended attributes, ACLs" "$WORK/list.in" "$WORK/list.out"
if cmp -s "$WORK/big" "$MNT/big"; then
    say "  the same: a file of $BIG_MIB MiB"
else
    say "  DIFFERENT: the file of $BIG_MIB MiB"
    FAILED=1
fi

title "Beside the plain disk"
# Cold: nothing in the page cache, and for the room a fresh mount.
cold() {
    umount_room
    drop_caches
    mount_room
}
read_tree() { find "$1/tree" -type f -readable -print0 | xargs -0 cat; }
read_big() { dd if="$1/big" of=/dev/null bs=1M status=none; }
list_tree() { ls -lR "$1/tree"; }
both() { # both COMMAND: PLAIN_TIME and ROOM_TIME
    cold
    seconds "$1" "$PLAIN"
    PLAIN_TIME=$SECONDS_TAKEN
    seconds "$1" "$MNT"
    ROOM_TIME=$SECONDS_TAKEN
}
row() { # row NAME AMOUNT UNIT PLAIN_SECONDS ROOM_SECONDS
    awk -v n="$1" -v a="$2" -v u="$3" -v p="$4" -v r="$5" 'BEGIN {
        if (p < 0.001) p = 0.001; if (r < 0.001) r = 0.001
        printf "  %-28s %10.0f %-8s %10.0f %-8s %8.2f\n", n, a / p, u, a / r, u, p / r }'
}
printf '  %-28s %19s %19s %8s\n' "" "plain disk" "room" "ratio"
row "copy the tree in, synced" "$ENTRIES" "files/s" "$PLAIN_COPY" "$ROOM_COPY"
row "write $BIG_MIB MiB with fsync" "$BIG_MIB" "MiB/s" "$PLAIN_WRITE" "$ROOM_WRITE"
both read_big
row "read $BIG_MIB MiB, cold" "$BIG_MIB" "MiB/s" "$PLAIN_TIME" "$ROOM_TIME"
both read_tree
row "read the tree, cold" "$ENTRIES" "files/s" "$PLAIN_TIME" "$ROOM_TIME"
both list_tree
row "ls -lR the tree, cold" "$ENTRIES" "files/s" "$PLAIN_TIME" "$ROOM_TIME"
if have python3; then
    SYNCED=300
    durable() { python3 "$ROOT/scripts/durable.py" "$WHAT" "$1" "$SYNCED"; }
    for line in "appends:4 KiB appends, synced" "mailbox:mailbox deliveries, synced" \
        "journal:SQLite, rollback journal" "wal:SQLite, write-ahead log"; do
        WHAT=${line%%:*}
        seconds durable "$PLAIN"
        PLAIN_TIME=$SECONDS_TAKEN
        seconds durable "$MNT"
        row "${line#*:}" "$SYNCED" "times/s" "$PLAIN_TIME" "$SECONDS_TAKEN"
    done
fi
say "  (one run, $COLD; make bench measures with care)"
umount_room

title "What an outsider sees"
(cd "$WORK" && ls -lR "${ROOM##*/}") >"$WORK/outside"
head -n 25 "$WORK/outside"
[ "$(wc -l <"$WORK/outside")" -le 25 ] || say "... ($(wc -l <"$WORK/outside") lines)"
printf '  %-28s %10s MiB\n' "tree and large file hold" "$(($(du -sk "$PLAIN" | cut -f 1) / 1024))"
printf '  %-28s %10s MiB\n' "the room takes" "$(($(du -sk "$ROOM" | cut -f 1) / 1024))"
hidden() { # hidden WHAT TEXT
    local inside outside
    inside=$( (
        find "$TREE" | grep -acF -- "$2" || true
        { grep -raoF -- "$2" "$TREE" 2>/dev/null || true; } | wc -l
    ) | awk '{ n += $1 } END { print n + 0 }')
    outside=$( (
        find "$ROOM" | grep -acF -- "$2" || true
        { grep -raoF -- "$2" "$ROOM" || true; } | wc -l
    ) | awk '{ n += $1 } END { print n + 0 }')
    printf '  %-28s %10s times in the tree, %s in the room\n' "$1" "$inside" "$outside"
    [ "$inside" -gt 0 ] || die "'$2' should be in the tree"
    [ "$outside" -eq 0 ] || FAILED=1
}
hidden "a name" "a-very-revealing-name"
hidden "a sentence" "meet me under the clock"
hidden "the word 'include'" "include"
if grep -raqF -- "$(cat "$PASS")" "$ROOM"; then
    say "  THE PASSPHRASE IS IN THE ROOM"
    FAILED=1
fi
squeezed() { # squeezed DIRECTORY: what gzip leaves of its files, in percent
    local all small
    # The first 64 MiB are enough. head ends the pipe early, which is no failure here; the sparse file is all zeroes.
    start_of() { { find "$1" -type f -readable ! -name sparse -print0 | xargs -0 cat | head -c 64M; } 2>/dev/null || true; }
    all=$(start_of "$1" | wc -c)
    small=$(start_of "$1" | gzip -1 | wc -c)
    awk -v a="$all" -v s="$small" 'BEGIN { printf "%.1f %%", 100 * s / a }'
}
printf '  %-28s %10s of the tree, %s of the room (100 %% is noise)\n' "gzip leaves" "$(squeezed "$TREE")" "$(squeezed "$ROOM")"

[ -z "$FAILED" ] || die "the demonstration failed: see DIFFERENT or found names above"
title "Everything came back the same, and nothing of it can be read from outside"
