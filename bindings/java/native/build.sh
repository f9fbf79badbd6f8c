#!/usr/bin/env bash
# Builds the native half of the Java library, and puts it where the jar takes it from.
#
#   build.sh dev|release DIRECTORY      DIRECTORY/linux-x86_64/libstrongroom_java.so
#
# With BUILT_LIBRARIES=target/debug the library of an earlier build is taken from there, and nothing is built.
set -euo pipefail

profile=${1:?dev or release}
out=${2:?the directory to put it into}
root=$(cd "$(dirname "$0")/../../.." && pwd)
export PATH="${HOME:-/root}/.cargo/bin:$PATH"

cd "$root"
case "$profile" in
dev) built=debug ;;
release) built=release ;;
*)
    printf "error: the profile is dev or release, not '%s'\n" "$profile" >&2
    exit 1
    ;;
esac
libraries=${BUILT_LIBRARIES:-}
if [ -z "$libraries" ]; then
    cargo build --quiet --locked --profile "$profile" -p strongroom-java
    libraries=${CARGO_TARGET_DIR:-$root/target}/$built
fi

case "$(uname -m)" in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) machine=$(uname -m) ;;
esac
directory="$out/$(uname -s | tr '[:upper:]' '[:lower:]')-$machine"
library=$libraries/libstrongroom_java.so
mkdir -p "$directory"
if [ "$profile" = release ]; then
    # Line tables are for who debugs it here, not for every jar.
    objcopy --strip-debug "$library" "$directory/libstrongroom_java.so" 2>/dev/null || cp "$library" "$directory/"
elif ! cmp -s "$library" "$directory/libstrongroom_java.so"; then
    cp "$library" "$directory/libstrongroom_java.so"
fi
