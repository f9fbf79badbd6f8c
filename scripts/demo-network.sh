#!/usr/bin/env bash
# Shows shared storage at work: two network disks, a metadata server and two clients, each on a machine of its own (a network
# namespace, where this runs as root; else all on this machine, over loopback). Files of one client are seen by the other; a
# user is refused; a revoked right fails at the disk; a disk is killed and comes back; then what a disk's owner sees.
#
#   scripts/demo-network.sh [BINARY]        default: target/release/strongroom
#   DEMO_DIR=DIR scripts/demo-network.sh    work in DIR (default: the target directory)
#   PROTECTION=secure                       private (usual) or secure
#
# Leaves nothing behind. Ends with 0 only if everything compared the same and every refusal came.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
PROTECTION=${PROTECTION:-private}
FILES=400
BIG_MIB=24

mkdir -p "${DEMO_DIR:-$TARGET_DIR}"
WORK=$(mktemp -d "${DEMO_DIR:-$TARGET_DIR}/demo-network.XXXXXX")
cd "$WORK"
PASS=$WORK/passphrase
export XDG_STATE_HOME=$WORK/state
export LC_ALL=C
MACHINES=(disk1 disk2 server client1 client2)
declare -A ADDRESS PID
NET=
FAILED=

cleanup() {
    local status=$? name
    for name in client1 client2; do
        if mountpoint -q "$WORK/$name"; then
            "$BIN" umount "$WORK/$name" >/dev/null 2>&1 || umount -l "$WORK/$name" 2>/dev/null || fusermount3 -uz "$WORK/$name" || true
        fi
    done
    for name in "${!PID[@]}"; do
        kill -9 "${PID[$name]}" 2>/dev/null || true
        wait "${PID[$name]}" 2>/dev/null || true
    done
    if [ -n "$NET" ]; then
        for name in bridge "${MACHINES[@]}"; do
            ip netns delete "$NET-$name" 2>/dev/null || true
        done
    fi
    if [ "$status" -ne 0 ]; then
        for name in "$WORK"/*.log; do
            [ -s "$name" ] && { printf '\n-- the end of %s\n' "${name##*/}" && tail -n 20 "$name"; } >&2
        done
    fi
    cd /
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

fail() {
    say "  WRONG: $*"
    FAILED=1
}

# Machines on a bridge of their own. The host's interfaces, routes and firewall have no part in it.
make_net() {
    local name number=0
    NET=srdemo$$
    ip netns add "$NET-bridge" || return 1
    ip -n "$NET-bridge" link add name bridge type bridge || return 1
    ip -n "$NET-bridge" link set dev bridge up || return 1
    for name in "${MACHINES[@]}"; do
        number=$((number + 1))
        ip netns add "$NET-$name" || return 1
        ip -n "$NET-$name" link set dev lo up || return 1
        ip -n "$NET-bridge" link add name "port$number" type veth peer name eth0 netns "$NET-$name" || return 1
        ip -n "$NET-bridge" link set dev "port$number" master bridge up || return 1
        ip -n "$NET-$name" address add "10.178.0.$number/24" dev eth0 || return 1
        ip -n "$NET-$name" link set dev eth0 up || return 1
        ADDRESS[$name]=10.178.0.$number:7000
    done
}

# on MACHINE COMMAND...: with that machine's network, in place of this shell.
on() {
    local name=$1
    shift
    if [ -n "$NET" ]; then
        exec nsenter --net="/run/netns/$NET-$name" -- "$@"
    fi
    exec "$@"
}

# begin NAME ARGUMENT...: a server in the background, on the machine of this name; waits until it answers. (A disk is not ready
# before its metadata server has set which capabilities are valid.)
begin() {
    local name=$1 tries
    shift
    printf '%-8s $ strongroom %s\n' "$name" "${*//$WORK\//}"
    (on "$name" "$BIN" "$@" --health "${HEALTH[$name]}" >>"$WORK/$name.log" 2>&1) &
    PID[$name]=$!
    for tries in {1..300}; do
        if (ask "$name" "$([ "$name" = server ] && echo readyz || echo healthz)") >/dev/null 2>&1; then
            return
        fi
        kill -0 "${PID[$name]}" 2>/dev/null || die "$name has ended"
        sleep 0.1
    done
    die "$name does not get ready ($tries tries)"
}

# ask NAME PATH: its health endpoint.
ask() { on "$1" curl --silent --show-error --fail --max-time 5 "http://${HEALTH[$1]}/$2"; }

