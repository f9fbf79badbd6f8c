#!/usr/bin/env bash
# Measures serving block devices on this machine: plain images and encrypted volumes, through our server, nbdkit and qemu-nbd, in one
# interleaved run. Leaves benches/results/volumes.json (which `make performance` shows) and every round in
# benches/results/volumes/rounds.json. Takes about fifteen minutes.
#
#   scripts/bench-volumes.sh BINARY
#   SOFT_BIN=BINARY          the same program with AES in software, as scripts/bench-soft.sh makes it: one more server, and without it
#                            one less
#   BENCH_DIR=DIR            where the images are (default: /dev/shm, so that no disk is measured; needs 6 times MIB)
#   MIB=1024 ROUNDS=7 SECONDS_EACH=2
#   ROWS="randread randwrite read write nbdcopy"
#   SERVERS="nbdkit strongroom strongroom-luks2 strongroom-adiantum strongroom-soft nbdkit-luks1 qemu qemu-luks1"
#
# Server and client share this machine's processors, and so does whatever else runs: a ratio within a round says more than a number,
# and processor time more than either.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=$(realpath "${1:-$TARGET_DIR/release/strongroom}")
[ -x "$BIN" ] || die "there is no $BIN: run make build"
SOFT_BIN=${SOFT_BIN:-}
if [ -n "$SOFT_BIN" ]; then
    SOFT_BIN=$(realpath "$SOFT_BIN")
    [ -x "$SOFT_BIN" ] || die "there is no $SOFT_BIN: run scripts/bench-soft.sh"
else
    say "Skipped: AES in software; SOFT_BIN names no program that has it (scripts/bench-soft.sh makes one)"
fi
for program in fio nbdkit nbdcopy qemu-nbd cryptsetup python3; do
    have "$program" || die "there is no $program: run make setup-test"
