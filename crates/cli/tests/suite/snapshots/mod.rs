//! Snapshots through the real program: the commands, paths in a snapshot, restores, and the policy of a room; mounted and unmounted.
mod differences;
mod full;
mod mounts;
mod restores;
mod undeletes;

use std::fs;

use crate::common::{Sandbox, noise, process::until};
use serde_json::{Value, json};

/// How a test reaches the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Unmounted,
    Mounted,
}

/// Runs a test both ways, each in a room of its own; mounted only where this machine can.
fn both_ways(test: impl Fn(&Sandbox)) {
    for way in [Way::Unmounted, Way::Mounted] {
        let s = Sandbox::with_room();
        if way == Way::Mounted && !s.mount() {
            return;
        }
        test(&s);
        if way == Way::Mounted {
            s.umount();
        }
        s.with_pass(["check", "--read-data", "room"]);
    }
}

/// Runs a command that needs a passphrase only where the room is not mounted.
fn ok(s: &Sandbox, args: &[&str]) -> String {
    s.with_pass(args)
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn names(s: &Sandbox) -> Vec<String> {
    json_lines(&ok(s, &["snapshot", "list", "room", "--json"]))
        .iter()
        .map(|snapshot| snapshot["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Puts a file with these contents into the room.
fn put(s: &Sandbox, path: &str, contents: &[u8]) {
    fs::write(s.path("in"), contents).unwrap();
    ok(s, &["cp", "in", &format!("room:{path}")]);
}

#[test]
fn snapshots_are_created_listed_renamed_and_deleted() {
    both_ways(|s| {
        assert_eq!(ok(s, &["snapshot", "list", "room"]), "");
        put(s, "/f", b"first");
        assert_eq!(ok(s, &["snapshot", "create", "room", "monday"]), "monday\n");
        // Without a name it is the time.
        let by_time = ok(s, &["snapshot", "create", "room"]);
        let by_time = by_time.trim_end();
        assert_eq!(by_time.len(), "2026-11-25T10.00.00Z".len());
        assert!(by_time.ends_with('Z') && by_time.contains('T'), "{by_time}");
        assert_eq!(names(s), ["monday", by_time]);
        let listed = json_lines(&ok(s, &["snapshot", "list", "room", "--json"]));
        assert_eq!(listed[0]["number"], 1);
        assert_eq!(listed[0]["automatic"], false);
        assert!(listed[0]["created"]["secs"].as_i64().unwrap() > 1_700_000_000);
        let text = ok(s, &["snapshot", "list", "room"]);
        assert!(text.contains("by hand"), "{text}");
        let shown: Value =
            serde_json::from_str(&ok(s, &["snapshot", "show", "room", "monday", "--json"]))
                .unwrap();
        assert_eq!(shown, listed[0]);
        assert!(ok(s, &["snapshot", "show", "room", "monday"]).contains("number       1"));

        ok(
            s,
            &["snapshot", "rename", "room", "monday", "start of week"],
        );
        assert_eq!(names(s), ["start of week", by_time]);
        ok(s, &["snapshot", "delete", "room", "start of week", by_time]);
        assert!(names(s).is_empty());
        // A number is never used again.
        ok(s, &["snapshot", "create", "room", "monday"]);
        let shown = ok(s, &["snapshot", "show", "room", "monday", "--json"]);
        assert_eq!(json_lines(&shown)[0]["number"], 3);
    });
}

#[test]
fn bad_and_missing_names_are_refused_with_words() {
    both_ways(|s| {
        ok(s, &["snapshot", "create", "room", "monday"]);
        for bad in ["a/b", "a@b", "a:b", "..", "", "a\nb"] {
            s.fails(2, ["snapshot", "create", "room", bad]);
            s.fails(2, ["snapshot", "rename", "room", "monday", bad]);
        }
        let error = s.fails(1, ["snapshot", "create", "room", "monday"]);
        assert!(error.contains("a snapshot monday already"), "{error}");
        ok(s, &["snapshot", "create", "room", "tuesday"]);
        s.fails(1, ["snapshot", "rename", "room", "monday", "tuesday"]);
        for args in [
            &["snapshot", "show", "room", "sunday"][..],
            &["snapshot", "rename", "room", "sunday", "x"],
            &["snapshot", "delete", "room", "sunday"],
            &["snapshot", "diff", "room", "sunday"],
            &["snapshot", "diff", "room", "monday", "sunday"],
            &["snapshot", "restore", "room", "sunday", "/"],
            &["ls", "room@sunday"],
            &["cat", "room@sunday:/f"],
            &["export", "room@sunday", "--tar", "out.tar"],
        ] {
            let error = s.fails(1, args);
            assert!(error.contains("there is no snapshot sunday"), "{error}");
        }
        // One that is missing keeps no other from being deleted.
        let error = s.fails(1, ["snapshot", "delete", "room", "sunday", "monday"]);
        assert!(!error.contains("failed; see above"), "{error}");
        assert_eq!(names(s), ["tuesday"]);
        s.fails(10, ["snapshot", "list", "nothing"]);
    });
}

#[test]
fn a_path_in_a_snapshot_is_read_and_never_changed() {
    both_ways(|s| {
        ok(s, &["mkdir", "room:/d"]);
        put(s, "/d/f", b"first");
        ok(s, &["ln", "-s", "/d/f", "room:/soft"]);
        ok(s, &["snapshot", "create", "room", "monday"]);
        put(s, "/d/f", b"second, longer");
        put(s, "/d/g", b"new");
        ok(s, &["rm", "room:/soft"]);

        assert_eq!(ok(s, &["cat", "room@monday:/d/f"]), "first");
        // A link of then leads to a file of then.
        assert_eq!(ok(s, &["cat", "room@monday:/soft"]), "first");
        assert_eq!(ok(s, &["cat", "room:/d/f"]), "second, longer");
        assert_eq!(ok(s, &["ls", "room@monday:/d"]), "f\n");
        assert_eq!(ok(s, &["ls", "room@monday"]), "d\nsoft\n");
        assert_eq!(ok(s, &["ls", "room:/d"]), "f\ng\n");
        assert!(ok(s, &["tree", "room@monday"]).contains("soft -> /d/f"));
        let stat = json_lines(&ok(s, &["stat", "--json", "room@monday:/d/f"]));
        assert_eq!(stat[0]["size"], 5);
        let du = json_lines(&ok(
            s,
            &["du", "-s", "--apparent-size", "--json", "room@monday:/d/f"],
        ));
        assert_eq!(du[0]["bytes"], 5);
        let error = s.fails(1, ["cat", "room@monday:/d/g"]);
        assert!(error.contains("room@monday:/d/g"), "{error}");

        // To the host, and within the room.
        ok(s, &["cp", "-r", "room@monday:/d", "out"]);
        assert_eq!(fs::read(s.path("out/f")).unwrap(), b"first");
        ok(s, &["cp", "room@monday:/d/f", "room:/d/f"]);
        assert_eq!(ok(s, &["cat", "room:/d/f"]), "first");
        ok(s, &["export", "room@monday", "--tar", "out.tar"]);
        let listed = std::process::Command::new("tar")
            .args(["-tf", "out.tar"])
            .current_dir(s.path(""))
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(
            listed.contains("d/f") && !listed.contains("d/g"),
            "{listed}"
        );

        for args in [
            &["rm", "room@monday:/d/f"][..],
            &["mkdir", "room@monday:/e"],
            &["mv", "room@monday:/d/f", "room:/x"],
            &["mv", "in", "room@monday:/x"],
            &["cp", "in", "room@monday:/x"],
            &["ln", "room@monday:/d/f", "room:/x"],
            &["import", "out", "room@monday"],
        ] {
            let error = s.fails(2, args);
            assert!(error.contains("in a snapshot"), "{args:?}: {error}");
        }
    });
}

#[test]
fn a_room_whose_name_has_an_at_is_that_room() {
    let s = Sandbox::with_room();
    s.with_pass(["snapshot", "create", "room", "monday"]);
    put(&s, "/f", b"now");
    assert_eq!(s.with_pass(["ls", "room@monday:/"]), "");
    fs::rename(s.path("room"), s.path("other")).unwrap();
    s.create();
    fs::rename(s.path("room"), s.path("room@monday")).unwrap();
    fs::rename(s.path("other"), s.path("room")).unwrap();
    fs::write(s.path("in"), "of the other").unwrap();
    s.with_pass(["cp", "in", "room@monday:/g"]);
    assert_eq!(s.with_pass(["ls", "room@monday:/"]), "g\n");
    assert_eq!(s.with_pass(["ls", "room@monday"]), "g\n");
    s.with_pass(["snapshot", "create", "room@monday", "x"]);
    s.with_pass(["rm", "room@monday:/g"]);
    assert_eq!(s.with_pass(["ls", "room@monday@x"]), "g\n");
}

#[test]
fn space_that_snapshots_hold_is_shown_and_freed() {
    both_ways(|s| {
        const LEN: usize = 4 << 20;
        put(s, "/f", &noise(LEN, 1));
        ok(s, &["snapshot", "create", "room", "a"]);
        let held = |command: &str| {
            let shown = json_lines(&ok(s, &[command, "room", "--json"]));
            let space = match command {
                "info" => &shown[0]["space"],
                _ => &shown[0],
            };
            space["snapshots"].as_u64().unwrap()
        };
        assert_eq!(held("df"), 0);
        ok(s, &["rm", "room:/f"]);
        assert_eq!(held("df"), LEN as u64);
        assert_eq!(held("info"), LEN as u64);
        let shown = json_lines(&ok(s, &["snapshot", "show", "room", "a", "--json"]));
        assert_eq!(shown[0]["exclusive"], LEN as u64);
        assert!(ok(s, &["info", "room"]).contains("4.00 MiB in 1 snapshot"));
        let used = json_lines(&ok(s, &["du", "--snapshots", "room", "--json"]));
        assert_eq!(
            used,
            [
                json!({"snapshot": "a", "bytes": LEN}),
                json!({"snapshots": 1, "bytes": LEN}),
            ]
        );
        let used = ok(s, &["du", "--snapshots", "room"]);
        assert!(
            used.contains("4.00 MiB  a\n") && used.contains("1 snapshot together"),
            "{used}"
        );
        assert!(
            s.fails(2, ["du", "--snapshots", "room:/f"])
                .contains("whole room")
        );
        ok(s, &["snapshot", "delete", "room", "a"]);
        if s.is_mounted() {
            until("the space is free", || held("df") == 0);
        }
        assert_eq!(held("df"), 0);
    });
}

/// The room, opened as the program opens it.
fn open(s: &Sandbox) -> room::Room {
    let credential = room::Credential::Passphrase("correct horse battery staple".into());
    room::Room::open(
        &s.path("room"),
        &credential,
        room::OpenOptions::with_state_dir(s.path("state/strongroom")),
    )
    .unwrap()
}
