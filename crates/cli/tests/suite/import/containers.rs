//! Containers of IOCipher into rooms.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{import, state};
use crate::common::{Sandbox, noise, words};

/// A container of SQLCipher 3 as an app leaves that was killed: all of it is in the log. `c` and `c-wal`.
pub(super) fn make(s: &Sandbox) {
    make_at(&s.path("c"), 3);
    std::fs::write(s.path("c.pass"), "open sesame\n").unwrap();
}

fn make_at(at: &Path, version: u8) {
    let made = at.with_extension("made");
    let connection = Connection::open(&made).unwrap();
    connection
        .execute_batch("PRAGMA cipher_log_level = NONE; PRAGMA key = 'open sesame'")
        .unwrap();
    if version < 4 {
        connection
            .execute_batch(&format!("PRAGMA cipher_compatibility = {version}"))
            .unwrap();
    }
    connection
        .execute_batch(
            "PRAGMA cipher_page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE meta_data(key text, type text, inode integer, uid integer, gid integer, mode integer, acl text,
                 attribute text, atime integer, mtime integer, ctime integer, size integer, block_size integer,
                 primary key (key), unique(key));
             CREATE TABLE value_data (key text, block_no integer, data_block blob, unique(key, block_no));",
        )
        .unwrap();
    let row = |key: &str, kind: &str, mode: i64, size: usize| {
        connection
            .execute(
                "INSERT INTO meta_data (key, type, uid, gid, mode, atime, mtime, size, block_size) VALUES (?1, ?2, 10123, 10123, ?3, 1500000000, 1500000001, ?4, 8192)",
                params![key, kind, mode, size as i64],
            )
            .unwrap();
    };
    let block = |key: &str, no: usize, data: &[u8]| {
        connection
            .execute(
                "INSERT INTO value_data VALUES (?1, ?2, ?3)",
                params![key, no as i64, data],
            )
            .unwrap();
    };
    row("/", "dir", 0o40700, 0);
    row("/papers", "dir", 0o40750, 0);
    for (n, size) in [0, 1, 8191, 8192, 8193, 500_000].into_iter().enumerate() {
        let key = format!("/papers/f[{n}]");
        row(&key, "blob", 0o100_640, size);
        for (no, piece) in noise(size, n as u64 + 5).chunks(8192).enumerate() {
            block(&key, no, piece);
        }
    }
    row("/secret", "blob", 0, 6);
    block("/secret", 0, b"secret");
    row("/link", "sym link", 0o120_777, 7);
    block("/link", 0, b"papers\0");
    row("/gap", "blob", 0o100_600, 1 << 30);
    block("/gap", 100_000, &[7; 8192]);
    for suffix in ["", "-wal"] {
        std::fs::copy(
            format!("{}{suffix}", made.display()),
            format!("{}{suffix}", at.display()),
        )
        .unwrap();
    }
    drop(connection);
    std::fs::remove_file(&made).unwrap();
}

fn is_whole(s: &Sandbox, at: &str) {
    for (n, size) in [0, 1, 8191, 8192, 8193, 500_000].into_iter().enumerate() {
        let ran = s.run([
            "cat",
            &format!("{at}/papers/f[{n}]"),
            "--passphrase-file",
            "pass",
        ]);
        assert_eq!(ran.out, noise(size, n as u64 + 5));
    }
    assert_eq!(s.with_pass(["cat", &format!("{at}/secret")]), "secret");
    let stat = |path: &str| -> serde_json::Value {
        serde_json::from_str(&s.with_pass(["stat", "--json", &format!("{at}{path}")])).unwrap()
    };
    // It belongs to the importing user; a mode of nothing becomes one for this user alone.
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(
        (
            stat("/secret")["mode"].as_str(),
            stat("/secret")["uid"].as_u64()
        ),
        (Some("0600"), Some(uid.into()))
    );
    assert_eq!(stat("/papers")["mode"], "0750");
    assert_eq!(stat("/papers/f[3]")["modified"]["secs"], 1_500_000_001);
    assert_eq!(stat("/link")["target"], "papers");
    assert_eq!(stat("/gap")["size"], 1 << 30);
    assert!(stat("/gap")["allocated"].as_u64().unwrap() < 1 << 20);
}

#[test]
fn a_container_comes_whole_into_a_room_and_is_not_changed() {
    let s = Sandbox::with_room();
    make(&s);
    let before = state(&s.path(""));
    let source = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name == "c" || name == "c-wal")
    };
    let report = import(
        &s,
        &["c", "room:/old/phone", "--source-passphrase-file", "c.pass"],
    );
    assert_eq!(report["files"], 11, "{report}");
    assert_eq!(
        (&report["present"], &report["different"]),
        (&0.into(), &0.into())
    );
    assert_eq!(report["compared"], 11);
    is_whole(&s, "room:/old/phone");
    // Again: all of it is there.
    let again = import(
        &s,
        &["c", "room:/old/phone", "--source-passphrase-file", "c.pass"],
    );
    assert_eq!(
        (&again["bytes"], &again["present"]),
        (&0.into(), &9.into()),
        "{again}"
    );
    let after = state(&s.path(""));
    for (path, words) in before.iter().filter(|(path, _)| source(path)) {
        assert_eq!(after[path], *words, "{}", path.display());
    }
    let made = |state: &std::collections::BTreeMap<std::path::PathBuf, String>| {
        state
            .keys()
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with('c'))
            .count()
    };
    assert_eq!(
        made(&before),
        made(&after),
        "something was made beside the container"
    );
}

