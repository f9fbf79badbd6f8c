#!/usr/bin/env bash
# Tries a pair of metadata servers of a room in a bucket (versitygw, or Garage): clients write while the server that leads is killed, stopped
# and woken, or steps down, or a disk is killed. Every file that was synced must be there, through each client and after everything was
# restarted; a lock that one client holds must stay its own all the time; no call may fail.
#
#   scripts/standby.sh [BINARY [ROUNDS]]    default: target/release/strongroom with strongroom-bucket beside it, 8 rounds
#
#   LOG=postgres://…|etcd://…               where the commits are; default: in the bucket
#   ENGINE=postgres|etcd                    starts that engine with several nodes for the commits of the room and of two disks in the
#                                           bucket, and kills nodes of it too; scripts/engines.sh installs what this needs
#   BUCKET=garage                           the bucket is in three nodes of Garage, of which some are killed too; needs ENGINE or LOG
#   CLIENTS=6                               clients that write; default: 2
#   KIND=kill                               only rounds of this kind: kill, stop, step-down, disk, node, store
#   LONGEST=5                               fails where the longest call of a round, of 99 of 100 rounds, took longer, in seconds
#
# Needs FUSE, and root or fusermount3. Ends with 0 only if all was well, and reports how long the longest call of each round took.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
ROUNDS=${2:-8}
[ "${CLIENTS:-2}" -ge 2 ] || die "CLIENTS is at least 2: one holds locks, another one tries to get them"
mapfile -t CLIENT < <(seq -f 'client%g' "${CLIENTS:-2}")
[ -x "$(dirname "$BIN")/strongroom-bucket" ] || die "there is no strongroom-bucket beside $BIN: run make build"
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
mkdir -p "$TARGET_DIR"
WORK=$(mktemp -d "$TARGET_DIR/standby.XXXXXX")
[ "${BUCKET:-}" != garage ] || [ -n "${ENGINE:-}${LOG:-}" ] || die "Garage does not keep the order of commits: set ENGINE or LOG"
. "$(dirname "$0")/s3.sh"
export XDG_STATE_HOME=$WORK/state LC_ALL=C
PLACE=s3://rooms/shared KEY=(--raw-key-file "$WORK/key")
declare -A PID PORT_OF
PORT_OF=([a]=$((S3_PORT + 1)) [b]=$((S3_PORT + 2)) [d1]=$((S3_PORT + 3)) [d2]=$((S3_PORT + 4)))
KINDS=(kill stop step-down disk)
if [ -n "${ENGINE:-}" ]; then
    ENGINE_PORT=$((S3_PORT + 5))
    . "$(dirname "$0")/engine-nodes.sh"
    KINDS+=(node)
fi
[ "${BUCKET:-}" != garage ] || KINDS+=(store)

cleanup() {
    local status=$? name
    # Programs that use the mounts: a call may wait for servers that are gone, and a mount ends with the last file.
    [ -z "${WRITERS[*]:-}${HOLDER:-}" ] || kill -9 "${WRITERS[@]}" ${HOLDER:+"$HOLDER"} 2>/dev/null || true
    for name in "${!PID[@]}"; do
        kill -CONT "${PID[$name]}" 2>/dev/null || true
    done
    for name in "${CLIENT[@]}"; do
        mountpoint -q "$WORK/$name" && { umount -l "$WORK/$name" 2>/dev/null || fusermount3 -uz "$WORK/$name" || true; }
    done
    for name in "${!PID[@]}"; do
        kill -9 "${PID[$name]}" 2>/dev/null || true
        wait "${PID[$name]}" 2>/dev/null || true
    done
    [ -z "${ENGINE:-}" ] || stop_engine
    stop_server
    if [ "$status" -ne 0 ]; then
        for name in "$WORK"/*.log; do
            { printf -- '-- the end of %s\n' "${name##*/}" && tail -n "${TAIL:-15}" "$name"; } >&2
        done
    fi
    rm -rf "$WORK"
}
trap cleanup EXIT

