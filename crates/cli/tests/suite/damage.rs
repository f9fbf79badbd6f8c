//! Damage of every kind, as who uses the command meets it: what it says, what still reads, how it exits.

use crate::common;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::common::{CHEAP, Sandbox, noise, words};
use serde_json::Value;

/// A room with `/good` and `/bad` in two segments, the second of which is returned.
fn two_segments() -> (Sandbox, PathBuf) {
    let s = Sandbox::with_room();
    std::fs::write(s.path("good"), noise(100_000, 1)).unwrap();
    std::fs::write(s.path("bad"), noise(100_000, 2)).unwrap();
    s.with_pass(["cp", "good", "room:/good"]);
    let before = segments(&s);
    s.with_pass(["cp", "bad", "room:/bad"]);
    let new = segments(&s)
        .into_iter()
        .find(|segment| !before.contains(segment));
    (
        s,
        new.expect("a second opening writes to a segment of its own"),
    )
}

fn segments(s: &Sandbox) -> Vec<PathBuf> {
    std::fs::read_dir(s.path("room/segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

/// Changes one bit of the first data block.
fn flip(segment: &PathBuf) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 4096).unwrap();
}

#[test]
fn a_flipped_bit_fails_its_file_with_exit_5_and_no_other() {
    let (s, segment) = two_segments();
    flip(&segment);
    assert_eq!(
        s.run(["cat", "room:/good", "--passphrase-file", "pass"])
            .out,
        noise(100_000, 1)
    );
    let err = s.fails(5, ["cat", "room:/bad"]);
    assert!(
        err.contains("strongroom: room:/bad: ") && err.contains("offset 0"),
        "{err}"
    );
    // A copy of everything brings out what is whole.
    s.fails(5, ["cp", "-r", "room:/", "out"]);
    assert_eq!(
        std::fs::read(s.path("out/good")).unwrap(),
        noise(100_000, 1)
    );
    assert!(!s.path("out/bad").exists());

    let ran = s.run(words(
        "check room --read-data --json --passphrase-file pass",
    ));
    assert_eq!(ran.code, 5, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(report["lost"][0]["path"], "/bad");
    assert_eq!(report["lost"][0]["offset"], 0);
    s.fails(5, ["check", "room", "--read-data", "--repair"]);
    s.with_pass(["check", "room", "--read-data"]);
}

#[test]
fn on_a_mount_a_flipped_bit_is_an_error_of_its_file_and_named_in_the_log() {
    let (s, segment) = two_segments();
    flip(&segment);
    if !s.mount() {
        return;
    }
    assert_eq!(
        std::fs::read(s.path("mnt/good")).unwrap(),
        noise(100_000, 1)
    );
    let error = std::fs::read(s.path("mnt/bad")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    let ran = s.run(["cat", "room:/bad"]);
    assert_eq!(
        (ran.code, ran.err.contains("the mount's log says which")),
        (5, true),
        "{}",
        ran.err
    );
    let log = std::fs::read_to_string(s.path("state/strongroom/room.log")).unwrap();
    assert!(log.contains("damaged"), "{log}");
}

#[test]
fn a_missing_segment_takes_only_its_own_files() {
    let (s, segment) = two_segments();
    std::fs::remove_file(&segment).unwrap();
    assert_eq!(
        s.run(["cat", "room:/good", "--passphrase-file", "pass"])
            .out,
        noise(100_000, 1)
    );
    s.fails(5, ["cat", "room:/bad"]);
}

#[test]
fn one_damaged_header_is_replaced_by_the_other_and_said() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("room/header.json"), "rubbish").unwrap();
    let ran = s.run(["ls", "room", "--passphrase-file", "pass"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("backup"), "{}", ran.err);
}

#[test]
fn a_copy_of_the_header_that_is_gone_is_found_by_check() {
    let s = Sandbox::with_room();
    std::fs::remove_file(s.path("room/header.backup.json")).unwrap();
    let ran = s.run(["check", "room", "--passphrase-file", "pass"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    let out = String::from_utf8_lossy(&ran.out);
    assert!(out.contains("header.backup.json: missing"), "{out}");
    s.with_pass(["check", "--repair", "room"]);
    s.with_pass(["check", "room"]);
    assert!(s.path("room/header.backup.json").exists());
}

/// What failed: a copy whose key slots or authentication were damaged, and which still reads as a header, was called whole.
#[test]
fn a_damaged_digit_in_a_copy_of_the_header_is_found_by_check() {
    let s = Sandbox::with_room();
    for name in ["header.json", "header.backup.json"] {
        let path = s.path("room").join(name);
        for key in ["\"wrapped\": \"", "\"mac\": \""] {
            let mut text = std::fs::read(&path).unwrap();
            let at = text
                .windows(key.len())
                .position(|part| part == key.as_bytes());
            let digit = &mut text[at.unwrap() + key.len()];
            *digit = if *digit == b'0' { b'1' } else { b'0' };
            std::fs::write(&path, text).unwrap();
            let ran = s.run(["check", "room", "--passphrase-file", "pass"]);
            assert_eq!(ran.code, 5, "{name} {key}: {}", ran.err);
            assert!(
                ran.text().contains(&format!("{name}: damaged")),
                "{}",
                ran.text()
            );
            s.with_pass(["check", "--repair", "room"]);
            s.with_pass(["check", "room"]);
        }
    }
}

#[test]
fn what_check_proposes_is_what_finds_and_repairs() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), noise(300_000, 5)).unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    let segment = std::fs::read_dir(s.path("room/segments")).unwrap();
    let segment = segment.map(|entry| entry.unwrap().path()).next().unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(segment)
        .unwrap();
    file.write_all_at(&[0x5a; 64], 8192).unwrap();
    let check = |args: &[&str]| {
        let args = [&["check", "room", "--passphrase-file", "pass"], args].concat();
        s.run(args)
    };
    let ran = check(&[]);
    assert!(
        ran.err.contains("the data, which was not read"),
        "{}",
        ran.err
    );
    let ran = check(&["--read-data"]);
    assert_eq!(ran.code, 5);
    assert!(ran.err.contains("--read-data --repair"), "{}", ran.err);
    check(&["--read-data", "--repair"]);
    let ran = check(&["--read-data"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("everything is whole"), "{}", ran.err);
}

#[test]
fn two_damaged_headers_say_what_to_restore() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("room/header.json"), "rubbish").unwrap();
    std::fs::write(s.path("room/header.backup.json"), "rubbish").unwrap();
    for args in [
        &["ls", "room"][..],
        &["mount", "room", "mnt"],
        &["info", "room"],
    ] {
        let err = s.fails(6, args);
        assert!(
            err.contains("both copies of the header are damaged") && err.contains("header restore"),
            "{err}"
        );
    }
    std::fs::remove_file(s.path("room/header.json")).unwrap();
    std::fs::remove_file(s.path("room/header.backup.json")).unwrap();
    let err = s.fails(6, ["ls", "room"]);
    assert!(err.contains("strongroom header restore room FILE"), "{err}");
}

