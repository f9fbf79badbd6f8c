#!/usr/bin/env bash
# Installs each package of target/packages into a clean root of its own and runs it there: creates a room, mounts it, reads it back; the
# programs also with a room in a bucket of an S3 server (versitygw, built where it is missing).
# Needs root, /dev/fuse and a Debian mirror (the one that apt uses). What is not built is skipped, with a line that says so.
#
#   scripts/test-packages.sh [deb] [tarball] [python] [java]     default: all
set -euo pipefail
. "$(dirname "$0")/lib.sh"

KINDS=("$@")
[ ${#KINDS[@]} -gt 0 ] || KINDS=(deb tarball python java)
OUT=$TARGET_DIR/packages
[ "$(id -u)" -eq 0 ] || die "this needs root, to change roots and to mount"
[ -e /dev/fuse ] || die "there is no /dev/fuse"
WORK=$(mktemp -d)
trap 'rm -rf --one-file-system "$WORK"' EXIT

# The commands that each root runs, with the name of a new room.
cat >"$WORK/try.sh" <<'TRY'
set -eu
export HOME=/root PATH=$PATH:/usr/local/bin
room=$1
echo 'correct horse battery staple' >/tmp/pass
printf 'hello' >/tmp/hello
strongroom --version
strongroom create "$room" --passphrase-file /tmp/pass --kdf-memory 8 --kdf-passes 1
strongroom cp /tmp/hello "$room:/hello" --passphrase-file /tmp/pass
mkdir -p /tmp/mnt
strongroom mount "$room" /tmp/mnt --passphrase-file /tmp/pass
read -r line </tmp/mnt/hello || true
[ "$line" = hello ]
echo world >/tmp/mnt/world
strongroom umount /tmp/mnt
[ "$(strongroom cat "$room:/world" --passphrase-file /tmp/pass)" = world ]
strongroom check --read-data "$room" --passphrase-file /tmp/pass
TRY

# in_root ROOT COMMAND...: with /proc and /dev/fuse, in a mount namespace of its own, so that nothing stays mounted.
in_root() {
    local root=$1
    shift
    mkdir -p "$root/proc" "$root/dev" "$root/tmp"
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --mount-proc="$root/proc" sh -euc '
        root=$1; shift
        mount -t tmpfs none "$root/dev"
        for node in null zero urandom random tty fuse; do : >"$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
        exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$root" "$@"
}

# A Debian with nothing but what is named, kept for the next run.
BASE=$TARGET_DIR/debian-base.tar
debian() {
    local root=$1
    shift
    if [ ! -f "$BASE" ]; then
        have mmdebstrap || install_packages mmdebstrap
        say "Fetching a minimal Debian"
        # shellcheck source=/dev/null
        mmdebstrap --quiet --variant=apt --include=python3,python3-venv,ca-certificates "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$WORK/base.tar"
        mv "$WORK/base.tar" "$BASE"
    fi
    mkdir -p "$root"
    tar -C "$root" -xf "$BASE" --exclude='./dev/*'
    cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
}

# apt in a root reaches the mirror as this machine does.
apt_in() {
    local root=$1
    shift
    mkdir -p "$root/etc/apt/apt.conf.d"
    apt-config dump | grep -E '^Acquire::(http|https)::Proxy ' >"$root/etc/apt/apt.conf.d/99proxy" || true
    in_root "$root" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 "$@"
}

# in_root_with_store ROOT COMMAND...: while an S3 server has an empty bucket named "rooms". The root has this machine's loopback.
in_root_with_store() {
    local root=$1 status
    shift
    rm -rf "$WORK/store"
    # Only here: it builds the server where that is missing.
    . "$ROOT/scripts/s3.sh"
    start_server
    # Not as a condition, where -e would have no effect.
    set +e
    (set -e && in_root "$root" env AWS_ACCESS_KEY_ID="$AWS_ACCESS_KEY_ID" AWS_SECRET_ACCESS_KEY="$AWS_SECRET_ACCESS_KEY" \
        AWS_REGION="$AWS_REGION" AWS_ENDPOINT_URL="$AWS_ENDPOINT_URL" "$@")
    status=$?
    set -e
    stop_server
    [ "$status" -eq 0 ] || tail -n 5 "$WORK/server.log" >&2
    return "$status"
}

test_deb() {
    local root=$WORK/deb file said name
    debian "$root"
    cp "$OUT"/strongroom{,-bench,-bucket}_*.deb "$root/tmp/"
    apt_in "$root" update
    apt_in "$root" install -y --no-install-recommends "/tmp/$(cd "$OUT" && ls strongroom_*.deb)" >/dev/null
    for file in /usr/sbin/mount.strongroom /usr/share/bash-completion/completions/strongroom /usr/lib/systemd/system/strongroom-nbd@.service; do
        in_root "$root" test -e "$file" || die "deb: there is no $file"
    done
    cp "$WORK/try.sh" "$root/tmp/"
    in_root "$root" sh /tmp/try.sh /tmp/room
    # Without the package of the benchmark, or of buckets, the error names it; with it, it runs.
    said=$(in_root "$root" strongroom bench history 2>&1 || true)
    [[ $said = *'package strongroom-bench'* ]] || die "deb: the error does not name the benchmark's package: $said"
    apt_in "$root" install -y --no-install-recommends "/tmp/$(cd "$OUT" && ls strongroom-bench_*.deb)" >/dev/null
    in_root "$root" strongroom bench cipher --fast --rounds 2 --seconds 0.02 >/dev/null
    said=$(in_root "$root" strongroom ls s3://rooms/work 2>&1 || true)
    [[ $said = *'package strongroom-bucket'* ]] || die "deb: the error does not name the package for buckets: $said"
    apt_in "$root" install -y --no-install-recommends "/tmp/$(cd "$OUT" && ls strongroom-bucket_*.deb)" >/dev/null
    in_root_with_store "$root" sh /tmp/try.sh s3://rooms/work
    apt_in "$root" purge -y strongroom strongroom-bench strongroom-bucket >/dev/null
    for name in strongroom strongroom-bench strongroom-bucket; do
        ! in_root "$root" test -e "/usr/bin/$name" || die "deb: $name is left after a purge"
        check_bill "$name" "$OUT/$name"_*.deb
    done
    check_size "$OUT"/strongroom_*.deb
}

# check_bill NAME DEB: the list of crates that the stripped program carries is in the package's SBOM, each with its version.
check_bill() {
    local tree=$WORK/bill-$1
    dpkg-deb -x "$2" "$tree"
    objcopy -O binary --only-section=.dep-v0 --set-section-flags .dep-v0=alloc "$tree/usr/bin/$1" "$WORK/dep-v0"
    python3 - "$WORK/dep-v0" "$tree/usr/share/doc/$1/sbom.cdx.json" "$1" <<'CHECK'
import json, sys, zlib
inside = {(p["name"], p["version"]) for p in json.loads(zlib.decompress(open(sys.argv[1], "rb").read()))["packages"] if p.get("kind") != "build"}
bill = json.load(open(sys.argv[2]))
listed = {(c["name"], c["version"]) for c in bill["components"]}
missing = sorted(inside - listed - {("strongroom-cli", bill["metadata"]["component"]["version"])})
print(f"{sys.argv[3]}: {len(inside)} crates inside, {len(listed)} components in its SBOM")
if missing or len(inside) < 100:
    sys.exit(f"deb: not in the SBOM: {missing}")
CHECK
}

# check_size DEB: the stripped program is at most 16 MB.
check_size() {
    local size
    size=$(dpkg-deb --fsys-tarfile "$1" | tar -xO ./usr/bin/strongroom | wc -c)
    say "strongroom: $size bytes"
    [ "$size" -le 16000000 ] || die "deb: the program has $size bytes, more than 16 MB"
}

# A root with a shell and nothing else: no libraries.
test_tarball() {
    local root=$WORK/tarball busybox
    have busybox || install_packages busybox-static
    busybox=$(command -v busybox)
    (cd "$OUT" && grep 'linux.tar.gz$' SHA256SUMS | sha256sum --quiet -c)
    mkdir -p "$root/bin" "$root/usr/local" "$root/root" "$root/tmp" "$root/etc"
    cp "$busybox" "$root/bin/busybox"
    for applet in sh env mkdir cat test umount mount; do ln -s busybox "$root/bin/$applet"; done
    tar -C "$root/usr/local" --strip-components=1 -xf "$OUT"/strongroom-*-linux.tar.gz
    cp "$WORK/try.sh" "$root/tmp/"
    in_root "$root" sh /tmp/try.sh /tmp/room
    in_root_with_store "$root" sh /tmp/try.sh s3://rooms/work
    in_root "$root" /usr/local/bin/strongroom bench cipher --fast --rounds 2 --seconds 0.02 >/dev/null
}

test_python() {
    local root=$WORK/python
    debian "$root"
    cp "$OUT"/strongroom-*.whl "$root/tmp/"
    python3 - "$OUT"/strongroom-*.whl "$ROOT" <<'CHECK' || die "python: the wheel does not say what it is made of"
import json, sys, zipfile
wheel, root = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
bill = next(wheel.read(name).decode() for name in wheel.namelist() if "/sboms/" in name)
sys.exit(root in bill or not {"pyo3", "openssl"} <= {part["name"] for part in json.loads(bill)["components"]})
CHECK
    in_root "$root" python3 -m venv /venv
    in_root "$root" /venv/bin/pip install --quiet --no-index --no-deps "/tmp/$(cd "$OUT" && ls strongroom-*.whl)"
    cp "$ROOT/bindings/python/examples/notes.py" "$root/tmp/"
    in_root "$root" /venv/bin/python /tmp/notes.py /tmp/room | grep -qx 'and this neither' || die "python: the example does not run"
    # The source has everything that a build needs. Not --locked: the lock file is of the whole workspace, of which this is a part.
    mkdir "$WORK/sdist"
    tar -C "$WORK/sdist" --strip-components=1 -xf "$(find "$OUT" -maxdepth 1 -name 'strongroom-*.tar.gz' ! -name '*-linux.tar.gz')"
    (cd "$WORK/sdist" && cargo metadata --format-version 1 >/dev/null) || die "sdist: cargo does not find everything"
}

test_java() {
    local root=$WORK/java at
    have javac || install_packages default-jdk-headless maven
    at=$(find "$OUT/maven" -name '*.jar')
    debian "$root"
    apt_in "$root" update
    apt_in "$root" install -y --no-install-recommends default-jre-headless >/dev/null
    mkdir "$root/tmp/classes"
    javac --release 17 -cp "$at" -d "$root/tmp/classes" "$ROOT/bindings/java/examples/First.java"
    cp "$at" "$root/tmp/strongroom.jar"
    [ "$(in_root "$root" java -cp /tmp/strongroom.jar:/tmp/classes First /tmp/room)" = hello ] || die "java: the example does not run"
}

built() {
    case "$1" in
    deb) compgen -G "$OUT/strongroom_*.deb" ;;
    tarball) compgen -G "$OUT/strongroom-*-linux.tar.gz" ;;
    python) compgen -G "$OUT/strongroom-*.whl" ;;
    java) find "$OUT/maven" -name '*.jar' 2>/dev/null | grep . ;;
    *) die "there is no package '$1': there are deb, tarball, python and java" ;;
    esac >/dev/null
}

status=0
for kind in "${KINDS[@]}"; do
    if ! built "$kind"; then
        warn "$kind: skipped, it is not in $OUT: run make packages"
        status=1
        continue
    fi
    say "== $kind"
    # In a subshell, so that one failure does not hide the others; not as a condition, where -e would have no effect.
    set +e
    (
        set -e
        "test_$kind"
    )
    ended=$?
    set -e
    if [ $ended -eq 0 ]; then say "$kind: ok"; else warn "$kind: FAILED" && status=1; fi
done
exit "$status"
