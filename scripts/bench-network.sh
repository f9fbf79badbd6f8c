#!/usr/bin/env bash
# Measures shared storage on this machine, over loopback: the sub-operations of small files in all three set-ups, and the throughput
# of whole files with some clients and some disks, and single requests to a disk with what protects them. Leaves
# benches/results/small-files-shared.json, network/throughput.json, network/requests.txt and network.md: `make performance` shows them.
#
#   scripts/bench-network.sh BINARY [small-files] [throughput] [requests]      default: all
#   BENCH_DIR=DIR                     where the disks' files are (default: the target directory)
#   SECONDS_EACH=3                    of each measurement of throughput
#   CLIENTS="1 2 6" DISKS="1 2 4" SIZES="4096 65536 1048576 4194304" PROTECTIONS="open secure private"
#
# All processes share this machine's processors: a ratio in one run says more than a number. Run it as root.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
shift || true
[ $# -gt 0 ] || set -- small-files throughput requests
LOAD=${LOAD:-$TARGET_DIR/release/examples/files}
RESULTS=$ROOT/benches/results
SECONDS_EACH=${SECONDS_EACH:-3}
CLIENTS=${CLIENTS:-1 2 6}
DISKS=${DISKS:-1 2 4}
SIZES=${SIZES:-4096 65536 1048576 4194304}
PROTECTIONS=${PROTECTIONS:-open secure private}
export LC_ALL=C

mkdir -p "${BENCH_DIR:-$TARGET_DIR}" "$RESULTS/network"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-network.XXXXXX")
export XDG_STATE_HOME=$WORK/state
mkdir "$WORK/bench"
PIDS=()
PORT=$((20000 + $$ % 12000))

end_all() {
    local mnt pid
    for mnt in "$WORK"/servers/*/mnt*; do
        if mountpoint -q "$mnt" 2>/dev/null; then
            "$BIN" umount "$mnt" >/dev/null 2>&1 || umount -l "$mnt" 2>/dev/null || true
        fi
    done
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    PIDS=()
}
cleanup() {
    local status=$?
    end_all
    [ "$status" -eq 0 ] || tail -n 20 "$WORK"/servers/*/*.log >&2 2>/dev/null || true
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# await PORT PATH: until a server answers there.
await() {
    local tries
    for tries in {1..300}; do
        curl --silent --fail --max-time 5 "http://127.0.0.1:$1/$2" >/dev/null && return
        sleep 0.1
    done
    die "nothing answers at port $1 ($tries tries)"
}

# cluster NAME PROTECTION DISKS: in $WORK/servers/NAME; leaves the server's address in SERVER.
cluster() {
    local dir=$WORK/servers/$1 protection=$2 disk address
    mkdir -p "$dir"
    (umask 077 && head -c 24 /dev/urandom | base64 >"$dir/pass")
    "$BIN" --quiet create "$dir/room" --passphrase-file "$dir/pass" --kdf-memory 8 --kdf-passes 1
    for ((disk = 1; disk <= $3; disk++)); do
        PORT=$((PORT + 2))
        address=127.0.0.1:$PORT
        "$BIN" disk init --store "$dir/disk$disk.store" --size 8GiB --key-out "$dir/disk$disk.key" >/dev/null
        "$BIN" disk add "$dir/room" "disk$disk" "$address" --key "$dir/disk$disk.key.add" --protection "$protection" \
            --passphrase-file "$dir/pass" >/dev/null
        "$BIN" --quiet disk serve --store "$dir/disk$disk.store" --key "$dir/disk$disk.key" --listen "$address" \
            --protection "$protection" --health $((PORT + 1)) >>"$dir/disk$disk.log" 2>&1 &
        PIDS+=($!)
        await $((PORT + 1)) healthz
    done
    for user in root:0 ada:1001 bob:1002; do
        "$BIN" --quiet user add "$dir/room" "${user%:*}" --uid "${user#*:}" --gid "${user#*:}" --out "$dir/${user%:*}.identity" \
            --passphrase-file "$dir/pass"
    done
    PORT=$((PORT + 2))
    SERVER=127.0.0.1:$PORT
    "$BIN" --quiet metadata serve --room "$dir/room" --listen "$SERVER" --passphrase-file "$dir/pass" --health $((PORT + 1)) \
        >>"$dir/server.log" 2>&1 &
    PIDS+=($!)
    await $((PORT + 1)) readyz
    mkdir "$dir/mnt0"
    "$BIN" mount "strongroom://$SERVER/" "$dir/mnt0" --identity "$dir/root.identity"
    chmod 1777 "$dir/mnt0"
    "$BIN" umount "$dir/mnt0"
}

small_files() {
    local protection shared=()
    for protection in $PROTECTIONS; do
        cluster "$protection" "$protection" 1
        shared+=(--shared "$protection,$SERVER,$WORK/servers/$protection/ada.identity,$WORK/servers/$protection/bob.identity")
    done
    say "strongroom bench small-files, shared: $PROTECTIONS"
    "$BIN" --json bench small-files "$WORK/bench" --disks "$WORK/servers" "${shared[@]}" --seed 1 >"$WORK/result.json"
    sed "s|$WORK|.|g" "$WORK/result.json" >"$RESULTS/small-files-shared.json"
    end_all
}

# one WHAT SIZE CLIENTS DIR: MiB/s of all clients together, and the slowest file of any, milliseconds.
one() {
    local what=$1 size=$2 clients=$3 dir=$4 client count from
    # As many files as make 32 MiB, 16 at least and 500 at most for each client.
    count=$((33554432 / size))
    count=$((count < 16 ? 16 : count > 500 ? 500 : count))
    from=$(awk -v now="$EPOCHREALTIME" 'BEGIN { printf "%.3f", now + 0.5 }')
    local loads=()
    for ((client = 1; client <= clients; client++)); do
        mkdir -p "$dir/mnt$client/size$size.$client"
        "$LOAD" "$what" "$dir/mnt$client/size$size.$client" "$size" "$count" "$from" "$SECONDS_EACH" >"$WORK/load$client" &
        loads+=($!)
    done
    for client in "${loads[@]}"; do wait "$client"; done
    cat $(for ((client = 1; client <= clients; client++)); do echo "$WORK/load$client"; done) | tr -d '{},"' |
        awk '{ rate += $4 / $6; if ($8 > slow) slow = $8; files += $2 } END { printf "%.1f %.1f %d", rate / 1048576, slow, files }'
}

throughput() {
    [ -x "$LOAD" ] || (cd "$ROOT" && cargo build --release --locked -p strongroom-bench --example files)
    local protection disks clients client size what figures rows=() dir
    printf '%-8s %5s %7s %9s %6s %10s %12s\n' protection disks clients "file KiB" "" MiB/s "slowest, ms"
    for protection in $PROTECTIONS; do
        for disks in $DISKS; do
            dir=$WORK/servers/$protection$disks
            cluster "$protection$disks" "$protection" "$disks"
            for clients in $CLIENTS; do
                # 2 and 4 disks are of interest with the most clients, in the usual set-up.
                if [ "$disks" -ne 1 ] && { [ "$protection" != secure ] || [ "$clients" != "${CLIENTS##* }" ]; }; then continue; fi
                for ((client = 1; client <= clients; client++)); do
                    mountpoint -q "$dir/mnt$client" 2>/dev/null && continue
                    mkdir -p "$dir/mnt$client"
                    "$BIN" mount "strongroom://$SERVER/" "$dir/mnt$client" --identity "$dir/ada.identity"
                done
                for size in $SIZES; do
                    for what in write read; do
                        read -r rate slowest files < <(one "$what" "$size" "$clients" "$dir" && echo)
                        figures="\"protection\": \"$protection\", \"disks\": $disks, \"clients\": $clients, \"file_bytes\": $size"
                        rows+=("  {$figures, \"what\": \"$what\", \"mib_per_s\": $rate, \"files\": $files, \"slowest_ms\": $slowest}")
                        printf '%-8s %5s %7s %9s %6s %10s %12s\n' "$protection" "$disks" "$clients" $((size / 1024)) "$what" "$rate" "$slowest"
                    done
                done
            done
            end_all
            rm -rf "$dir"
        done
    done
    {
        printf '{"cpus": %s, "load_before": "%s", "seconds_each": %s, "rows": [\n' "$(nproc)" "$LOAD_BEFORE" "$SECONDS_EACH"
        printf '%s\n' "${rows[@]}" | sed '$!s/$/,/'
        printf ']}\n'
    } >"$RESULTS/network/throughput.json"
}

requests() {
    local load=$TARGET_DIR/release/examples/netdisk-load store=$WORK/requests.store
    [ -x "$load" ] || (cd "$ROOT" && cargo build --release --locked -p strongroom-netdisk --example netdisk-load)
    {
        echo "In the page cache:"
        "$load" "$store" 8 15 0.4
        echo
        # What is in memory only cannot be dropped from there.
        if [ "$(stat -f -c %T "$WORK")" = tmpfs ]; then
            echo "Not measured with an empty page cache: the disk's file is on a tmpfs."
        else
            echo "Dropped from the page cache before each turn:"
            "$load" "$store" 16 7 0.3 cold
        fi
    } 2>&1 | tee "$RESULTS/network/requests.txt"
    rm -f "$store"
}

# The tables of docs/performance.md.
tables() {
    python3 - "$RESULTS/network" <<'EOF' >"$RESULTS/network.md"
import json, pathlib, sys

results = pathlib.Path(sys.argv[1])
print("## Shared storage over loopback\n")
file = results / "throughput.json"
if file.exists():
    of = json.loads(file.read_text())
    rates = {
        (r["protection"], r["disks"], r["clients"], r["file_bytes"], r["what"]): r["mib_per_s"] for r in of["rows"]
    }
    sizes = sorted({key[3] for key in rates})

    def table(title, kinds):
        names = [f"{size >> 10} KiB" for size in sizes]
        print(f"{title}, MiB/s: write / read of whole files, fsync included, closed and opened each time\n")
        print("| | " + " | ".join(names) + " |\n|---" + "|---:" * len(sizes) + "|")
        for name, kind in kinds:
            rate = lambda size, what: rates.get((*kind, size, what), 0)
            cells = [" / ".join(f"{rate(size, what):.3g}" for what in ("write", "read")) for size in sizes]
            print(f"| {name} | " + " | ".join(cells) + " |")
        print()

    print(
        f"`scripts/bench-network.sh`: {of['cpus']} processors for servers and clients together, {of['seconds_each']} s each, "
        f"load before {of['load_before']}.\n"
    )
    one = sorted({key[:3] for key in rates if key[1] == 1}, key=lambda k: (k[2], ["open", "secure", "private"].index(k[0])))
    table("One disk", [(f"{p}, {c} client{'s' if c > 1 else ''}", (p, d, c)) for p, d, c in one])
    most = max(key[2] for key in rates)
    more = sorted({key[:3] for key in rates if key[2] == most and key[0] == "secure"}, key=lambda k: k[1])
    table(f"{most} clients, secure", [(f"{d} disk{'s' if d > 1 else ''}", (p, d, c)) for p, d, c in more])
file = results / "requests.txt"
if file.exists():
    print("Single requests to a disk (`netdisk-load`; us: processor time of client and server):\n")
    print("```\n" + file.read_text().strip() + "\n```")
EOF
}

LOAD_BEFORE=$(cut -d ' ' -f 1-3 /proc/loadavg)
say "Processors: $(nproc); load before: $LOAD_BEFORE"
for what in "$@"; do
    case $what in
    small-files) small_files ;;
    throughput) throughput ;;
    requests) requests ;;
    *) die "there is no measurement '$what': there are small-files, throughput, requests" ;;
    esac
done
tables