# mount_client NAME USER
mount_client() {
    local name=$1 tries
    mkdir -p "$WORK/$name"
    set -- mount --foreground "strongroom://${ADDRESS[server]}/" "$WORK/$name" --identity "$WORK/$2.identity"
    printf '%-8s $ strongroom %s\n' "$name" "${*//$WORK\//}"
    (on "$name" "$BIN" "$@" >>"$WORK/$name.log" 2>&1) &
    PID[$name]=$!
    for tries in {1..300}; do
        mountpoint -q "$WORK/$name" && return
        kill -0 "${PID[$name]}" 2>/dev/null || die "$name has ended"
        sleep 0.1
    done
    die "$name does not mount ($tries tries)"
}

sums() {
    (
        cd "$1"
        find . -type f -print0 | sort -z | xargs -0 sha256sum
    )
}
same() { # same WHAT FILE FILE
    if cmp -s "$2" "$3"; then
        say "  the same: $1 ($(wc -l <"$2") files)"
    else
        fail "$1 is different"
        diff "$2" "$3" | head -n 10 || true
    fi
}
refused() { # refused WHAT COMMAND...: it must fail
    local what=$1 said
    shift
    if said=$("$@" 2>&1 >/dev/null); then
        fail "$what was let through"
    else
        say "  refused: $what (${said##*: })"
    fi
}

title "Five machines"
declare -A HEALTH
if [ "$(id -u)" -eq 0 ] && have ip && have nsenter && make_net 2>"$WORK/net.log"; then
    for name in "${MACHINES[@]}"; do HEALTH[$name]=127.0.0.1:9640; done
    say "each a network namespace, joined by a bridge: ${MACHINES[*]}"
else
    [ -z "$NET" ] || say "(no namespaces here: $(tail -n 1 "$WORK/net.log"))"
    for name in bridge "${MACHINES[@]}"; do [ -z "$NET" ] || ip netns delete "$NET-$name" 2>/dev/null || true; done
    NET=
    port=$((20000 + $$ % 12000))
    for name in "${MACHINES[@]}"; do
        ADDRESS[$name]=127.0.0.1:$((port++))
        HEALTH[$name]=127.0.0.1:$((port++))
    done
    say "all of them this one, over loopback: ${MACHINES[*]}"
fi

title "A room, its disks and its users"
head -c 24 /dev/urandom | base64 >"$PASS"
chmod 600 "$PASS"
show create shared --passphrase-file "$PASS"
for disk in disk1 disk2; do
    show disk init --store $disk.store --size 2GiB --key-out $disk.key
    show disk add shared $disk "${ADDRESS[$disk]}" --key $disk.key.add --protection "$PROTECTION" --passphrase-file "$PASS"
done
# Two people, and the administrator: a mount by root may do everything.
show user add shared root --uid 0 --gid 0 --out root.identity --passphrase-file "$PASS"
# The client's kernel compares numbers too: a user who mounts without root has that number among the users.
ADA=1001
[ "$(id -u)" -eq 0 ] || ADA=$(id -u)
show user add shared ada --uid "$ADA" --gid "$ADA" --out ada.identity --passphrase-file "$PASS"
show user add shared bob --uid 1002 --gid 1002 --out bob.identity --passphrase-file "$PASS"

title "Servers and clients"
for disk in disk1 disk2; do
    begin $disk disk serve --listen "${ADDRESS[$disk]}" --store "$WORK/$disk.store" --key "$WORK/$disk.key" --protection "$PROTECTION"
done
begin server metadata serve --listen "${ADDRESS[server]}" --room "$WORK/shared" --passphrase-file "$PASS"
# The administrator lets everybody make files at the top, once.
mount_client client1 root
chmod 1777 "$WORK/client1"
"$BIN" umount "$WORK/client1"
wait "${PID[client1]}"
mount_client client1 ada
mount_client client2 bob
A=$WORK/client1 B=$WORK/client2

title "What one writes the other reads"
SOURCES=("$HOME"/.cargo/registry/src/*/*/)
[ -d "${SOURCES[0]}" ] || SOURCES=(/usr/include/)
mkdir "$WORK/tree"
{ find "${SOURCES[@]}" -type f -size -512k -print 2>/dev/null || true; } | head -n $FILES | while read -r file; do
    cp "$file" "$WORK/tree/$(printf '%s' "$file" | sha256sum | head -c 8)-${file##*/}"
done
echo "meet me under the clock at noon" >"$WORK/tree/a-very-revealing-name.txt"
head -c "${BIG_MIB}M" /dev/urandom >"$WORK/tree/big"
sums "$WORK/tree" >"$WORK/sums.in"
cp -r "$WORK/tree" "$A/tree"
chmod -R a+rX "$A/tree"
sums "$B/tree" >"$WORK/sums.out"
same "ada's files, read by bob" "$WORK/sums.in" "$WORK/sums.out"
echo "bob was here" >"$B/note"
[ "$(cat "$A/note")" = "bob was here" ] && say "  the same: bob's note, read by ada" || fail "bob's note"

