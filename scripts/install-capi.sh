#!/usr/bin/env bash
# Installs the C library that `make build-capi` built: strongroom.h, libstrongroom as shared and static library, and its file for
# pkg-config; libsqlfs's names the same way, as libsqlfs, with the header in a directory of its own.
#
#   scripts/install-capi.sh BUILT [DESTDIR [PREFIX]]      BUILT: the directory with libstrongroom.so; default: /usr/local
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BUILT=${1:?the directory of the built libraries}
DESTDIR=${2:-}
PREFIX=${3:-/usr/local}
[ -f "$BUILT/libstrongroom.so" ] || die "there is no $BUILT/libstrongroom.so: run make build-capi"

VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version *= *"\(.*\)".*/\1/p' "$ROOT/Cargo.toml")
# What a program linked statically needs besides; rustc says it with --print native-static-libs.
PRIVATE="-lcrypto -lpthread -ldl -lm"

# shared NAME SONAME-NUMBER: the library under its full version, and the names by which programs are run and linked.
shared() {
    local dir=$DESTDIR$PREFIX/lib
    install -D -m 0755 "$BUILT/lib$1.so" "$dir/lib$1.so.$2.$VERSION"
    ln -sfn "lib$1.so.$2.$VERSION" "$dir/lib$1.so.$2"
    ln -sfn "lib$1.so.$2" "$dir/lib$1.so"
}

# described NAME: the file for pkg-config.
described() {
    mkdir -p "$DESTDIR$PREFIX/lib/pkgconfig"
    sed -e "s|@PREFIX@|$PREFIX|" -e "s|@VERSION@|$VERSION|" -e "s|@PRIVATE@|$PRIVATE|" "$ROOT/packaging/$1.pc.in" \
        >"$DESTDIR$PREFIX/lib/pkgconfig/$1.pc"
}

shared strongroom 0
install -D -m 0644 "$ROOT/crates/capi/include/strongroom.h" "$DESTDIR$PREFIX/include/strongroom.h"
if [ -f "$BUILT/libstrongroom.a" ]; then
    install -D -m 0644 "$BUILT/libstrongroom.a" "$DESTDIR$PREFIX/lib/libstrongroom.a"
fi
described strongroom

if [ -f "$BUILT/libsqlfs.so" ]; then
    shared sqlfs 1
    install -D -m 0644 "$ROOT/crates/sqlfs/include/sqlfs.h" "$DESTDIR$PREFIX/include/strongroom-sqlfs/sqlfs.h"
    described sqlfs
fi
case $DESTDIR$PREFIX in
/usr | /usr/local) ldconfig 2>/dev/null || warn "run ldconfig as root, so that programs find the library" ;;
esac
say "Installed libstrongroom $VERSION under $DESTDIR$PREFIX"