#[test]
fn a_damaged_catalog_refuses_to_mount_and_names_check() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), "x").unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    let catalog = std::fs::OpenOptions::new()
        .write(true)
        .open(s.path("room/catalog.db"))
        .unwrap();
    catalog.write_all_at(&[0x5a; 64], 100).unwrap();
    for args in [&["mount", "room", "mnt"][..], &["ls", "room"]] {
        let err = s.fails(5, args);
        assert!(err.contains("strongroom check"), "{err}");
    }
    assert!(!s.is_mounted());
    s.fails(5, ["check", "room"]);
}

#[test]
fn a_room_of_a_newer_version_is_refused_by_name() {
    let s = Sandbox::with_room();
    for name in ["header.json", "header.backup.json"] {
        let path = s.path("room").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let newer = text.replacen("\"format\": 1,", "\"format\": 99,", 1);
        assert_ne!(newer, text);
        std::fs::write(&path, newer).unwrap();
    }
    for args in [&["ls", "room"][..], &["info", "room"]] {
        let err = s.fails(7, args);
        assert!(err.contains("format 99"), "{err}");
    }
}

fn copy(s: &Sandbox, from: &str, to: &str) {
    let done = std::process::Command::new("cp")
        .args(["-a", from, to])
        .current_dir(s.path(""))
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn an_older_copy_put_back_is_noticed_and_can_be_accepted() {
    let s = Sandbox::with_room();
    copy(&s, "room", "old");
    std::fs::write(s.path("f"), "x").unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    std::fs::rename(s.path("room"), s.path("new")).unwrap();
    copy(&s, "old", "room");
    let err = s.fails(8, ["ls", "room"]);
    assert!(
        err.contains("rolled back") && err.contains("--accept-rollback"),
        "{err}"
    );
    assert_eq!(s.with_pass(["ls", "room", "--accept-rollback"]), "");
}

/// Without a place to remember a room, a rollback was not noticed and nobody was warned.
#[test]
fn a_user_without_a_place_for_what_is_remembered_is_warned() {
    let s = Sandbox::with_room();
    let list = || {
        let mut command = s.command(["ls", "room", "--passphrase-file", "pass"]);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        command
    };
    let warned = common::Ran::from(list().output().unwrap());
    assert_eq!(warned.code, 0, "{}", warned.err);
    assert!(warned.err.contains("will not be noticed"), "{}", warned.err);
    let set = list()
        .env("STRONGROOM_STATE_DIR", "memory")
        .output()
        .unwrap();
    assert!(set.status.success() && set.stderr.is_empty(), "{set:?}");
    assert!(s.path("memory").is_dir());
}

/// Two machines are two users' state directories here: only the shared one has for the second machine what the first one saw.
#[test]
fn machines_that_share_a_state_directory_notice_a_rollback_of_what_either_saw() {
    let s = Sandbox::with_room();
    copy(&s, "room", "old");
    std::fs::write(s.path("f"), "x").unwrap();
    s.with_pass(["cp", "f", "room:/f", "--state-dir", "shared"]);
    std::fs::rename(s.path("room"), s.path("new")).unwrap();
    copy(&s, "old", "room");
    let second = |more: &[&str]| {
        let args = ["ls", "room", "--passphrase-file", "pass"];
        let mut command = s.command(args.iter().chain(more));
        command.env("XDG_STATE_HOME", s.path("second"));
        common::Ran::from(command.output().unwrap())
    };
    assert_eq!(second(&[]).code, 0, "it never saw the room");
    let refused = second(&["--state-dir", "shared"]);
    assert_eq!(refused.code, 8, "{}", refused.err);
    if common::can_mount() {
        let options = ["mount", "room", "mnt", "-o", "state-dir=shared"];
        assert!(s.fails(8, options).contains("rolled back"));
    }
}

#[test]
fn a_backup_is_a_room_and_a_later_one_copies_only_what_is_new() {
    let (s, _) = two_segments();
    let report = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let first = report(s.with_pass(["backup", "room", "copy", "--json"]));
    assert!(first["segments_copied"].as_u64().unwrap() >= 2, "{first}");
    s.with_pass(["cp", "pass", "room:/more"]);
    let second = report(s.with_pass(["backup", "room", "copy", "--json"]));
    assert!(second["segments_kept"].as_u64().unwrap() >= 2, "{second}");
    assert_eq!(s.with_pass(["ls", "copy"]), "bad\ngood\nmore\n");
    assert_eq!(s.with_pass(["check", "copy", "--read-data"]), "");
}

#[test]
fn a_rekeyed_room_opens_with_the_key_that_was_given_and_drops_the_others() {
    let (s, _) = two_segments();
    s.with_pass(
        words("key add room --new-passphrase-file wrong --label theirs")
            .iter()
            .chain(&CHEAP),
    );
    // What failed: which slots are lost was said when they were.
    let header = std::fs::read(s.path("room/header.json")).unwrap();
    for mounted in [false, true] {
        if mounted && !s.mount() {
            break;
        }
        let refused = s.fails(1, ["rekey", "room"]);
        assert!(
            refused.ends_with(
                "room: a rekey would drop key slots that it cannot renew: 1 (passphrase, \"theirs\"); nothing was changed. Go on \
             without them with --drop-slots, and add them again with `strongroom key add`\n"
            ),
            "{refused}"
        );
        if mounted {
            s.umount();
        }
    }
    assert_eq!(std::fs::read(s.path("room/header.json")).unwrap(), header);
    let text = s.with_pass(["rekey", "room", "--drop-slots", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["finished"], &report["dropped_slots"][0]["slot"]),
        (&Value::Bool(true), &Value::from(1))
    );
    assert_eq!(s.run(["ls", "room", "--passphrase-file", "wrong"]).code, 3);
    assert_eq!(s.with_pass(["ls", "room"]), "bad\ngood\n");
    assert_eq!(
        s.run(["cat", "room:/bad", "--passphrase-file", "pass"]).out,
        noise(100_000, 2)
    );
    s.with_pass(["check", "room", "--read-data"]);
}

#[test]
fn maintenance_works_on_a_mounted_room() {
    let (s, _) = two_segments();
    if !s.mount() {
        return;
    }
    std::fs::remove_file(s.path("mnt/bad")).unwrap();
    s.ok(["sync", "room"]);
    s.ok(["compact", "room", "--json"]);
    s.ok(["check", "room", "--read-data"]);
    s.ok(["backup", "room", "copy"]);
    s.with_pass(["rekey", "room"]);
    assert_eq!(
        std::fs::read(s.path("mnt/good")).unwrap(),
        noise(100_000, 1)
    );
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
    // This machine has seen a newer state of the room, of which the copy is one.
    assert_eq!(s.with_pass(["ls", "copy", "--accept-rollback"]), "good\n");
}