done
WORK=$(mktemp -d "${BENCH_DIR:-/dev/shm}/bench-volumes.XXXXXX")
cleanup() {
    local status=$?
    rm -rf "$WORK"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
export LC_ALL=C
MIB=${MIB:-1024}
mkdir -p "$ROOT/benches/results/volumes"

(umask 077 && printf 'measured' >"$WORK/pass")
say "Making images of $MIB MiB"
head -c "$((MIB << 20))" /dev/urandom >"$WORK/plain.img"
for kind in luks1 luks2 adiantum; do
    cp "$WORK/plain.img" "$WORK/$kind.img"
    truncate --size "+16M" "$WORK/$kind.img"
    cipher=(--cipher aes-xts-plain64 --key-size 512)
    [ "$kind" != adiantum ] || cipher=(--cipher xchacha12,aes-adiantum-plain64 --key-size 256)
    version=(--type luks2 --sector-size 4096)
    [ "$kind" != luks1 ] || version=(--type luks1)
    # cryptsetup asks the kernel for the cipher of the key slot's material, and not every kernel has Adiantum.
    cryptsetup luksFormat --batch-mode "${version[@]}" "${cipher[@]}" --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
        --key-file "$WORK/pass" "$WORK/$kind.img" 2>"$WORK/cryptsetup.log" && continue
    [ "$kind" = adiantum ] || die "cryptsetup makes no $kind: $(cat "$WORK/cryptsetup.log")"
    "$BIN" --quiet volume format --force "${version[@]}" "${cipher[@]}" --kdf pbkdf2 --kdf-iterations 1000 --key-file "$WORK/pass" "$WORK/$kind.img" >/dev/null
done
# An image is open in one server only.
[ -z "$SOFT_BIN" ] || cp "$WORK/luks2.img" "$WORK/soft.img"

BIN=$BIN SOFT_BIN=$SOFT_BIN WORK=$WORK MIB=$MIB RESULTS=$ROOT/benches/results python3 - <<'PYTHON'
import datetime, hashlib, json, os, platform, random, re, statistics, subprocess, time

env = os.environ
work, mib, results = env["WORK"], int(env["MIB"]), env["RESULTS"]
rounds, seconds = int(env.get("ROUNDS", "7")), float(env.get("SECONDS_EACH", "2"))
rows = env.get("ROWS", "randread randwrite read write nbdcopy").split()
names = env.get(
    "SERVERS", "nbdkit strongroom strongroom-luks2 strongroom-adiantum strongroom-soft nbdkit-luks1 qemu qemu-luks1").split()
soft = env["SOFT_BIN"]
if not soft:
    names = [name for name in names if name != "strongroom-soft"]
WORDS = {
    "randread": "random read, 4 KiB, depth 16",
    "randwrite": "random write, 4 KiB, depth 16",
    "read": "sequential read, 1 MiB, depth 4",
    "write": "sequential write, 1 MiB, depth 4",
    "nbdcopy": "nbdcopy, 4 connections",
}
NAMES = {
    "nbdkit": "nbdkit file", "strongroom": "strongroom", "strongroom-luks2": "strongroom, LUKS2",
    "strongroom-adiantum": "strongroom, Adiantum", "strongroom-soft": "strongroom, AES in software", "nbdkit-luks1": "nbdkit, LUKS1",
    "qemu": "qemu-nbd", "qemu-luks1": "qemu-nbd, LUKS1",
}
TICKS = os.sysconf("SC_CLK_TCK")


def command(name, socket):
    image = lambda kind: f"{work}/{kind}.img"
    password = f"{work}/pass"
    if name == "nbdkit":
        return ["nbdkit", "-f", "-U", socket, "file", image("plain")]
    if name == "nbdkit-luks1":
        return ["nbdkit", "-f", "-U", socket, "--filter=luks", "file", image("luks1"), f"passphrase=+{password}"]
    ours = [soft if name == "strongroom-soft" else env["BIN"], "--quiet", "serve", "nbd", "--socket", socket]
    if name == "strongroom":
        return [*ours, "--format", "raw", image("plain")]
    if name == "strongroom-luks2":
        return [*ours, "--key-file", password, image("luks2")]
    if name == "strongroom-adiantum":
        return [*ours, "--key-file", password, image("adiantum")]
    if name == "strongroom-soft":
        return [*ours, "--key-file", password, image("soft")]
    qemu = ["qemu-nbd", "-k", socket, "-t", "-e", "8"]
    if name == "qemu":
        return [*qemu, "-f", "raw", image("plain")]
    if name == "qemu-luks1":
        luks = f"driver=luks,key-secret=s,file.driver=file,file.filename={image('luks1')}"
        return [*qemu, "--object", f"secret,id=s,file={password}", "--image-opts", luks]
    raise SystemExit(f"there is no server {name}")


class Server:
    def __init__(self, name):
        self.name, self.socket = name, f"{work}/{name}.sock"
        self.log = open(f"{work}/{name}.log", "wb")
        self.process = subprocess.Popen(command(name, self.socket), stdout=self.log, stderr=self.log)
        self.uri = f"nbd+unix:///?socket={self.socket}"
        deadline = time.monotonic() + 60
        while subprocess.run(["nbdinfo", "--size", self.uri], capture_output=True).returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"{name} does not serve: " + open(f"{work}/{name}.log").read())
            time.sleep(0.1)

    def cpu_s(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def measure(server, row):
    """MiB a second, and the server's processor time in ms a MiB."""
    before, begun = server.cpu_s(), time.monotonic()
    if row == "nbdcopy":
        subprocess.run(["nbdcopy", "--connections=4", "--threads=4", server.uri, "null:"], check=True)
        moved, took = float(mib), time.monotonic() - begun
    else:
        small = row.startswith("rand")
        said = subprocess.run(
            ["fio", "--name=it", "--ioengine=nbd", f"--uri={server.uri}", f"--rw={row}", "--bs=" + ("4k" if small else "1M"),
             "--iodepth=" + ("16" if small else "4"), f"--size={mib}M", "--time_based", f"--runtime={seconds}", "--norandommap",
             f"--randseed={random.getrandbits(31)}", "--output-format=json"],
            check=True, capture_output=True, text=True).stdout
        job = json.loads(said[said.index("{"):])["jobs"][0]
        assert job["error"] == 0, job["error"]
        side = job["write" if "write" in row else "read"]
        moved, took = side["io_bytes"] / 2**20, side["runtime"] / 1000
    return moved / took, (server.cpu_s() - before) * 1000 / moved


def spread(values, digits=2):
    values = sorted(values)
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


began = datetime.datetime.now(datetime.timezone.utc)
clock = time.monotonic()
servers = [Server(name) for name in names]
got = {(row, name): [] for row in rows for name in names}
try:
    for turn in range(rounds):
        for row in rows:
            # In another order each time: who comes first is no better off.
            for server in servers[turn % len(servers):] + servers[:turn % len(servers)]:
                got[row, server.name].append(measure(server, row))
            print(f"round {turn + 1}, {WORDS[row]}: " + ", ".join(
                f"{name} {got[row, name][-1][0]:.0f} MiB/s {got[row, name][-1][1]:.2f} ms/MiB" for name in names), flush=True)
finally:
    for server in servers:
        server.stop()


def ratio(row, one, other):
    if one not in names or other not in names:
        return "–"
    return spread([a[0] / b[0] for a, b in zip(got[row, one], got[row, other])])


def table(title, columns, cells):
    return {"title": title, "source": "measured here, none published", "columns": columns,
            "rows": [{"name": WORDS[row], "cells": cells(row)} for row in rows]}


tables = [
    table("Plain images: our server to nbdkit's (goal: 0.9 or more)", ["strongroom / nbdkit file", "strongroom / qemu-nbd"],
          lambda row: [ratio(row, "strongroom", "nbdkit"), ratio(row, "strongroom", "qemu")]),
    table("What is left with encryption: encrypted / plain of the same server (goal: 0.75 or more, at 4 KiB 0.9)",
          ["strongroom, LUKS2", "nbdkit, LUKS1", "qemu-nbd, LUKS1"],
          lambda row: [ratio(row, "strongroom-luks2", "strongroom"), ratio(row, "nbdkit-luks1", "nbdkit"), ratio(row, "qemu-luks1", "qemu")]),
    table("The picture of a processor without AES: LUKS2 / plain of our server (published for such a phone: 0.19 to 0.50)",
          ["AES by instructions", "AES in software", "Adiantum", "Adiantum / AES in software"],
          lambda row: [*(ratio(row, f"strongroom-{kind}", "strongroom") for kind in ["luks2", "soft", "adiantum"]),
                       ratio(row, "strongroom-adiantum", "strongroom-soft")]),
    table("Encrypted volumes: our server to the others'", ["LUKS2 / nbdkit, LUKS1", "LUKS2 / qemu-nbd, LUKS1"],
          lambda row: [ratio(row, "strongroom-luks2", "nbdkit-luks1"), ratio(row, "strongroom-luks2", "qemu-luks1")]),
    table("MiB/s", [NAMES[n] for n in names], lambda row: [spread([v[0] for v in got[row, n]], 0) for n in names]),
    table("Processor time of the server, ms a MiB (goal: less than 1 at 1 MiB)", [NAMES[n] for n in names],
          lambda row: [spread([v[1] for v in got[row, n]]) for n in names]),
]
cpuinfo = open("/proc/cpuinfo").read()
field = lambda name: (re.search(rf"^{name}\s*: (.*)$", cpuinfo, re.M) or [None, ""])[1]
flags = set(field("flags").split())
version = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0]
ours = version(env["BIN"], "--version").split()[-1]
report = {
    "schema": 1, "command": "scripts/bench-volumes.sh",
    "options": [f"MIB={mib}", f"ROUNDS={rounds}", f"SECONDS_EACH={seconds:g}"],
    "began": began.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "took_s": time.monotonic() - clock, "seed": 0, "version": ours,
    "machine": {
        "id": hashlib.sha256(open("/etc/machine-id").read().encode() if os.path.exists("/etc/machine-id") else b"").hexdigest()[:16],
        "kernel": platform.release(), "processor": field("model name"), "processors": os.cpu_count(),
        "features": sorted(flags & {"aes", "vaes", "avx2", "avx512f", "pclmulqdq", "vpclmulqdq", "sha_ni", "ssse3", "sse4_1"}),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "governor": None, "virtual_machine": "hypervisor" in flags,
    },
    "stores": [], "noise": None, "rows": [], "comparisons": [], "parts": [], "tables": tables,
    "notes": [
        "medians of interleaved rounds, in brackets their quartiles; ratios are within a round. Images in memory; the client, fio's nbd engine with one "
        "connection or nbdcopy, runs on the same processors.",
        f"the others: {version('nbdkit', '--version')}; {version('qemu-nbd', '--version')}; LUKS1 because neither opens LUKS2. All ciphers but Adiantum "
        "aes-xts-plain64 with keys of 512 bits; LUKS2 with sectors of 4096 bytes, LUKS1 has 512 only.",
        "Adiantum: xchacha12,aes-adiantum-plain64, 256 bits, sectors of 4096 bytes. " + (
            "AES in software: the same program, built without AES instructions (scripts/bench-soft.sh)." if soft
            else "AES in software was not measured: no program with it was given (SOFT_BIN)."),
        f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.",
    ],
    "interrupted": False,
}
with open(f"{results}/volumes/rounds.json", "w") as file:
    json.dump([{"row": row, "server": name, "mib_s": [round(v[0], 1) for v in values], "cpu_ms_per_mib": [round(v[1], 3) for v in values]}
               for (row, name), values in got.items()], file, indent=1)
with open(f"{results}/volumes.json", "w") as file:
    json.dump(report, file, indent=1, ensure_ascii=False)
for each in tables:
    print("\n" + each["title"])
    for row in each["rows"]:
        print("  " + row["name"] + ": " + "; ".join(f"{c}: {v}" for c, v in zip(each["columns"], row["cells"])))
PYTHON
