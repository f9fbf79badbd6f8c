//! What programs see of exports: information, maps, odd requests.

use std::sync::Arc;

use device::{FileDevice, MemoryDevice};
use nbd::{Config, Export};

use crate::common::{LEN, Served, export, has, nbdsh, noise, ok, run, text};

#[test]
fn nbdinfo_sees_what_an_export_can() {
    if !has("nbdinfo") {
        return;
    }
    let served = Served::new();
    let said = ok("nbdinfo", &[&served.uri("")]);
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 67108864 (64M)",
        "base:allocation",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!run("nbdinfo", &[&served.uri("other")]).status.success());
}

#[test]
fn exports_are_listed_and_found_by_name_and_the_first_is_the_default() {
    if !has("nbdinfo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, len, read_only| Export {
        description: format!("about {name}"),
        read_only,
        ..export(name, Arc::new(MemoryDevice::new(len)))
    };
    let exports = vec![of("first", 4096, false), of("sécond", 1 << 20, true)];
    let served = Served::with(dir, exports, Config::default());
    let said = ok("nbdinfo", &["--list", &served.uri("")]);
    for line in [
        "export=\"first\"",
        "export=\"sécond\"",
        "description: about first",
        "export-size: 4096",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(ok("nbdinfo", &["--size", &served.uri("")]).trim(), "4096");
    assert_eq!(
        ok("nbdinfo", &["--size", &served.uri("s%C3%A9cond")]).trim(),
        "1048576"
    );
    ok(
        "nbdinfo",
        &["--is", "read-only", &served.uri("s%C3%A9cond")],
    );
}

#[test]
fn a_map_reports_holes_and_only_holes() {
    if !has("nbdinfo") {
        return;
    }
    let served = Served::new();
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options()
            .write(true)
            .open(served.path("image"))
            .unwrap(),
        &noise(1 << 20, 1),
        1 << 20,
    )
    .unwrap();
    let map: String = ok("nbdinfo", &["--map", &served.uri("")]);
    let words: Vec<Vec<&str>> = map
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let lines: Vec<[&str; 4]> = words.iter().map(|w| [w[0], w[1], w[2], w[3]]).collect();
    assert_eq!(
        lines,
        [
            ["0", "1048576", "3", "hole,zero"],
            ["1048576", "1048576", "0", "data"],
            ["2097152", "65011712", "3", "hole,zero"],
        ],
        "{map}"
    );
}

#[test]
fn reads_of_holes_are_sent_as_holes_and_df_keeps_them_whole() {
    if !has("nbdsh") {
        return;
    }
    let served = Served::new();
    let said = nbdsh(
        &served.uri(""),
        r#"
h.connect_uri(uri)
h.pwrite(b"x" * 65536, 1 << 20)
got = []
def chunk(buf, offset, status, error):
    got.append((offset, len(buf), status))
data = h.pread_structured(1 << 20, (1 << 20) - 524288, chunk)
assert bytes(data) == b"\0" * 524288 + b"x" * 65536 + b"\0" * (524288 - 65536)
print(sorted(got))
assert sorted(got) == [(524288, 524288, nbd.READ_HOLE), (1 << 20, 65536, nbd.READ_DATA), ((1 << 20) + 65536, 458752, nbd.READ_HOLE)], got
got.clear()
data = h.pread_structured(1 << 20, (1 << 20) - 524288, chunk, nbd.CMD_FLAG_DF)
assert got == [(524288, 1 << 20, nbd.READ_DATA)], got
"#,
    );
    assert!(!said.is_empty());
}

