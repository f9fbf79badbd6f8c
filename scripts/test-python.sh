#!/usr/bin/env bash
# Installs the Python package into an environment of its own below the target directory, and runs its tests and type checks. Further
# arguments go to pytest. The wheel itself is made by scripts/packages.sh and tried by scripts/test-packages.sh.
#
#   scripts/test-python.sh                              everything
#   scripts/test-python.sh -k fork                      what matches
#   BUILT_LIBRARIES=target/debug scripts/test-python.sh with the native module that is there, instead of one built here
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

if [ -z "${BUILT_LIBRARIES:-}" ]; then
    PROFILE=${PROFILE:-dev}
    say "Building the native module"
    (cd "$ROOT" && CARGO_TARGET_DIR="$TARGET_DIR" cargo build --quiet --profile "$PROFILE" --locked -p strongroom-python)
    BUILT_LIBRARIES=$TARGET_DIR/${PROFILE/#dev/debug}
fi

# What pip would make of a wheel.
SITE=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
rm -rf "$SITE"/strongroom "$SITE"/strongroom-*.dist-info
cp -R "$PACKAGE/python/strongroom" "$SITE/strongroom"
cp "$BUILT_LIBRARIES/lib_strongroom.so" "$SITE/strongroom/_strongroom.abi3.so"
"$VENV/bin/python" - "$PACKAGE/pyproject.toml" "$SITE" <<'PY'
import pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
information = pathlib.Path(sys.argv[2]) / f"{project['name']}-0.dist-info"
information.mkdir()
(information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
with (information / "entry_points.txt").open("w") as points:
    for group, entries in project["entry-points"].items():
        print(f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), sep="\n", file=points)
PY

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
