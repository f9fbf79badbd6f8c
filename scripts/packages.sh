#!/usr/bin/env bash
# Builds what users install without a compiler, into target/packages:
#
#   strongroom_VERSION_ARCH.deb, strongroom-bench_…, strongroom-bucket_…    for Debian and Ubuntu
#   strongroom-VERSION-MACHINE-linux.tar.gz                             static programs, manual pages, completions, units
#   strongroom-VERSION-cp311-abi3-*.whl, strongroom-VERSION.tar.gz      for Python: the wheel, and the source
#   maven/                                                              a Maven repository with the jar, native library inside
#   strongroom-VERSION.cdx.json, strongroom-bench-…, strongroom-bucket-…, strongroom-python-…, strongroom-java-…    what each is made of (CycloneDX)
#   SHA256SUMS
#
#   scripts/packages.sh [deb] [tarball] [python] [java]     default: all
#   PROFILE=dev scripts/packages.sh ...                     quick builds, to try this script
#   NO_BUILD=1 scripts/packages.sh deb                      package the programs that are there
#
# The same commit gives the same bytes, whatever directory it is built in: scripts/reproducible.sh tries that. The programs carry the list of
# their dependencies, which cargo-audit reads (`cargo audit bin`).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

KINDS=("$@")
[ ${#KINDS[@]} -gt 0 ] || KINDS=(deb tarball python java)
PROFILE=${PROFILE:-release}
BUILT=$PROFILE
[ "$PROFILE" != dev ] || BUILT=debug
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
MACHINE=$(uname -m)
OUT=$TARGET_DIR/packages
mkdir -p "$OUT"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

CARGO_AUDITABLE_VERSION=0.7.7
MATURIN_VERSION=1.16.0
cargo_tool cargo-auditable "$CARGO_AUDITABLE_VERSION"
rm -rf "$TOOLS/build"
PATH=$TOOLS/bin:$PATH

# The commit's time instead of today's, and names instead of this machine's directories. Of several prefixes that fit, the last is used.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH
CARGO_DIR=${CARGO_HOME:-$HOME/.cargo}
PREFIXES=("$CARGO_DIR=/cargo" "$ROOT=/strongroom" "$TARGET_DIR=/target")
# The first flags are those of .cargo/config.toml, which this variable replaces.
export CARGO_ENCODED_RUSTFLAGS='' CFLAGS="$(sed -n 's/^CFLAGS = "\(.*\)"/\1/p' .cargo/config.toml) ${CFLAGS:-}" CXXFLAGS=${CXXFLAGS:-}
for prefix in "${PREFIXES[@]}"; do
    CARGO_ENCODED_RUSTFLAGS+=${CARGO_ENCODED_RUSTFLAGS:+$'\x1f'}--remap-path-prefix=$prefix
    CFLAGS+=" -ffile-prefix-map=$prefix"
    CXXFLAGS+=" -ffile-prefix-map=$prefix"
done

build() {
    [ -n "${NO_BUILD:-}" ] || cargo auditable build "$@"
}

# The files of `make install` in a tree of their own.
tree() {
    scripts/install.sh "$1" "$2" "$3" >/dev/null
    rm -rf "${2:?}/sbin"
    find "$2" -name '*.1' -exec gzip -9n {} +
}

deb() {
    have dpkg-deb || die "dpkg-deb is missing: Debian packages are built on Debian or Ubuntu"
    build --profile "$PROFILE" --locked -p strongroom-cli
    local root=$WORK/deb bench=$WORK/deb-bench bucket=$WORK/deb-bucket name arch
    arch=$(dpkg --print-architecture)
    tree "$TARGET_DIR/$BUILT/strongroom" "$root" /usr
    # mount(8) looks for its helper in /sbin, which is /usr/sbin.
    install -d "$root/usr/sbin" "$bench/usr/bin" "$bench/usr/share/man/man1" "$bucket/usr/bin"
    ln -s ../bin/strongroom "$root/usr/sbin/mount.strongroom"
    mv "$root/usr/bin/strongroom-bench" "$bench/usr/bin/"
    mv "$root"/usr/share/man/man1/strongroom-bench*.gz "$bench/usr/share/man/man1/"
    mv "$root/usr/bin/strongroom-bucket" "$bucket/usr/bin/"
    for name in strongroom strongroom-bench strongroom-bucket; do
        local top=$root depends
        case $name in *-bench) top=$bench ;; *-bucket) top=$bucket ;; esac
        install -d "$top/DEBIAN" "$top/usr/share/doc/$name"
        cat LICENSE-MIT >"$top/usr/share/doc/$name/copyright"
        printf '\nOr, at your choice, the Apache License 2.0: /usr/share/common-licenses/Apache-2.0\n' >>"$top/usr/share/doc/$name/copyright"
        gzip -9nc CHANGELOG.md >"$top/usr/share/doc/$name/changelog.gz"
        cp "$OUT/$name-$VERSION.cdx.json" "$top/usr/share/doc/$name/sbom.cdx.json"
        depends=$(libraries "$top/usr/bin/$name")
        if [ $name = strongroom ]; then
            depends+=", fuse3"
            control $name "$arch" "$depends" "$top" "Suggests: strongroom-bench, strongroom-bucket" "encrypted storage that you mount, embed or share" \
                "A room is an encrypted POSIX file system in an ordinary directory. It is mounted without root, used without a mount," \
                "and shared between machines through a metadata server and network disks."
        elif [ $name = strongroom-bucket ]; then
            control $name "$arch" "$depends, strongroom (= $VERSION), ca-certificates" "$top" "Section: utils" "Strongroom's rooms in S3 buckets" \
                "Every command on a room, for rooms in a bucket of an object store. Started by strongroom."
        else
            control $name "$arch" "$depends, strongroom (= $VERSION)" "$top" "Section: utils" "benchmark of Strongroom" \
                "Measures what encryption costs on a directory, device or room. Started by strongroom bench."
        fi
        find "$top" -type d -exec chmod 0755 {} +
        dpkg-deb --root-owner-group --build "$top" "$OUT/${name}_${VERSION}_$arch.deb" >/dev/null
    done
}