#[test]
fn every_command_and_flag_does_what_it_says_through_libnbd() {
    if !has("nbdsh") {
        return;
    }
    let served = Served::holding(&noise(LEN as usize, 2));
    nbdsh(
        &served.uri(""),
        r#"
h.add_meta_context("base:allocation")
h.connect_uri(uri)
h.set_strict_mode(0)
before = h.pread(1 << 20, 0)
h.pwrite(b"y" * 5000, 4097, nbd.CMD_FLAG_FUA)
assert bytes(h.pread(5002, 4096)) == bytes(before[4096:4097]) + b"y" * 5000 + bytes(before[9097:9098])
h.zero(100000, 1, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
assert bytes(h.pread(100000, 1)) == b"\0" * 100000
h.zero(1 << 20, 2 << 20, nbd.CMD_FLAG_FAST_ZERO)
assert bytes(h.pread(1 << 20, 2 << 20)) == bytes(1 << 20)
h.trim(1 << 20, 4 << 20, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 8 << 20)
h.flush()
h.flush(nbd.CMD_FLAG_FUA)
extents = []
def ext(name, offset, e, err):
    extents.append((name, offset, list(e)))
h.block_status(8 << 20, 1 << 20, ext)
h.block_status(8 << 20, 4 << 20, ext, nbd.CMD_FLAG_REQ_ONE)
assert extents == [
    ("base:allocation", 1 << 20, [1 << 20, 0, 1 << 20, 3, 1 << 20, 0, 1 << 20, 3, 4 << 20, 0]),
    ("base:allocation", 4 << 20, [1 << 20, 3]),
], extents
size = h.get_size()
def refused(errno, what, *args):
    try:
        what(*args)
    except nbd.Error as e:
        assert e.errno == errno, (what, args, e)
        return
    assert False, (what, args)
refused("EINVAL", h.pread, 2, size - 1)
refused("ENOSPC", h.pwrite, b"ab", size - 1)
refused("ENOSPC", h.zero, 2, size - 1)
refused("EINVAL", h.trim, 2, size - 1)
refused("EINVAL", h.cache, 2, size - 1)
refused("EINVAL", h.pread, 1, 0, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
refused("EINVAL", h.pwrite, b"a", 0, nbd.CMD_FLAG_DF)
refused("EINVAL", h.pwrite, b"a", 0, 1 << 9)
refused("EINVAL", h.block_status, 0, 0, ext)
assert bytes(h.pread(1, size - 1)) != b""
"#,
    );
}

#[test]
fn a_read_only_export_takes_no_change() {
    if !has("nbdsh") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(MemoryDevice::new(1 << 20));
    let exports = vec![Export {
        read_only: true,
        ..export("", device.clone())
    }];
    let served = Served::with(dir, exports, Config::default());
    nbdsh(
        &served.uri(""),
        r#"
h.connect_uri(uri)
assert h.is_read_only() and not h.can_trim() and not h.can_zero()
h.set_strict_mode(0)
for change in [lambda: h.pwrite(b"a" * 100000, 0), lambda: h.zero(10, 0), lambda: h.trim(10, 0)]:
    try:
        change()
        assert False
    except nbd.Error as e:
        assert e.errno == "EPERM", e
assert bytes(h.pread(10, 0)) == bytes(10)
"#,
    );
    assert_eq!(device.contents(), vec![0; 1 << 20]);
}

#[test]
fn old_forms_of_the_handshake_work() {
    if !has("nbdsh") {
        return;
    }
    let served = Served::holding(&noise(1 << 20, 3));
    let image = served.path("image");
    nbdsh(
        &served.uri(""),
        &format!(
            r#"
want = open({:?}, "rb").read()
for flags in [0, nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE, 3]:
    for structured in [False, True]:
        h = nbd.NBD()
        h.set_handshake_flags(flags)
        h.set_request_structured_replies(structured)
        if flags == 0:
            # Before fixed newstyle nothing can be agreed on: refused.
            try:
                h.connect_uri(uri)
                assert False
            except nbd.Error:
                continue
        h.connect_uri(uri)
        assert h.get_structured_replies_negotiated() == structured
        assert bytes(h.pread(1 << 20, 0)) == want
        h.shutdown()
"#,
            text(&image)
        ),
    );
}

#[test]
fn qemu_io_writes_and_reads_patterns() {
    if !has("qemu-io") {
        return;
    }
    let served = Served::new();
    let uri = served.uri("");
    let args = [
        "-f",
        "raw",
        "-c",
        "write -P 0xab 4096 1M",
        "-c",
        "write -z 8192 64k",
        "-c",
        "flush",
        "-c",
        "write -f -P 0xcd 1k 512",
        "-c",
        "discard 2M 1M",
        "-c",
        "read -P 0xab 4096 4096",
        "-c",
        "read -P 0 8192 64k",
        "-c",
        "read -P 0xcd 1k 512",
        "-c",
        "write -z -u 3M 1M",
        "-c",
        "write -P 7 60M 4M",
        "-c",
        "read -P 7 60M 4M",
        &uri,
    ];
    let said = ok("qemu-io", &args);
    assert!(
        !said.contains("failed") && !said.contains("error"),
        "{said}"
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has("fio") {
        return;
    }
    let served = Served::new();
    let uri = format!("--uri={}", served.uri(""));
    let said = ok(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bsrange=512-64k",
            "--blockalign=512",
            "--size=16M",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--fsync=64",
            "--randseed=7",
        ],
    );
    assert!(said.contains("err= 0"), "{said}");
}

#[test]
fn a_file_of_the_name_of_an_export_is_locked_while_it_is_served() {
    let served = Served::new();
    assert!(FileDevice::open(&served.path("image"), device::Access::ReadWrite).is_err());
}
