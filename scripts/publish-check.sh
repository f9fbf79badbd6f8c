#!/usr/bin/env bash
# Does everything of `cargo publish` but the upload, for all crates in the order of their dependencies. What is packaged is not compiled
# again: `make test` does that. Needs crates.io, or a mirror of it, for the versions of dependencies.
#
#   scripts/publish-check.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# A package without a description is refused only at the upload.
cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
bad = [p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] != [] and not (p["description"] and p["license"])]
sys.exit(f"error: no description or licence: {bad}" if bad else 0)'

LOG=$(mktemp)
trap 'rm -f "$LOG"' EXIT
cargo publish --workspace --dry-run --no-verify --locked --allow-dirty >"$LOG" 2>&1 || true
count=$(grep -c 'aborting upload due to dry run' "$LOG" || true)
if grep -q '^error' "$LOG" || [ "$count" -eq 0 ]; then
    cat "$LOG"
    die "the crates cannot be published: see above"
fi
say "$count crates can be published"