now() { python3 -c 'import time; print(time.monotonic())'; }
# until_ok SECONDS COMMAND...
until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
# The options that say where a disk's blocks are.
store_of() {
    if [ -n "${ENGINE:-}" ]; then
        STORE=(--store "s3://rooms/$1" --cache "$WORK/$1.cache" --log "$LOG")
    else
        STORE=(--store "$WORK/$1.store")
    fi
}
start_disk() {
    store_of "$1"
    "$BIN" disk serve "${STORE[@]}" --key "$WORK/$1.key" --listen "127.0.0.1:${PORT_OF[$1]}" >>"$WORK/$1.log" 2>&1 &
    PID[$1]=$!
    wait_for_port "${PORT_OF[$1]}" || die "disk $1 does not start"
}
start_metadata() {
    "$BIN" metadata serve $PLACE --cache "$WORK/$1" "${LOG_OPTION[@]}" --standby "${STANDBY[@]}" --listen "127.0.0.1:${PORT_OF[$1]}" "${KEY[@]}" >>"$WORK/$1.log" 2>&1 &
    PID[$1]=$!
}
status_of() { "$BIN" metadata status $PLACE --cache "$WORK/$1" 2>&1; }
serves() { status_of "$1" | grep -q " serves "; }
on_standby() { status_of "$1" | grep -q " is on standby "; }
# Whether one server serves and the other one waits: which is LEADER, and which OTHER.
settled() {
    if serves a && on_standby b; then
        LEADER=a OTHER=b
    elif serves b && on_standby a; then
        LEADER=b OTHER=a
    else
        return 1
    fi
}
mount_client() {
    "$BIN" mount "strongroom://127.0.0.1:${PORT_OF[a]},127.0.0.1:${PORT_OF[b]}/" "$WORK/$1" --identity "$WORK/root.identity" --log "$WORK/$1.log"
}
STANDBY=()
[ -z "${LEASE:-}" ] || STANDBY=(--standby-lease "$LEASE")

