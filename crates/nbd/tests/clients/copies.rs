//! Whole images, there and back; a file system inside.

use std::process::Command;

use crate::common::{LEN, Served, has, noise, ok, text};

/// Data, holes, zeros that are written, and data again.
fn image() -> Vec<u8> {
    let mut bytes = noise(LEN as usize, 4);
    bytes[3 << 20..9 << 20].fill(0);
    bytes[40 << 20..41 << 20].fill(0);
    bytes
}

#[test]
fn nbdcopy_brings_an_image_there_and_back_over_many_connections() {
    if !has("nbdcopy") {
        return;
    }
    let served = Served::new();
    let (from, to) = (served.path("from"), served.path("to"));
    std::fs::write(&from, image()).unwrap();
    ok("nbdcopy", &["--flush", text(&from), &served.uri("")]);
    ok(
        "nbdcopy",
        &[
            "--threads=4",
            "--connections=4",
            "--requests=64",
            &served.uri(""),
            text(&to),
        ],
    );
    assert!(std::fs::read(&to).unwrap() == image());
    assert!(std::fs::read(served.path("image")).unwrap() == image());
    assert!(served.server.metrics().connections_taken >= 3);
}

#[test]
fn qemu_img_converts_there_and_back_and_compares() {
    if !has("qemu-img") {
        return;
    }
    let served = Served::new();
    let (from, to) = (served.path("from"), served.path("to"));
    let uri = served.uri("");
    std::fs::write(&from, image()).unwrap();
    ok(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            "-W",
            "-m",
            "8",
            text(&from),
            &uri,
        ],
    );
    ok(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", text(&from), &uri],
    );
    ok(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &uri, text(&to)],
    );
    ok(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", &uri, text(&to)],
    );
}

#[test]
fn a_file_system_made_here_is_whole_there() {
    for program in ["mkfs.ext4", "e2fsck", "debugfs", "nbdcopy"] {
        if !has(program) {
            return;
        }
    }
    let served = Served::new();
    let (from, to, data) = (served.path("from"), served.path("to"), served.path("data"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("file"), noise(1 << 20, 5)).unwrap();
    ok("mkfs.ext4", &["-q", "-d", text(&data), text(&from), "64M"]);
    ok("nbdcopy", &["--flush", text(&from), &served.uri("")]);
    ok("nbdcopy", &[&served.uri(""), text(&to)]);
    ok("e2fsck", &["-f", "-n", text(&to)]);
    let dump = format!("dump file {}", text(&served.path("back")));
    ok("debugfs", &["-R", &dump, text(&to)]);
    assert!(std::fs::read(served.path("back")).unwrap() == noise(1 << 20, 5));
}

#[test]
fn nbdkit_as_a_client_passes_everything_on() {
    for program in ["nbdkit", "nbdcopy"] {
        if !has(program) {
            return;
        }
    }
    let served = Served::new();
    let from = served.path("from");
    std::fs::write(&from, image()).unwrap();
    let socket = format!("socket={}", text(&served.path("socket")));
    // nbdkit serves what it gets from here over four connections, for as long as the copying program runs.
    let run = format!(
        "nbdcopy --flush {} \"$uri\" && nbdcopy \"$uri\" {}",
        text(&from),
        text(&served.path("to"))
    );
    let done = Command::new("timeout")
        .args([
            "-k", "5", "120", "nbdkit", "-U", "-", "nbd", &socket, "shared=1", "--run", &run,
        ])
        .status()
        .unwrap();
    assert!(done.success());
    assert!(std::fs::read(served.path("to")).unwrap() == image());
    assert!(std::fs::read(served.path("image")).unwrap() == image());
}