#[test]
fn a_container_comes_into_a_mounted_room() {
    let s = Sandbox::with_room();
    make(&s);
    if !s.mount() {
        return;
    }
    s.ok(["import", "c", "room", "--source-passphrase-file", "c.pass"]);
    is_whole(&s, "room:");
    assert_eq!(std::fs::read(s.path("mnt/secret")).unwrap(), b"secret");
    super::nothing_is_left(&s.path("mnt"));
    s.umount();
    is_whole(&s, "room:");
}

#[test]
fn keys_that_do_not_open_a_container_are_reported_with_what_was_tried() {
    let s = Sandbox::with_room();
    make(&s);
    let wrong = s.fails(
        3,
        ["import", "c", "room", "--source-passphrase-file", "wrong"],
    );
    assert!(wrong.contains("SQLCipher 4, 3 and 2"), "{wrong}");
    let none = s.fails(3, ["import", "c", "room"]);
    assert!(none.contains("--source-passphrase-file"), "{none}");
    std::fs::write(s.path("c.key"), [7; 31]).unwrap();
    s.fails(2, ["import", "c", "room", "--source-key-file", "c.key"]);
    let text = s.fails(3, words("import pass room --source-passphrase-file wrong"));
    assert!(text.contains("pass"), "{text}");
    assert_eq!(s.with_pass(["ls", "room:/"]), "");
}

#[test]
fn what_is_damaged_is_named_and_a_run_on_a_whole_copy_goes_on() {
    let s = Sandbox::with_room();
    make(&s);
    let log = s.path("c-wal");
    // Moved into the main file, so that a page has one place.
    let connection = Connection::open(s.path("c")).unwrap();
    connection
        .execute_batch("PRAGMA cipher_log_level = NONE; PRAGMA key = 'open sesame'; PRAGMA cipher_compatibility = 3; PRAGMA cipher_page_size = 8192;")
        .unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    let _ = std::fs::remove_file(log);
    let good = std::fs::read(s.path("c")).unwrap();
    let mut bad = good.clone();
    // In the middle of the large file's blocks.
    let at = bad.len() / 2;
    bad[at] ^= 1;
    std::fs::write(s.path("c"), &bad).unwrap();
    let said = s.fails(
        5,
        ["import", "c", "room", "--source-passphrase-file", "c.pass"],
    );
    assert!(said.contains("/papers/f[5]"), "{said}");
    assert_eq!(s.with_pass(["cat", "room:/secret"]), "secret");
    let gone = s.run(["stat", "room:/papers/f[5]", "--passphrase-file", "pass"]);
    assert_ne!(gone.code, 0, "half a file was left");
    std::fs::write(s.path("c"), &good).unwrap();
    let report = import(&s, &["c", "room", "--source-passphrase-file", "c.pass"]);
    assert_eq!(report["present"], 8, "{report}");
    is_whole(&s, "room:");
}

/// The containers that the original library made.
#[test]
fn the_original_library_s_containers_come_into_a_room() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/iocipher");
    if !golden.exists() {
        eprintln!("skipped: no containers of the original library at ../shared/golden/iocipher");
        return;
    }
    let s = Sandbox::with_room();
    std::fs::write(s.path("c.pass"), "open sesame").unwrap();
    let digits: String = (0..32)
        .map(|i| format!("{:02x}", (7 * i + 1) % 256))
        .collect();
    std::fs::write(s.path("c.key"), digits).unwrap();
    for (name, key) in [
        ("plain-8k", &[][..]),
        ("v3-128k-pass", &["--source-passphrase-file", "c.pass"]),
        ("v4-8k-raw", &["--source-key-file", "c.key"]),
    ] {
        let dir = s.path(name);
        std::fs::create_dir(&dir).unwrap();
        let unpacked = std::process::Command::new("tar")
            .arg("-xJf")
            .arg(golden.join(format!("{name}.tar.xz")))
            .arg("-C")
            .arg(&dir)
            .status();
        if !unpacked.is_ok_and(|status| status.success()) {
            eprintln!("skipped: tar and xz are needed to unpack the containers");
            return;
        }
        let before = state(&dir);
        let at = before
            .keys()
            .find(|path| {
                path.is_file()
                    && path
                        .extension()
                        .is_none_or(|e| !e.to_str().unwrap().contains('-'))
                    && !path.to_str().unwrap().ends_with("-wal")
            })
            .unwrap();
        let target = format!("room:/{name}");
        let mut args = vec![at.to_str().unwrap(), &target];
        args.extend(key);
        let report = import(&s, &args);
        // All but the root are in the list.
        assert_eq!(report["files"], 24, "{name}: {report}");
        assert_eq!(
            s.with_pass(["cat", &format!("room:/{name}/size-1")]).len(),
            1
        );
        assert_eq!(state(&dir), before, "{name}");
    }
}