say "seed $SEED: repeat with SEED=$SEED"
head -c 32 /dev/urandom >"$WORK/key"
start_server
[ -z "${ENGINE:-}" ] || start_engine
if [ "${BUCKET:-}" = garage ]; then
    said=$("$BIN" create s3://rooms/alone --cache "$WORK/alone" "${KEY[@]}" 2>&1) && die "a room is created in a store that does not keep the order of commits"
    [[ $said = *'overwrites a commit'*--log* ]] || die "the refusal does not say what is needed: $said"
fi
LOG_OPTION=()
[ -z "${LOG:-}" ] || LOG_OPTION=(--log "$LOG")
"$BIN" create $PLACE --cache "$WORK/a" "${LOG_OPTION[@]}" --owner 0:0 "${KEY[@]}" >/dev/null
for disk in d1 d2; do
    store_of $disk
    "$BIN" disk init "${STORE[@]}" --size 16GiB --key-out "$WORK/$disk.key" >/dev/null
    "$BIN" disk add $PLACE $disk "127.0.0.1:${PORT_OF[$disk]}" --key "$WORK/$disk.key.add" --cache "$WORK/a" "${KEY[@]}" >/dev/null
    start_disk $disk
done
"$BIN" user add $PLACE root --uid 0 --gid 0 --out "$WORK/root.identity" --cache "$WORK/a" "${KEY[@]}" >/dev/null
start_metadata a
until_ok 30 serves a || die "the first server does not serve"
start_metadata b
until_ok 30 on_standby b || die "the second server is not on standby"

# Writes and syncs until it shall stop. A line for each call that was acknowledged: its file and content, when it began and ended.
cat >"$WORK/writer.py" <<'EOF'
import hashlib, os, random, sys, time
mount, journal, stop, seed = sys.argv[1:5]
random.seed(seed)
top = os.path.join(mount, os.path.basename(journal))
os.makedirs(top, exist_ok=True)
held = open(os.path.join(top, "held"), "ab", buffering=0)
out = open(journal, "a", buffering=1)
number = 0
def done(began, *words):
    print(began, time.monotonic(), *words, file=out)
while not os.path.exists(stop):
    began = time.monotonic()
    try:
        number += 1
        kind = random.randrange(4)
        data = random.randbytes(random.choice([10, 4096, 20000, 200000]))
        name = os.path.join(top, f"file{number}")
        if kind == 3:
            held.write(data[:64].ljust(64, b"."))
            os.fsync(held.fileno())
            done(began, "held", hashlib.sha256(data[:64].ljust(64, b".")).hexdigest())
            continue
        with open(name + ".new" if kind == 2 else name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if kind == 2:
            os.rename(name + ".new", name)
        with open(name, "rb") as file:
            if file.read() != data:
                done(began, "DIFFERENT", name)
        done(began, f"file{number}", hashlib.sha256(data).hexdigest())
    except OSError as error:
        done(began, "ERROR", error)
        time.sleep(0.1)
EOF
# Whether all that a journal acknowledges is below a mount.
cat >"$WORK/judge.py" <<'EOF'
import hashlib, os, sys
mount, journal = sys.argv[1:3]
top = os.path.join(mount, os.path.basename(journal))
wrong, checked, held = [], 0, []
for line in open(journal):
    _, _, name, value = line.split(" ", 3)
    value = value.strip()
    if name in ("ERROR", "DIFFERENT"):
        wrong.append(line.strip())
    elif name == "held":
        held.append(value)
    else:
        checked += 1
        try:
            if hashlib.sha256(open(os.path.join(top, name), "rb").read()).hexdigest() != value:
                wrong.append(f"{name} has other content")
        except OSError as error:
            wrong.append(f"{name}: {error}")
data = open(os.path.join(top, "held"), "rb").read()
there = [hashlib.sha256(data[at:at + 64]).hexdigest() for at in range(0, len(data), 64)]
missing = [value for value in held if value not in there]
wrong += [f"the open file lacks {len(missing)} of {len(held)} records"] if missing else []
print(f"{checked} files, {len(held)} records of the open file, {len(wrong)} wrong")
for line in wrong[:10]:
    print(" ", line)
sys.exit(bool(wrong))
EOF
# Holds locks of a file and writes to it, until it shall stop; then releases them.
cat >"$WORK/holder.py" <<'HOLDER'
import fcntl, os, sys, time
path, stop = sys.argv[1:3]
file = open(path, "ab", buffering=0)
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.lockf(file, fcntl.LOCK_EX, 10)
open(stop + ".held", "w").close()
while not os.path.exists(stop):
    file.write(b".")
    os.fsync(file.fileno())
    time.sleep(0.1)
fcntl.flock(file, fcntl.LOCK_UN)
fcntl.lockf(file, fcntl.LOCK_UN)
HOLDER
# Takes the same locks without waiting; ends with 0 if it gets both, 1 if none.
cat >"$WORK/rival.py" <<'RIVAL'
import fcntl, sys
file = open(sys.argv[1], "ab", buffering=0)
taken = 0
for lock in (lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)):
    try:
        lock()
        taken += 1
    except BlockingIOError:
        pass
sys.exit({0: 1, 2: 0}.get(taken, f"{taken} of two locks"))
RIVAL
# How long the longest call took from a moment on, once each client has done one that began after now: the longest of all.
cat >"$WORK/continued.py" <<'EOF'
import sys, time
moment, journals = float(sys.argv[1]), sys.argv[2:]
now = time.monotonic()
longest = 0
for journal in journals:
    end = now + 60
    while True:
        lines = [line.split(" ", 3)[:2] for line in open(journal) if line.endswith("\n")]
        calls = [(float(began), float(done)) for began, done in lines]
        if any(began >= now for began, _ in calls):
            break
        if time.monotonic() > end:
            sys.exit("calls do not go on")
        time.sleep(0.05)
    longest = max(longest, max(done - max(began, moment) for began, done in calls if done >= moment))
print(f"{longest:.2f}")
EOF
WRITERS=() JOURNALS=()
for client in "${CLIENT[@]}"; do
    mkdir "$WORK/$client"
    mount_client $client
    touch "$WORK/$client.journal"
    JOURNALS+=("$WORK/$client.journal")
    python3 "$WORK/writer.py" "$WORK/$client" "$WORK/$client.journal" "$WORK/stop" "$SEED$client" >>"$WORK/writer.log" 2>&1 &
    WRITERS+=($!)
done
have_begun() {
    local journal
    for journal in "${JOURNALS[@]}"; do
        [ -s "$journal" ] || return 1
    done
}
until_ok 30 have_begun || die "the writers do not begin"
grep -q '127.0.0.1:.*,127.0.0.1:' /proc/mounts || die "the mount's source does not name both servers"

python3 "$WORK/holder.py" "$WORK/${CLIENT[0]}/locked" "$WORK/stop" 2>>"$WORK/holder.log" &
HOLDER=$!
until_ok 30 test -e "$WORK/stop.held" || die "the locks are not to be had"

settled || die "the two servers have not settled"
for round in $(seq "$ROUNDS"); do
    kind=${KIND:-${KINDS[$((round % ${#KINDS[@]}))]}}
    victim=$LEADER
    sleep "0.$((RANDOM % 900 + 100))"
    began=$(now)
    case $kind in
    kill) kill -9 "${PID[$LEADER]}" ;;
    stop) kill -STOP "${PID[$LEADER]}" ;;
    step-down) "$BIN" metadata step-down $PLACE --cache "$WORK/$LEADER" >/dev/null ;;
    disk)
        victim=d$((RANDOM % 2 + 1))
        kill -9 "${PID[$victim]}"
        wait "${PID[$victim]}" 2>/dev/null || true
        start_disk $victim
        ;;
    node)
        lose_node
        victim=$LOST
        ;;
    store)
        lose_store
        victim=$LOST_STORE
        ;;
    esac
    [[ $kind = disk || $kind = node || $kind = store ]] || until_ok 20 serves $OTHER || die "round $round, $kind: the standby does not serve"
    took=$(python3 "$WORK/continued.py" "$began" "${JOURNALS[@]}") || die "round $round, $kind: calls do not go on"
    rival=0
    python3 "$WORK/rival.py" "$WORK/${CLIENT[1]}/locked" 2>>"$WORK/holder.log" || rival=$?
    [ $rival -eq 1 ] && kill -0 $HOLDER || die "round $round, $kind: the locks were lost: $(cat "$WORK/holder.log")"
    case $kind in
    kill)
        wait "${PID[$LEADER]}" 2>/dev/null || true
        start_metadata $LEADER
        ;;
    stop) kill -CONT "${PID[$LEADER]}" ;;
    node) restore_node ;;
    store) restore_store ;;
    esac
    until_ok 30 settled || die "round $round, $kind: not one serves and the other waits: $(status_of a) $(status_of b)"
    say "round $round: $kind of $victim, the longest call took $took s"
    echo "$kind $took" >>"$WORK/times"
