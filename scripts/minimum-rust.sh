#!/usr/bin/env bash
# Checks that the workspace compiles with the oldest Rust that Cargo.toml names, rust-version. Rustup fetches it if needed.
#
#   scripts/minimum-rust.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

VERSION=$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' Cargo.toml | head -n 1)
# Every crate must name the same one.
for manifest in crates/*/Cargo.toml bindings/python/Cargo.toml bindings/java/native/Cargo.toml; do
    grep -q '^rust-version.workspace = true' "$manifest" || die "$manifest: write rust-version.workspace = true"
done
if [ "$(rustc --version | cut -d ' ' -f 2 | cut -d . -f 1,2)" = "$VERSION" ]; then
    say "This Rust is the oldest, $VERSION"
    exec cargo check --workspace --all-targets --locked
fi
have rustup || die "rustup is not installed: it would fetch Rust $VERSION"
rustup toolchain install "$VERSION" --profile minimal >/dev/null
# A target directory of its own: the usual one would be rebuilt each time.
CARGO_TARGET_DIR=$TARGET_DIR/rust-$VERSION exec cargo "+$VERSION" check --workspace --all-targets --locked
