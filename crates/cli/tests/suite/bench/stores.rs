//! Each kind of store, and what is refused.

use std::process::{Command, Stdio};

use super::{LEAST, issues, left, report, works};
use crate::common::{self, Sandbox, enable_uring, noise, words};

fn wrong_data(report: &serde_json::Value) -> Vec<String> {
    let mut issues = issues(report);
    issues.retain(|issue| issue.starts_with("\"wrong_data\""));
    issues
}

#[test]
fn a_directory_shows_every_row_reads_what_it_wrote_and_is_as_it_was() {
    let sandbox = Sandbox::empty();
    let report = report(&sandbox, &["storage", "directory:."]);
    let works = works(&report, "directory");
    for row in [
        "sequential read, 1 MiB, depth 1, cold",
        "sequential write, 1 MiB, depth 1, synced",
        "random read, 4 KiB, depth 1, cold",
        "random write, 4 KiB, depth 1, synced",
        "random read, 4 KiB, depth 16, direct",
        "random write, 4 KiB, depth 16, direct",
        "append, 4 KiB, fsync each",
        "mailbox delivery, 4 KiB",
        "SQLite transactions, rollback journal",
        "SQLite transactions, write-ahead log",
        "create 4 KiB files, synced",
        "list directories, warm",
        "unlink files, synced",
    ] {
        assert!(works.contains(&row), "{row} is not in {works:?}");
    }
    assert_eq!(wrong_data(&report), [""; 0]);
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["stores"][0]["kind"], "directory");
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn a_room_through_the_library_reads_what_it_wrote() {
    let sandbox = Sandbox::empty();
    let report = report(&sandbox, &["storage", "room:."]);
    let works = works(&report, "room");
    assert!(works.contains(&"random write, 4 KiB, depth 1, synced"));
    assert!(works.contains(&"stat files, warm"));
    assert!(works.contains(&"mailbox delivery, 4 KiB"));
    assert!(!works.iter().any(|work| work.starts_with("SQLite")));
    assert!(!works.iter().any(|work| work.ends_with(", direct")));
    assert_eq!(wrong_data(&report), [""; 0]);
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn a_mounted_room_beside_a_directory_gives_the_loss_beside_the_published_one() {
    if !common::can_mount() {
        return;
    }
    let sandbox = Sandbox::empty();
    let report = report(&sandbox, &["cost", "."]);
    assert_eq!(works(&report, "plain"), works(&report, "room"));
    assert_eq!(wrong_data(&report), [""; 0]);
    let table = &report["tables"][0];
    assert!(table.to_string().contains("62.9 %"), "{table}");
    assert_eq!(report["stores"][1]["kind"], "mounted room");
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn files_in_memory_behind_fuse_are_the_ceiling_that_a_room_has_a_share_of() {
    if !common::can_mount() {
        return;
    }
    let sandbox = Sandbox::empty();
    let report = report(&sandbox, &["cost", ".", "--fuse-ceiling"]);
    assert_eq!(works(&report, "room"), works(&report, "memory"));
    assert_eq!(wrong_data(&report), [""; 0]);
    assert_eq!(report["stores"][2]["kind"], "files in memory behind FUSE");
    // The published tables are of the room, and the last one is its share.
    let tables = report["tables"].as_array().unwrap();
    assert!(tables[0].to_string().contains("62.9 %"));
    let share = tables.last().unwrap();
    assert_eq!(share["title"], "Share of what FUSE itself allows");
    assert_eq!(
        share["columns"],
        serde_json::json!(["memory", "room", "share"])
    );
    let rows = share["rows"].as_array().unwrap();
    assert_eq!(rows.len(), works(&report, "memory").len());
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn a_room_and_its_ceiling_get_requests_by_the_same_way_and_the_report_says_which() {
    if !common::can_mount() || enable_uring::offered().is_none() {
        return;
    }
    let sandbox = Sandbox::empty();
    let run = || report(&sandbox, &["cost", ".", "--fuse-ceiling"]);
    let runs = [
        (Some(enable_uring::with_it_enabled(run)), "io_uring"),
        (enable_uring::with_it_disabled(run), "device"),
    ];
    for (report, transport) in runs {
        let Some(report) = report else { continue };
        for store in [1, 2] {
            let of = &report["stores"][store];
            assert_eq!(of["transport"], transport, "{of}");
        }
    }
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn files_in_memory_are_a_store_with_names() {
    if !common::can_mount() {
        return;
    }
    let sandbox = Sandbox::empty();
    let report = report(&sandbox, &["storage", "memory:."]);
    let works = works(&report, "memory");
    for row in [
        "mailbox delivery, 4 KiB",
        "SQLite transactions, write-ahead log",
        "list directories, warm",
        "unlink files, synced",
    ] {
        assert!(works.contains(&row), "{row} is not in {works:?}");
    }
    assert_eq!(wrong_data(&report), [""; 0]);
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn somebodys_room_is_measured_in_a_directory_of_its_own_and_is_as_it_was() {
    let sandbox = Sandbox::with_room();
    sandbox.with_pass(["mkdir", "room:/mine"]);
    let args = ["storage", "room", "--passphrase-file", "pass"];
    let report = report(&sandbox, &args);
    assert!(!works(&report, "room").is_empty());
    assert_eq!(wrong_data(&report), [""; 0]);
    assert_eq!(sandbox.with_pass(["ls", "room:/"]).trim(), "mine");
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn installed_tools_read_what_they_wrote() {
    if !common::can_mount() {
        return;
    }
    for peer in ["gocryptfs", "securefs"] {
        if Command::new(peer).arg("--version").output().is_err() {
            eprintln!("skipped: {peer} is not installed");
            continue;
        }
        let sandbox = Sandbox::empty();
        let target = format!("{peer}:.");
        // One of them refuses direct calls: such rows are left out, and the others measured.
        let words = ["random cold", "random write synced", "direct"];
        let only = words.into_iter().flat_map(|words| ["--only", words]);
        let args: Vec<&str> = ["compare", "directory:.", &target]
            .into_iter()
            .chain(only)
            .collect();
        let report = report(&sandbox, &args);
        assert!(works(&report, peer).len() >= 2, "{report}");
        assert_eq!(wrong_data(&report), [""; 0]);
        assert_eq!(left(&sandbox), [""; 0]);
    }
}

#[test]
fn a_file_that_is_there_is_read_and_stays_as_it_is() {
    let sandbox = Sandbox::empty();
    let content = noise(2 << 20, 3);
    std::fs::write(sandbox.path("precious"), &content).unwrap();
    let report = report(&sandbox, &["storage", "precious"]);
    let works = works(&report, "precious");
    assert!(!works.is_empty());
    assert!(works.iter().all(|work| work.contains("read")), "{works:?}");
    assert_eq!(std::fs::read(sandbox.path("precious")).unwrap(), content);
    assert_eq!(left(&sandbox), [""; 0]);
}

#[test]
fn dd_reads_two_files_and_refuses_to_write() {
    let sandbox = Sandbox::empty();
    let content = noise(1 << 20, 5);
    for name in ["raw", "decrypted"] {
        std::fs::write(sandbox.path(name), &content).unwrap();
    }
    let args = ["bench", "dd", "raw", "decrypted"];
    let ran = sandbox.run(args.iter().chain(&["--write"]));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("refused"), "{}", ran.err);
    let sizes = ["--rounds", "2", "--read", "4KiB:1MiB", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(&sandbox.ok(args.iter().chain(&sizes))).unwrap();
    assert_eq!(works(&report, "decrypted"), ["dd, 1 MiB by 4 KiB, cold"]);
    assert!(report["tables"][0].to_string().contains("10,711,067"));
    for name in ["raw", "decrypted"] {
        assert_eq!(std::fs::read(sandbox.path(name)).unwrap(), content);
    }
}

#[test]
fn dd_reads_a_volume_beside_its_image_and_so_it_does_when_it_is_served() {
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("key"), "correct horse battery staple").unwrap();
    let make = "volume format v.img --size 20MiB --key-file key --kdf pbkdf2 --kdf-iterations 1000";
    sandbox.ok(words(make));
    let image = std::fs::read(sandbox.path("v.img")).unwrap();
    let how = ["--rounds", "2", "--read", "64KiB:1MiB", "--json"];
    let measured = |decrypted: &str, with: &[&str]| -> serde_json::Value {
        let args = ["bench", "dd", "v.img", decrypted];
        let ran = sandbox.ok(args.iter().chain(with).chain(&how));
        serde_json::from_str(&ran).unwrap()
    };
    let report = measured("volume:v.img", &["--key-file", "key"]);
    assert_eq!(works(&report, "decrypted"), ["dd, 1 MiB by 64 KiB, cold"]);
    let decrypted = &report["stores"][1];
    assert_eq!(decrypted["kind"], "LUKS2 volume, read by this process");
    assert_eq!(decrypted["cipher"], "aes-xts-plain64");

    std::fs::write(sandbox.path("wrong"), "wrong").unwrap();
    let args = words("bench dd v.img volume:v.img --key-file wrong");
    let refused = sandbox.run(args.iter().chain(&how));
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("no key slot opens"), "{}", refused.err);
    // A file that is not there, and a key that nobody would look at.
    let args = ["bench", "dd", "v.img", "volume:v.img", "--key-file", "none"];
    let refused = sandbox.run(args.iter().chain(&how));
    let named = sandbox.run(["volume", "dump", "none"]);
    assert_eq!(refused.code, named.code, "{}", refused.err);
    for ignored in ["--key-file", "--header"] {
        let args = ["bench", "dd", "v.img", "v.img", ignored, "key"];
        let refused = sandbox.run(args.iter().chain(&how));
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("only for volume:"), "{}", refused.err);
    }

    let make = "volume format apart.img --size 4MiB --header h.img --key-file key \
                --kdf pbkdf2 --kdf-iterations 1000";
    sandbox.ok(words(make));
    let args = ["bench", "dd", "apart.img", "volume:apart.img", "--key-file"];
    let alone = sandbox.run(args.iter().chain(&["key"]).chain(&how));
    assert_eq!(alone.code, 10, "{}", alone.err);
    let both = ["key", "--header", "h.img"];
    let report: serde_json::Value =
        serde_json::from_str(&sandbox.ok(args.iter().chain(&both).chain(&how))).unwrap();
    assert_eq!(works(&report, "decrypted"), ["dd, 1 MiB by 64 KiB, cold"]);

    let socket = sandbox.path("nbd");
    let mut served = sandbox.command(["serve", "nbd", "v.img", "--key-file", "key", "--socket"]);
    let server = Server(served.arg(&socket).stdout(Stdio::null()).spawn().unwrap());
    common::process::until("it serves", || socket.exists());
    let report = measured(&format!("nbd+unix:///?socket={}", socket.display()), &[]);
    assert_eq!(works(&report, "decrypted"), ["dd, 1 MiB by 64 KiB, cold"]);
    drop(server);
    assert!(std::fs::read(sandbox.path("v.img")).unwrap() == image);
}

#[test]
fn a_block_device_is_read_and_never_written() {
    if !common::is_root() {
        return;
    }
    let sandbox = Sandbox::empty();
    let content = noise(4 << 20, 7);
    std::fs::write(sandbox.path("image"), &content).unwrap();
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(sandbox.path("image"))
        .output()
        .unwrap();
    if !made.status.success() {
        eprintln!(
            "skipped: no loop device: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        return;
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let ran = sandbox.run(["bench", "storage", &device, "--json"].iter().chain(&LEAST));
    let detached = Command::new("losetup").args(["-d", &device]).status();
    assert!(detached.unwrap().success());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(report["stores"][0]["kind"], "block device");
    let rows = report["rows"].as_array().unwrap();
    assert!(
        rows.iter()
            .all(|row| row["work"].as_str().unwrap().contains("read"))
    );
    assert!(!rows.is_empty());
    assert_eq!(std::fs::read(sandbox.path("image")).unwrap(), content);
}

/// Ends the server when the test does.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_export_of_an_nbd_server_is_read() {
    let sandbox = Sandbox::empty();
    let content = noise(2 << 20, 9);
    std::fs::write(sandbox.path("image"), &content).unwrap();
    let socket = sandbox.path("socket");
    let started = Command::new("nbdkit")
        .args(["--foreground", "--unix"])
        .arg(&socket)
        .args(["file", "image"])
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        eprintln!("skipped: nbdkit is not installed");
        return;
    };
    let _server = Server(child);
    common::process::until("nbdkit serves", || socket.exists());
    let target = format!("nbd+unix:///?socket={}", socket.display());
    let report = report(&sandbox, &["storage", &target]);
    assert_eq!(report["stores"][0]["kind"], "network block device");
    let rows = report["rows"].as_array().unwrap();
    let read: u64 = rows
        .iter()
        .flat_map(|row| row["rounds"].as_array().unwrap())
        .map(|round| round["bytes"].as_u64().unwrap())
        .sum();
    assert!(read > 0, "{report}");
    assert_eq!(std::fs::read(sandbox.path("image")).unwrap(), content);
}

#[test]
fn what_is_no_store_is_refused_with_what_would_be_one() {
    let sandbox = Sandbox::empty();
    for (target, said) in [
        ("nothing-here", "KIND:DIRECTORY"),
        ("/dev/null", "neither directory, file nor block device"),
        ("nbd://", "nbd://HOST"),
    ] {
        let ran = sandbox.run(["bench", "storage", target]);
        assert_eq!(ran.code, 2, "{target}: {}", ran.err);
        assert!(ran.err.contains(said), "{target}: {}", ran.err);
    }
    let ran = sandbox.run(["bench", "storage", ".", "--only", "no such row"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(left(&sandbox), [""; 0]);
}
