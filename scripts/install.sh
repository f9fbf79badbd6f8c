#!/usr/bin/env bash
# Installs what `make build` built, stripped: the command, its benchmark, its program for buckets, the helper by which mount(8) and fstab find it, manual
# pages, completions, and the systemd units of the servers (nothing is enabled).
#
#   scripts/install.sh BINARY [DESTDIR [PREFIX]]      default: the running system, /usr/local
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BIN=${1:?the binary to install}
# Built together with it.
BESIDE=$(dirname "$BIN")
DESTDIR=${2:-}
PREFIX=${3:-/usr/local}
SHARE=$DESTDIR$PREFIX/share
for program in "$BIN" "$BESIDE"/strongroom-bench "$BESIDE"/strongroom-bucket; do
    [ -x "$program" ] || die "there is no $program: run make build"
    install -D -m 0755 --strip "$program" "$DESTDIR$PREFIX/bin/${program##*/}"
done

# mount(8) looks for helpers in /sbin only, whatever the prefix.
if [ -n "$DESTDIR" ] || [ -w /sbin ]; then
    mkdir -p "$DESTDIR/sbin"
    ln -sfn "$PREFIX/bin/strongroom" "$DESTDIR/sbin/mount.strongroom"
else
    warn "/sbin cannot be written to: without mount.strongroom there, fstab cannot name rooms"
fi

mkdir -p "$SHARE/man/man1" "$SHARE/bash-completion/completions" "$SHARE/zsh/site-functions" \
    "$SHARE/fish/vendor_completions.d"
"$BIN" man "$SHARE/man/man1"
"$BIN" completions bash >"$SHARE/bash-completion/completions/strongroom"
"$BIN" completions zsh >"$SHARE/zsh/site-functions/_strongroom"
"$BIN" completions fish >"$SHARE/fish/vendor_completions.d/strongroom.fish"
chmod -R a+rX "$SHARE/man/man1"
UNITS=$DESTDIR$PREFIX/lib/systemd/system
mkdir -p "$UNITS"
for unit in "$ROOT"/packaging/systemd/*; do
    sed "s|/usr/bin/strongroom|$PREFIX/bin/strongroom|" "$unit" >"$UNITS/${unit##*/}"
done
say "Installed strongroom under $DESTDIR$PREFIX"