done

touch "$WORK/stop"
wait "${WRITERS[@]}"
WRITERS=()
FAILED=0
wait $HOLDER || { say "the holder of the locks failed: $(cat "$WORK/holder.log")"; FAILED=1; }
HOLDER=
python3 "$WORK/rival.py" "$WORK/${CLIENT[1]}/locked" || { say "released locks are not free"; FAILED=1; }
for journal in "${CLIENT[@]}"; do
    for client in "${CLIENT[@]}"; do
        found=$(python3 "$WORK/judge.py" "$WORK/$client" "$WORK/$journal.journal") || FAILED=1
        say "$journal's files through $client: $found"
    done
done
for client in "${CLIENT[@]}"; do
    "$BIN" umount "$WORK/$client"
done
for server in a b; do
    kill -TERM "${PID[$server]}"
    wait "${PID[$server]}" || { say "server $server does not end well"; FAILED=1; }
done
start_metadata b
until_ok 30 serves b || die "after the end of both, none serves"
mount_client "${CLIENT[0]}"
for journal in "${CLIENT[@]}"; do
    found=$(python3 "$WORK/judge.py" "$WORK/${CLIENT[0]}" "$WORK/$journal.journal") || FAILED=1
    say "$journal's files after a restart: $found"
done
for kind in "${KINDS[@]}" .; do
    { grep "^$kind" "$WORK/times" || true; } | cut -d' ' -f2 | sort -n | awk -v kind="${kind/./all}" '
        { t[NR] = $1 }
        END { if (NR) printf "%s: %d rounds, longest call %s s (median), %s s (99 of 100), %s s (worst)\n", kind, NR, t[int((NR + 1) / 2)], t[int(NR * 0.99 + 0.999)], t[NR] }'
done
# Of 99 of 100 rounds.
took=$(cut -d' ' -f2 "$WORK/times" | sort -n | awk '{ t[NR] = $1 } END { print t[int(NR * 0.99 + 0.999)] }')
awk -v took="$took" -v most="${LONGEST:-1000}" 'BEGIN { exit !(took <= most) }' || { say "calls took longer than $LONGEST s"; FAILED=1; }
if [ $FAILED -eq 0 ]; then say "$ROUNDS passed, 0 failed"; else say "0 passed, 1 failed"; fi
[ $FAILED -eq 0 ]
