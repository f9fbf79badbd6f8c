#!/usr/bin/env bash
# How fast a room is from each language: runs every language's `ladder` in turns, N rounds, and writes medians and their ratios to Rust's
# into benches/results/bindings.md. What is measured: crates/embed/examples/ladder.rs.
#
#   scripts/bench-bindings.sh [ROUNDS [MIB]]      rounds: 5; MiB copied in: 1024
#
# LANGUAGES="rust c" picks some. PROFILE=dev, with few MiB and CALLS, only looks whether all of it runs. BENCH_DIR: where rooms are created
# (default: a temporary directory below target).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ROUNDS=${1:-5}
MIB=${2:-1024}
CALLS=${CALLS:-200000}
PROFILE=${PROFILE:-release}
# Where cargo puts what it builds with that profile.
BUILT=$TARGET_DIR/${PROFILE/#dev/debug}
OUT=${OUT:-$ROOT/benches/results/bindings.md}

# For each language two functions: build_LANGUAGE, and run_LANGUAGE DIRECTORY SOURCE CALLS, which prints one line of JSON.
ALL=(rust c java_nio java_iocipher python)

build_rust() { cargo build --quiet --profile "$PROFILE" --locked -p strongroom-embed --example ladder; }
run_rust() { "$BUILT/examples/ladder" "$@"; }

build_c() {
    cargo build --quiet --profile "$PROFILE" --locked -p strongroom-capi
    ln -sfn "$BUILT/libstrongroom.so" "$WORK/libstrongroom.so.0"
    cc -std=c11 -O2 -I "$ROOT/crates/capi/include" "$ROOT/crates/capi/examples/ladder.c" -o "$WORK/ladder-c" \
        -L "$WORK" -l:libstrongroom.so.0 -Wl,-rpath,"$WORK"
}
run_c() { "$WORK/ladder-c" "$@"; }

# Both faces of Java: files and channels of java.nio.file, and IOCipher's streams.
build_java_nio() {
    [ ! -d "$WORK/java" ] || return 0
    mkdir "$WORK/java"
    cp -R "$ROOT/bindings/java/src/main/resources/." "$WORK/java"
    find "$ROOT/bindings/java/src/main/java" -name '*.java' -print0 |
        xargs -0 javac -nowarn -d "$WORK/java" "$ROOT/bindings/java/examples/Ladder.java"
    "$ROOT/bindings/java/native/build.sh" release "$WORK/java/org/strongroom/native"
}
build_java_iocipher() { build_java_nio; }
run_java_nio() { java -cp "$WORK/java" Ladder nio "$@"; }
run_java_iocipher() { java -cp "$WORK/java" Ladder iocipher "$@"; }

build_python() { PROFILE="$PROFILE" "$ROOT/scripts/test-python.sh" --collect-only >/dev/null; }
run_python() { "$TARGET_DIR/python/venv/bin/python" "$ROOT/bindings/python/examples/ladder.py" "$@"; }

read -r -a LANGUAGES <<<"${LANGUAGES:-${ALL[*]}}"
[ -z "${BENCH_DIR:-}" ] || mkdir -p "$BENCH_DIR"
mkdir -p "$TARGET_DIR"
WORK=$(mktemp -d "${BENCH_DIR:-$TARGET_DIR}/bench-bindings.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
export XDG_STATE_HOME=$WORK/state

for language in "${LANGUAGES[@]}"; do
    say "Building $language"
    "build_$language"
done
head -c "$((MIB << 20))" /dev/urandom >"$WORK/source"

for ((round = 1; round <= ROUNDS; round++)); do
    for language in "${LANGUAGES[@]}"; do
        say "Round $round of $ROUNDS: $language"
        "run_$language" "$WORK/room" "$WORK/source" "$CALLS" | tail -n 1 | tee -a "$WORK/all.jsonl"
        rm -rf "$WORK/room"
    done
done

mkdir -p "$(dirname "$OUT")"
python3 - "$WORK/all.jsonl" "$ROUNDS" "$MIB" "$CALLS" >"$OUT" <<'PYTHON'
"""Medians of all rounds, beside Rust's."""
import json, os, statistics, subprocess, sys

path, rounds, mib, calls = sys.argv[1:5]
runs = [json.loads(line) for line in open(path)]
languages = list(dict.fromkeys(run["language"] for run in runs))
sizes = sorted({size for run in runs for size in run["write_MiB_s"]}, key=int, reverse=True)
cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown processor")
commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def median(language, pick):
    found = [pick(run) for run in runs if run["language"] == language and pick(run) is not None]
    return statistics.median(found) if found else None


def row(title, pick, shown, compare):
    cells = [title]
    base = median("rust", pick)
    for language in languages:
        value = median(language, pick)
        if value is None:
            cells.append("–")
            continue
        text = shown(value)
        if base and language != "rust":
            text += f" ({compare(value, base)})"
        cells.append(text)
    print("| " + " | ".join(cells) + " |")


ratio = lambda value, base: f"{value / base:.2f}"
more = lambda value, base: f"{value - base:+.0f}"
print("## Rooms from other languages\n")
print(f"Medians of {rounds} rounds, in turns, at {commit} on {os.cpu_count()} processors of {cpu}; in brackets: what part of Rust's")
print(f"speed, or how many nanoseconds more than Rust's call. Made by `scripts/bench-bindings.sh {rounds} {mib}`.\n")
print("| | " + " | ".join(languages) + " |")
print("|---" * (len(languages) + 1) + "|")
for size in sizes:
    row(f"2 MiB files by writes of {int(size):,} B, a sync each, MiB/s", lambda run: run["write_MiB_s"].get(size), lambda v: f"{v:,.0f}", ratio)
row(f"{int(mib):,} MiB copied in, MiB/s", lambda run: run.get("copy_MiB_s"), lambda v: f"{v:,.0f}", ratio)
row(f"one of {int(calls):,} reads of 1 byte, ns", lambda run: run.get("call_ns"), lambda v: f"{v:,.0f}", more)
row(f"one of {int(calls):,} stats, ns", lambda run: run.get("stat_ns"), lambda v: f"{v:,.0f}", more)
PYTHON
say "Wrote $OUT"
