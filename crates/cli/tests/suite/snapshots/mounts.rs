//! Mounts of snapshots and beside them, and the policy that the process of a mount applies.

use std::fs;

use serde_json::Value;

use super::{both_ways, json_lines, names, ok, open, put};
use crate::common::{self, Sandbox, noise, process::until, words};

#[test]
fn what_programs_wrote_to_a_mount_is_in_the_snapshot() {
    let Some(s) = Sandbox::mounted() else { return };
    // Not synced: the kernel has it.
    fs::write(s.path("mnt/f"), noise(3 << 20, 7)).unwrap();
    s.ok(["snapshot", "create", "room", "now"]);
    fs::write(s.path("mnt/f"), "shorter").unwrap();
    s.ok(["cp", "room@now:/f", "out"]);
    assert!(fs::read(s.path("out")).unwrap() == noise(3 << 20, 7));
}

#[test]
fn a_snapshot_can_be_mounted_in_the_place_of_the_room() {
    let s = Sandbox::with_room();
    put(&s, "/f", b"first");
    s.with_pass(["snapshot", "create", "room", "monday"]);
    put(&s, "/f", b"second");
    if !common::can_mount() {
        return;
    }
    s.fails(1, ["mount", "room", "mnt", "--snapshot", "sunday"]);
    assert!(!s.is_mounted());
    s.fails(2, ["mount", "room", "mnt", "--snapshot", "a/b"]);
    s.with_pass(["mount", "room", "mnt", "--snapshot", "monday"]);
    assert_eq!(fs::read(s.path("mnt/f")).unwrap(), b"first");
    let refused = fs::write(s.path("mnt/f"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    // Commands know what they see.
    assert_eq!(s.ok(["cat", "room@monday:/f"]), "first");
    let error = s.run(["cat", "room:/f"]);
    assert_eq!(error.code, 4, "{}", error.err);
    assert!(
        error.err.contains("its snapshot monday is mounted"),
        "{}",
        error.err
    );
    assert_eq!(names(&s), ["monday"]);
    assert_ne!(s.run(["snapshot", "create", "room", "x"]).code, 0);
    s.umount();
    s.with_pass(["mount", "room", "mnt", "-o", "snapshot=monday"]);
    assert_eq!(fs::read(s.path("mnt/f")).unwrap(), b"first");
    s.umount();
    assert!(s.mount());
    assert_eq!(fs::read(s.path("mnt/f")).unwrap(), b"second");
    let error = s.fails(4, ["mount", "room", "run", "--snapshot", "monday"]);
    assert!(error.contains("mnt/.snapshots/monday"), "{error}");
}

#[test]
fn a_mount_without_snapshots_or_with_a_file_of_their_name_says_so() {
    let s = Sandbox::with_room();
    put(&s, "/f", b"first");
    s.with_pass(["snapshot", "create", "room", "monday"]);
    if !common::can_mount() {
        return;
    }
    s.with_pass(["mount", "room", "mnt", "--snapshots", "off"]);
    let error = s.fails(4, ["cat", "room@monday:/f"]);
    assert!(error.contains("--snapshots off"), "{error}");
    s.umount();
    fs::create_dir_all(s.path("t/monday")).unwrap();
    fs::write(s.path("t/monday/f"), "of the user").unwrap();
    s.with_pass(["cp", "-r", "t", "room:/.snapshots"]);
    assert!(s.mount());
    let error = s.fails(4, ["cat", "room@monday:/f"]);
    assert!(error.contains("is named .snapshots"), "{error}");
    s.umount();
    s.with_pass(words(
        "mount room mnt --snapshots-name past --snapshots show",
    ));
    assert_eq!(s.ok(["cat", "room@monday:/f"]), "first");
    // What the mount shows of snapshots is no file of the room.
    assert!(s.path("mnt/past").exists());
    assert_eq!(s.ok(["ls", "-a", "room:/"]), ".snapshots\nf\n");
    s.ok(["snapshot", "restore", "room", "monday", "/"]);
    assert_eq!(s.ok(["ls", "-a", "room:/"]), "f\n");
}

#[test]
fn a_policy_is_set_shown_and_removed() {
    both_ways(|s| {
        assert_eq!(
            ok(s, &["snapshot", "policy", "show", "room"]),
            "no policy\n"
        );
        let error = s.fails(1, ["snapshot", "prune", "room"]);
        assert!(error.contains("has no snapshot policy"), "{error}");
        s.fails(2, ["snapshot", "policy", "set", "room"]);
        s.fails(
            2,
            words("snapshot policy set room --daily 1 --min-free 100%"),
        );
        ok(
            s,
            &words("snapshot policy set room --hourly 24 --weekly 5 --min-free 10%"),
        );
        let shown = json_lines(&ok(s, &["snapshot", "policy", "show", "room", "--json"]));
        assert_eq!(
            shown[0]["policy"],
            serde_json::json!({"hourly": 24, "daily": 0, "weekly": 5, "min_free_percent": 10})
        );
        ok(s, &["snapshot", "policy", "clear", "room"]);
        assert_eq!(
            json_lines(&ok(s, &["snapshot", "policy", "show", "room", "--json"]))[0]["policy"],
            Value::Null
        );
    });
}

#[test]
fn a_mount_creates_automatic_snapshots_and_prune_leaves_those_by_hand() {
    let s = Sandbox::with_room();
    s.with_pass(["snapshot", "policy", "set", "room", "--weekly", "1"]);
    s.with_pass(["snapshot", "create", "room", "mine"]);
    if !s.mount() {
        return;
    }
    until("an automatic snapshot", || names(&s).len() == 2);
    let listed = json_lines(&s.ok(["snapshot", "list", "room", "--json"]));
    assert_eq!(listed[1]["automatic"], true);
    assert!(listed[1]["name"].as_str().unwrap().starts_with("auto-"));
    assert_eq!(s.ok(["snapshot", "prune", "room"]), "");
    s.umount();
    // Two of one week: the older one goes. The week could end between them.
    automatic(&s, "later");
    assert_eq!(
        s.with_pass(["snapshot", "prune", "room", "--dry-run"])
            .lines()
            .count(),
        1
    );
    assert_eq!(names(&s).len(), 3);
    s.with_pass(["snapshot", "prune", "room"]);
    assert_eq!(names(&s), ["mine", "later"]);
    // No disk has 99 % free: all automatic ones that hold anything go, and none by hand.
    put(&s, "/f", &noise(1 << 20, 1));
    automatic(&s, "with f");
    s.with_pass(["rm", "room:/f"]);
    s.with_pass(words("snapshot policy set room --hourly 9 --min-free 99%"));
    s.with_pass(["snapshot", "prune", "room"]);
    assert_eq!(names(&s), ["mine"]);
}

/// Creates a snapshot as a policy would.
fn automatic(s: &Sandbox, name: &str) {
    let room = open(s);
    let new = room::NewSnapshot { automatic: true };
    room.create_snapshot(name, new).unwrap();
    room.close().unwrap();
}