title "Permissions are enforced"
echo "for nobody else" >"$A/diary"
chmod 600 "$A/diary"
refused "bob reads ada's diary" cat "$B/diary"
refused "bob writes to ada's tree" touch "$B/tree/mine"
refused "bob removes ada's diary" rm -f "$B/diary"
chmod 644 "$A/diary"
[ "$(cat "$B/diary")" = "for nobody else" ] && say "  let in: bob reads it after ada's chmod 644" || fail "bob may not read what he may"

title "A revoked right fails at the disk"
revoked() {
    local disk
    for disk in disk1 disk2; do (ask $disk metrics); done |
        awk '/^strongroom_disk_refused_total/ && /revoked|unknown_group|unknown group/ { n += $NF } END { print n + 0 }'
}
BEFORE=$(revoked)
head -c 64M /dev/urandom >"$WORK/report"
for try in {1..12}; do
    # A new one each time: what bob has read already nobody can take back.
    cp "$WORK/report" "$A/report$try"
    [ "$try" -ne 1 ] || say "  bob has a file of ada's open, and reads it; meanwhile ada: chmod 600"
    exec 9<"$B/report$try"
    (
        # Not all at once, or it may be over before the chmod.
        for _ in {1..64}; do dd bs=1M count=1 status=none of=/dev/null <&9 2>>"$WORK/bob" || exit 1; done
    ) &
    READER=$!
    sleep 0.1
    chmod 600 "$A/report$try"
    if wait "$READER"; then
        say "  (bob had read all of it before: once more)"
    else
        say "  refused: bob reads on ($(tail -n 1 "$WORK/bob" | sed 's/.*: //'))"
    fi
    exec 9<&-
    [ "$(revoked)" -eq "$BEFORE" ] || break
done
# Most of bob's requests meet the metadata server's refusal of a fresh capability; those that were on their way with the old one,
# over the old connection, meet the disk's.
AFTER=$(revoked)
if [ "$AFTER" -gt "$BEFORE" ]; then
    say "  the disks refused $((AFTER - BEFORE)) requests that showed a capability from before (attempt $try)"
else
    fail "no disk had to refuse a capability that was revoked"
fi

title "A disk is killed, and comes back"
cp "$WORK/tree/big" "$A/again"
sync "$A/again"
kill -9 "${PID[disk1]}"
wait "${PID[disk1]}" 2>/dev/null || true
say "  kill -9 of disk1"
(sums "$B/tree" >"$WORK/sums.late") &
READER=$!
sleep 2
begin disk1 disk serve --listen "${ADDRESS[disk1]}" --store "$WORK/disk1.store" --key "$WORK/disk1.key" --protection "$PROTECTION"
wait "$READER" || fail "bob's reading ended with an error"
same "ada's files, read by bob while the disk was away" "$WORK/sums.in" "$WORK/sums.late"
cmp -s "$WORK/tree/big" "$B/again" && say "  the same: what was synced just before" || fail "what was synced just before"
kill -9 "${PID[server]}"
wait "${PID[server]}" 2>/dev/null || true
say "  kill -9 of the metadata server"
begin server metadata serve --listen "${ADDRESS[server]}" --room "$WORK/shared" --passphrase-file "$PASS"
sums "$A/tree" >"$WORK/sums.late"
same "ada's files, with the metadata server restarted" "$WORK/sums.in" "$WORK/sums.late"

title "What the owner of a disk sees"
for name in client1 client2; do
    "$BIN" umount "$WORK/$name"
    wait "${PID[$name]}"
    unset "PID[$name]"
done
for name in server disk1 disk2; do
    kill "${PID[$name]}"
    wait "${PID[$name]}" || fail "$name did not end in order"
    unset "PID[$name]"
done
say "  all have ended in order"
for text in a-very-revealing-name "meet me under the clock" include; do
    inside=$( (find "$WORK/tree" | grep -acF -- "$text" || true; { grep -raoF -- "$text" "$WORK/tree" || true; } | wc -l) | awk '{ n += $1 } END { print n }')
    outside=$({ grep -aoF -- "$text" "$WORK"/disk?.store || true; } | wc -l)
    printf '  %-28s %10s times in the tree, %s on the disks\n' "'$text'" "$inside" "$outside"
    [ "$outside" -eq 0 ] || FAILED=1
done
printf '  %-28s %10s MiB\n' "the disks hold" "$(($(du -sk "$WORK"/disk?.store | awk '{ n += $1 } END { print n }') / 1024))"

[ -z "$FAILED" ] || die "the demonstration failed: see WRONG above"
title "Everything came back the same, and nobody got what was not theirs"
