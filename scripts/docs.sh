#!/usr/bin/env bash
# Builds the book (target/book, with search) and the API documentation (target/doc), every warning an error, and checks all links.
#
#   scripts/docs.sh [book] [api]      default: both
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

MDBOOK_VERSION=0.4.52
PARTS=("$@")
[ ${#PARTS[@]} -gt 0 ] || PARTS=(book api)
for part in "${PARTS[@]}"; do
    case "$part" in
    book)
        scripts/links.py
        scripts/chart.py --check
        cargo_tool mdbook "$MDBOOK_VERSION"
        scripts/book.py "$TARGET_DIR/book-source"
        "$TOOLS/bin/mdbook" build "$TARGET_DIR/book-source" 2>&1 | tee "$TARGET_DIR/book.log"
        if grep -qE '\[(WARN|ERROR)\]' "$TARGET_DIR/book.log"; then
            die "mdbook warns: see above"
        fi
        scripts/links.py "$TARGET_DIR/book"
        say "The book: $TARGET_DIR/book/index.html"
        ;;
    api)
        RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps --locked --exclude strongroom-fuser
        say "The API: $TARGET_DIR/doc"
        ;;
    *) die "there is no part '$part': there are book and api" ;;
    esac
done
