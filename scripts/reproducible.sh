#!/usr/bin/env bash
# Builds the packages of the last commit twice, in two directories, and compares their digests. Takes as long as two cold release builds.
# Those of the first build are left in target/packages, where scripts/test-packages.sh tries them.
#
#   scripts/reproducible.sh [deb] [tarball] [python] [java]     default: deb tarball
#
# The same are expected where compiler, libraries and tools are the same: it is the same commit on the same kind of machine that anybody
# can build again, not any machine.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

KINDS=("$@")
[ ${#KINDS[@]} -gt 0 ] || KINDS=(deb tarball)
COMMIT=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$COMMIT")
export SOURCE_DATE_EPOCH
unset CARGO_TARGET_DIR
WORK=$TARGET_DIR/reproducible
rm -rf "$WORK"
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$TOOLS"

# Names of different length: a path that gets into a program shows.
for place in one second/directory; do
    mkdir -p "$WORK/$place/target"
    git archive "$COMMIT" | tar -C "$WORK/$place" -x
    ln -s "$TOOLS" "$WORK/$place/target/tools"
    say "Building in $place"
    (cd "$WORK/$place" && scripts/packages.sh "${KINDS[@]}")
    mv "$WORK/$place/target/packages" "$WORK/packages-${place%%/*}"
    rm -rf "${WORK:?}/${place%%/*}"
done

say "" "SHA-256 of what both builds gave:"
sums() { (cd "$WORK/packages-$1" && sort -k 2 SHA256SUMS); }
if ! diff <(sums one) <(sums second); then
    # Kept, to find out why.
    trap - EXIT
    die "the two builds differ: compare $WORK/packages-one with $WORK/packages-second"
fi
sums one
rm -rf "$TARGET_DIR/packages"
mv "$WORK/packages-one" "$TARGET_DIR/packages"
