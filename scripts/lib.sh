# shellcheck shell=bash
# What every script here shares: where the project is, where cargo is, how to speak and how to become root.
# Sourced, never run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ROOT
export HOME="${HOME:-/root}"
export PATH="$HOME/.cargo/bin:$PATH"
TARGET_DIR="${CARGO_TARGET_DIR:-$ROOT/target}"
# The tests written in Rust look for their outside tools here.
TOOLS="$ROOT/target/tools"

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# For demonstrations. title WORDS...; show ARGUMENTS...: runs $BIN with them, and prints that without the path of $WORK.
title() { printf '\n== %s\n' "$*"; }
show() {
    printf '$ strongroom %s\n' "${*//$WORK\//}"
    "$BIN" "$@"
}

# For measurements. timed WORK STORE COMMAND...: when it began and ended is a line of $WORK/times, which ratios.py reads.
timed() {
    local work=$1 store=$2 began=$EPOCHREALTIME
    shift 2
    "$@"
    printf '%s %s %s %s\n' "$work" "$store" "$began" "$EPOCHREALTIME" >>"$WORK/times"
}

# Runs a command as root: directly, or by sudo; says what to run by hand where neither is possible.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "this needs root, and there is no sudo. As root, run: $*"
    fi
}

# Installs those of the packages that are not there yet.
install_packages() {
    local missing=() package
    if ! have dpkg-query; then
        warn "this is no Debian: install what corresponds to: $*"
        return
    fi
    for package in "$@"; do
        if ! dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
            missing+=("$package")
        fi
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        die "these packages are missing, and there is no sudo. As root, run: apt-get install ${missing[*]}"
    fi
    say "Installing: ${missing[*]}"
    # A fresh machine may have no package lists, an old one stale ones: try, then fetch lists and try again.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    }
}

# cargo_tool NAME VERSION [OPTION...]: into $TOOLS/bin, unless that version is there. Options: of cargo install.
cargo_tool() {
    if grep -qs "^\"$1 $2 " "$TOOLS/.crates.toml" && [ -x "$TOOLS/bin/$1" ]; then
        return
    fi
    say "Building $1 $2"
    # Its own target directory: it would otherwise wait for, and be waited for by, every build of the project. What it does is bound by
    # the file systems under it: little optimisation is enough.
    CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$TOOLS/build" cargo install --debug --quiet --locked --root "$TOOLS" "$1" --version "$2" --force "${@:3}"
}

# wait_for_port PORT: until something listens at that port of loopback, at most 20 seconds.
wait_for_port() {
    local _
    for _ in $(seq 400); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    return 1
}
