# shellcheck shell=bash
# A plain directory, a mounted room, gocryptfs and securefs (those that are installed), beside each other in $WORK, for a measurement.
# Where root can let requests come over io_uring, also a room that is mounted so. Sourced behind lib.sh, with WORK and BIN set. Each can
# be used by any user: a database refuses to run as root.

STORES=()
MOUNTED=()

# offer NAME: its files are to be in $WORK/NAME.d, its mountpoint is $WORK/NAME.
offer() {
    mkdir "$WORK/$1" "$WORK/$1.d"
    STORES+=("$1")
    MOUNTED+=("$WORK/$1")
}

# mount_room NAME OPTION: a room of its own, mounted with that option.
mount_room() {
    "$BIN" create --quiet "$WORK/$1.d/room" --passphrase-file "$WORK/passphrase" --kdf-memory 8 --kdf-passes 1 &&
        "$BIN" mount "$WORK/$1.d/room" "$WORK/$1" --passphrase-file "$WORK/passphrase" --allow-other -o "$2" >/dev/null
}

# offer_room_over_io_uring: the kernel looks at its parameter when something is mounted, so it is put back at once, whatever happens.
offer_room_over_io_uring() {
    local parameter=/sys/module/fuse/parameters/enable_uring was
    [ -w "$parameter" ] || return 0
    was=$(cat "$parameter")
    offer room-io_uring
    (
        trap 'echo "$was" >"$parameter"' EXIT
        echo Y >"$parameter"
        mount_room room-io_uring io_uring
    )
    "$BIN" --json info "$WORK/room-io_uring" --passphrase-file "$WORK/passphrase" | grep -q '"transport":"io_uring"' ||
        die "the room is not mounted over io_uring"
}

# offer_stores: makes and mounts them.
offer_stores() {
    chmod 755 "$WORK"
    head -c 24 /dev/urandom | base64 >"$WORK/passphrase"
    chmod 600 "$WORK/passphrase"
    STORES=(plain)
    mkdir "$WORK/plain"
    offer room
    mount_room room noio_uring
    offer_room_over_io_uring
    if have gocryptfs; then
        offer gocryptfs
        gocryptfs -q -init -scryptn 10 -passfile "$WORK/passphrase" "$WORK/gocryptfs.d"
        gocryptfs -q -allow_other -passfile "$WORK/passphrase" "$WORK/gocryptfs.d" "$WORK/gocryptfs"
    fi
    if have securefs; then
        offer securefs
        securefs create --pass "$(cat "$WORK/passphrase")" "$WORK/securefs.d" >/dev/null
        securefs mount -b --log "$WORK/securefs.log" -o allow_other,default_permissions --pass "$(cat "$WORK/passphrase")" \
            "$WORK/securefs.d" "$WORK/securefs" >/dev/null
        timeout 30 sh -c 'until mountpoint -q "$1"; do sleep 0.1; done' wait "$WORK/securefs" || die "securefs does not mount"
    fi
}

# unmount_stores: whatever state they are in.
unmount_stores() {
    local at
    for at in "${MOUNTED[@]}"; do
        umount "$at" 2>/dev/null || fusermount3 -uz "$at" || true
    done
}
