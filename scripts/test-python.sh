#!/usr/bin/env bash
# Builds the Python package as a wheel, installs it into an environment of its own below the target directory, and runs its tests and
# type checks. Further arguments go to pytest.
#
#   scripts/test-python.sh            everything
#   scripts/test-python.sh -k fork    what matches
set -euo pipefail
. "$(dirname "$0")/lib.sh"

PACKAGE="$ROOT/bindings/python"
REQUIREMENTS="$PACKAGE/tests/requirements.txt"
HERE="$TARGET_DIR/python"
VENV="$HERE/venv"
PYTHON=${PYTHON:-python3}

have "$PYTHON" || die "there is no $PYTHON: run scripts/setup.sh test"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$PYTHON is older than 3.11, which the package needs: \
name another with PYTHON=python3.12 $0"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || die "$PYTHON cannot make virtual environments: run scripts/setup.sh test \
(Debian has them in the package python3-venv)"

mkdir -p "$HERE"
if ! cmp -s "$REQUIREMENTS" "$VENV/installed.txt"; then
    say "Installing what the Python tests need into $VENV"
    "$PYTHON" -m venv --clear "$VENV"
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$REQUIREMENTS" || die "the packages that \
bindings/python/tests/requirements.txt lists cannot be installed: pip needs the Python package index or a mirror of it \
(pip config set global.index-url ...), or the wheels in a directory (PIP_NO_INDEX=1 PIP_FIND_LINKS=/directory $0)"
    cp "$REQUIREMENTS" "$VENV/installed.txt"
fi

say "Building the wheel"
rm -rf "$HERE/wheels"
LOCKED=()
[ -f "$ROOT/Cargo.lock" ] && LOCKED=(--locked)
(cd "$PACKAGE" && CARGO_TARGET_DIR="$TARGET_DIR" "$VENV/bin/maturin" build --quiet --profile "${PROFILE:-dev}" "${LOCKED[@]}" \
    --interpreter "$VENV/bin/python" --out "$HERE/wheels")
"$VENV/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$HERE"/wheels/*.whl

cd "$PACKAGE"
export PYTHONDONTWRITEBYTECODE=1
status=0
if [ $# -eq 0 ]; then
    say "Checking the Python package's types"
    "$VENV/bin/mypy" --cache-dir "$HERE/mypy" python/strongroom || status=1
fi
say "Testing the Python package"
"$VENV/bin/python" -m pytest -q "$@" || status=1
exit "$status"