# libraries PROGRAM: the packages of the shared libraries that it needs, as Depends has them.
libraries() {
    mkdir -p "$WORK/shlibs/debian"
    printf 'Source: strongroom\n\nPackage: strongroom\nArchitecture: any\n' >"$WORK/shlibs/debian/control"
    (cd "$WORK/shlibs" && dpkg-shlibdeps -O -e "$1" 2>/dev/null) | sed 's/^shlibs:Depends=//'
}

# control NAME ARCH DEPENDS TREE FIELD SUMMARY LINE...
control() {
    local name=$1 arch=$2 depends=$3 top=$4 field=$5 summary=$6
    shift 6
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: The Strongroom authors <strongroom@localhost>\n' "$name" "$VERSION" "$arch"
        printf 'Installed-Size: %s\nDepends: %s\nPriority: optional\n' "$(du -sk "$top/usr" | cut -f 1)" "$depends"
        [ "$field" = "Section: utils" ] || printf 'Section: utils\n'
        printf '%s\nDescription: %s\n' "$field" "$summary"
        printf ' %s\n' "$@"
    } >"$top/DEBIAN/control"
}

# Static against glibc, not musl: SQLCipher's ciphers come from the system's libcrypto, which is built for glibc. Without shared libraries
# the program looks host names up through the target machine's own glibc where it is of the same version; addresses always work.
tarball() {
    local target=$MACHINE-unknown-linux-gnu libraries=$WORK/libraries name=strongroom-$VERSION-$MACHINE-linux library
    # A directory without the shared libraries, which the linker would take first.
    mkdir -p "$libraries"
    for library in libssl.a libcrypto.a; do
        ln -s "$(cc -print-file-name=$library)" "$libraries/"
        [ -f "$libraries/$library" ] || die "$library is missing: install libssl-dev"
    done
    OPENSSL_STATIC=1 OPENSSL_LIB_DIR=$libraries OPENSSL_INCLUDE_DIR=/usr/include CARGO_ENCODED_RUSTFLAGS=$CARGO_ENCODED_RUSTFLAGS$'\x1f-Ctarget-feature=+crt-static' \
        build --profile "$PROFILE" --locked -p strongroom-cli --target "$target" --target-dir "$TARGET_DIR/static"
    tree "$TARGET_DIR/static/$target/$BUILT/strongroom" "$WORK/tar" "/$name"
    cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$OUT"/strongroom{,-bench,-bucket}-"$VERSION".cdx.json "$WORK/tar/$name/"
    # Where the units look for the program.
    sed -i "s|/$name/bin/strongroom|/usr/local/bin/strongroom|" "$WORK/tar/$name"/lib/systemd/system/*.service
    if ldd "$WORK/tar/$name/bin/strongroom" 2>&1 | grep -q '=>'; then
        die "the program needs shared libraries"
    fi
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@"$SOURCE_DATE_EPOCH" -C "$WORK/tar" -cf - "$name" | gzip -9n >"$OUT/$name.tar.gz"
}

python() {
    local venv=$TARGET_DIR/python/packages
    if [ ! -x "$venv/bin/maturin" ]; then
        python3 -m venv --clear "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "maturin==$MATURIN_VERSION"
    fi
    rm -rf "$OUT"/*.whl
    (cd bindings/python && CARGO_TARGET_DIR=$TARGET_DIR "$venv/bin/maturin" build --quiet --profile "$PROFILE" --locked --out "$OUT" \
        --sbom-include "$OUT/strongroom-python-$VERSION.cdx.json" &&
        "$venv/bin/maturin" sdist --out "$OUT")
}

java() {
    have mvn || install_packages default-jdk-headless maven
    # Of another profile's build nothing may be in the jar.
    rm -rf "$OUT/maven" bindings/java/target/classes/org/strongroom/native
    (cd bindings/java && mvn --batch-mode --quiet -DskipTests -Dnative.profile="$PROFILE" package)
    local at=$OUT/maven/org/strongroom/strongroom/$VERSION sum
    mkdir -p "$at"
    cp "bindings/java/target/strongroom-$VERSION.jar" "$at/"
    cp bindings/java/pom.xml "$at/strongroom-$VERSION.pom"
    for file in "$at"/*; do
        sum=$(sha1sum "$file")
        printf %s "${sum%% *}" >"$file.sha1"
    done
}

scripts/sbom.py "$VERSION" "$OUT"
for kind in "${KINDS[@]}"; do
    case "$kind" in
    deb | tarball | python | java) say "Building: $kind" && "$kind" ;;
    *) die "there is no package '$kind': there are deb, tarball, python and java" ;;
    esac
done
(cd "$OUT" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
say "" "In $OUT:"
(cd "$OUT" && find . -type f ! -name '*.sha1' -printf '  %10s  %P\n' | sort -k 2)
