#!/usr/bin/env bash
# Prepares a Debian 12 (or newer) machine to build Strongroom, and with the argument `test` to test it.
# Idempotent: what is there already is left alone, and a second run takes no time.
#
#   scripts/setup.sh         packages and checks for `make build` and `make demo`
#   scripts/setup.sh test    the same, and the tools and the user that `make test` needs
#
# Rust and a C compiler are expected to be there; what else is missing is installed with apt.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

PJDFSTEST_VERSION=0.2.2
FSX_VERSION=0.3.2

# fuse3: fusermount3, for mounts by ordinary users.   libssl-dev, pkg-config: SQLCipher's ciphers.
# attr, acl: getfattr and setfacl, with which demo and tests compare attributes.   curl, iproute2: shared storage, shown and tried on
# machines of its own (network namespaces).
PACKAGES=(fuse3 libssl-dev pkg-config attr acl curl iproute2)
# Programs that are tried in a room. PostgreSQL, which some runs of `make soak` try too, would set up a server of its own:
# install it yourself for that.
# fio measures what the benchmark measures; nbdkit serves a disk to it.
# e2fsprogs, btrfs-progs: disks that do and do not compress, on which the benchmark's checks are made to fire.
# cryptsetup-bin, libnbd-bin, python3-libnbd, nbd-client, qemu-utils, xz-utils: volumes and their server are tried against them.
# python3-venv: the environment in which the Python package is tested.
# valgrind: C programs with rooms are run under it.
# gocryptfs, encfs, securefs: imports from their directories (CryFS's, where it is installed).
# opensc, softhsm2, openssl: a passphrase that a PKCS#11 token decrypts.
# systemd, swtpm, tpm2-tools, libtss2-tcti-swtpm0: a passphrase that a TPM unseals.
# chromium: the page of `strongroom bench --html` is shown to it.
TEST_PACKAGES=(btrfs-progs chromium e2fsprogs git python3 python3-venv rsync sqlite3 tar fio nbdkit cryptsetup-bin libnbd-bin python3-libnbd
    nbd-client qemu-utils valgrind xz-utils gocryptfs encfs securefs opensc softhsm2 openssl
    systemd swtpm tpm2-tools libtss2-tcti-swtpm0)

check_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' "$ROOT/Cargo.toml" | head -n 1)
    have cargo || die "cargo is not installed. Strongroom needs Rust $wanted or newer: install it as https://rustup.rs says, \
or with apt where the distribution's is new enough, and run this again."
    found=$(rustc --version | cut -d ' ' -f 2)
    # sort -V puts the older first.
    if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
        die "rustc is $found, and Strongroom needs $wanted or newer. With rustup: rustup update stable. \
Without: remove the distribution's rustc and cargo, and install Rust as https://rustup.rs says."
    fi
    have cc || install_packages gcc libc6-dev
}

check_fuse() {
    if [ ! -e /dev/fuse ] && have modprobe; then
        as_root modprobe fuse 2>/dev/null || true
    fi
    [ -e /dev/fuse ] || die "there is no /dev/fuse, so nothing can be mounted here. \
Load the kernel's module (modprobe fuse); in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN."
    # Debian's udev makes it 0666. Where no udev runs it stays 0600, and ordinary users cannot mount.
    if [ "$(stat -c %a /dev/fuse)" != 666 ] && [ "$(id -u)" -eq 0 ]; then
        chmod 0666 /dev/fuse 2>/dev/null && say "Set /dev/fuse to mode 0666, so that ordinary users can mount." ||
            warn "/dev/fuse is not open to ordinary users, and its mode cannot be changed here"
    fi
    if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
        die "/dev/fuse is not open to $(id -un): as root, run: chmod 0666 /dev/fuse"
    fi
}

# pjdfstest switches to two users who own nothing: Debian's nobody, and this one.
test_user() {
    if getent passwd tests >/dev/null; then
        return
    fi
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        warn "there is no user 'tests', and no sudo to make one: tests that switch users are left out"
        return
    fi
    say "Making the user 'tests', whom the permission tests become"
    as_root useradd --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tests
}

case "${1:-build}" in
build)
    check_rust
    install_packages "${PACKAGES[@]}"
    check_fuse
    ;;
test)
    check_rust
    install_packages "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    check_fuse
    cargo fmt --version >/dev/null 2>&1 || die "rustfmt is missing. With rustup: rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || die "clippy is missing. With rustup: rustup component add clippy"
    cargo_tool pjdfstest "$PJDFSTEST_VERSION"
    cargo_tool fsx "$FSX_VERSION"
    rm -rf "$TOOLS/build"
    test_user
    ;;
*)
    die "unknown argument '$1': use scripts/setup.sh or scripts/setup.sh test"
    ;;
esac
