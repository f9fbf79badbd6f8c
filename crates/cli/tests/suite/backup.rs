//! A backup, what may be done with it, and a room restored from it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Sandbox, can_mount, noise};

/// Bytes of files by path.
type Files = BTreeMap<String, Vec<u8>>;

/// Every file below a directory, with its bytes.
fn files(dir: &Path) -> Files {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type().unwrap().is_dir() {
            true => {
                let below = files(&entry.path());
                found.extend(
                    below
                        .into_iter()
                        .map(|(path, bytes)| (format!("{name}/{path}"), bytes)),
                );
            }
            // The lock's content is the process that has the room open, or had it last.
            false if name == "lock" => {}
            false => {
                found.insert(name, std::fs::read(entry.path()).unwrap_or_default());
            }
        }
    }
    found
}

fn with_files() -> Sandbox {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), noise(300_000, 5)).unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    s.with_pass(["mkdir", "room:/d"]);
    s.with_pass(["cp", "pass", "room:/d/pass"]);
    s
}

/// What failed: a backup shared the room's memory of generations. Mounting it once raised that, and the room itself was refused
/// as rolled back (exit code 8).
#[test]
fn a_mounted_backup_does_not_lock_its_room_out() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    if can_mount() {
        std::fs::create_dir_all(s.path("mnt")).unwrap();
        s.with_pass(["mount", "copy", "mnt"]);
        assert_eq!(std::fs::read(s.path("mnt/f")).unwrap(), noise(300_000, 5));
        for n in 0..4 {
            std::fs::write(s.path("mnt/more"), [n]).unwrap();
            s.ok(["sync", "copy"]);
        }
        s.umount();
    } else {
        for _ in 0..4 {
            s.with_pass(["cp", "pass", "copy:/more"]);
        }
    }
    assert_eq!(s.with_pass(["ls", "room"]), "d\nf\n");
    s.with_pass(["cp", "pass", "room:/later"]);
    assert_eq!(s.with_pass(["ls", "copy"]), "d\nf\nmore\n");
}

#[test]
fn an_older_backup_is_read_and_nothing_of_it_changes() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    for n in 0..4 {
        s.with_pass(["cp", "pass", &format!("room:/{n}")]);
    }
    let before = (files(&s.path("copy")), files(&s.path("state")));
    assert_eq!(s.with_pass(["ls", "copy"]), "d\nf\n");
    assert_eq!(s.with_pass(["check", "copy", "--read-data"]), "");
    if can_mount() {
        std::fs::create_dir_all(s.path("mnt")).unwrap();
        s.with_pass(["mount", "-r", "copy", "mnt", "--log", "log"]);
        assert_eq!(std::fs::read(s.path("mnt/f")).unwrap(), noise(300_000, 5));
        s.umount();
    }
    let after = (files(&s.path("copy")), files(&s.path("state")));
    let names = |of: &(Files, Files)| of.0.keys().chain(of.1.keys()).cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    assert!(before == after, "a file changed");
    assert_eq!(s.with_pass(["ls", "room"]), "0\n1\n2\n3\nd\nf\n");
}

#[test]
fn a_room_is_restored_where_the_lost_one_was() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    s.with_pass(["cp", "pass", "room:/after"]);
    let there = s.fails(1, ["restore", "copy", "room"]);
    assert_eq!(
        there,
        "strongroom: room: there is a room here already, which is not overwritten; restore to a new directory, or move this \
         one away first: mv room room.old\n"
    );
    std::fs::remove_dir_all(s.path("room")).unwrap();
    let before = (files(&s.path("copy")), s.path("copy"));
    let ran = s.run(["restore", "copy", "room", "--passphrase-file", "pass"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("Restored room from copy"), "{}", ran.err);
    assert!(ran.err.contains("everything is whole"), "{}", ran.err);
    assert!(files(&before.1) == before.0, "the backup changed");
    // The restored room is what this machine remembers of the place now.
    assert_eq!(s.with_pass(["ls", "room"]), "d\nf\n");
    s.with_pass(["cp", "pass", "room:/new"]);
    assert_eq!(s.with_pass(["ls", "room:"]), "d\nf\nnew\n");
    assert_eq!(
        s.run(["cat", "room:/f", "--passphrase-file", "pass"]).out,
        noise(300_000, 5)
    );
    s.with_pass(["backup", "room", "second"]);
}

#[test]
fn a_restore_writes_over_nothing_and_goes_on_where_it_was_stopped() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    std::fs::create_dir(s.path("full")).unwrap();
    std::fs::write(s.path("full/file"), "x").unwrap();
    let full = s.fails(1, ["restore", "copy", "full"]);
    assert_eq!(
        full,
        "strongroom: full: exists and is not empty; choose a new directory\n"
    );
    assert_eq!(s.fails(10, ["restore", "full", "again"]).lines().count(), 1);
    assert_eq!(
        s.run(["restore", "copy", "no/such", "--passphrase-file", "pass"])
            .err,
        "strongroom: no/such: no does not exist; make it first with: mkdir -p no\n"
    );
    assert_eq!(
        s.run(["restore", "copy", "again", "--passphrase-file", "wrong"])
            .code,
        3
    );
    assert!(!s.path("again").exists());
    // As a killed restore leaves it: segments, no header.
    let id = s.ok(["info", "copy", "--json"]);
    let id: serde_json::Value = serde_json::from_str(&id).unwrap();
    std::fs::create_dir_all(s.path("again/segments")).unwrap();
    std::fs::write(
        s.path("again/backup.incomplete"),
        id["id"].as_str().unwrap(),
    )
    .unwrap();
    std::fs::write(s.path("again/segments/00000000000000000001.new"), "half").unwrap();
    s.with_pass(["restore", "copy", "again"]);
    assert_eq!(s.with_pass(["ls", "again"]), "d\nf\n");
    assert!(!s.path("again/backup.incomplete").exists());
}

#[test]
fn what_a_damaged_backup_lacks_is_listed() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    let mut segments: Vec<_> = std::fs::read_dir(s.path("copy/segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    segments.sort();
    std::fs::remove_file(&segments[0]).unwrap();
    let ran = s.run(["restore", "copy", "again", "--passphrase-file", "pass"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.text().contains("missing   segment "), "{}", ran.text());
    assert!(ran.text().contains("lost      /"), "{}", ran.text());
    assert_eq!(s.with_pass(["ls", "again"]), "d\nf\n");
    let ran = s.run(["backup", "again", "third", "--passphrase-file", "pass"]);
    assert_eq!(
        (ran.code, ran.text().contains("missing")),
        (5, true),
        "{}",
        ran.err
    );
}

#[test]
fn a_backup_goes_over_nothing_else_and_says_what_is_there() {
    let s = with_files();
    std::fs::create_dir(s.path("full")).unwrap();
    std::fs::write(s.path("full/file"), "x").unwrap();
    let full = s.path("full");
    assert_eq!(
        s.fails(1, ["backup", "room", "full"]),
        format!(
            "strongroom: {}: exists, is not empty, and is no earlier backup of this room; choose a new directory\n",
            full.display()
        )
    );
}

#[test]
fn a_backup_into_the_mount_of_its_room_is_refused() {
    if !can_mount() {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let s = with_files();
    std::fs::create_dir_all(s.path("mnt")).unwrap();
    s.with_pass(["mount", "room", "mnt"]);
    for target in ["mnt/copy", "mnt/d/copy"] {
        let err = s.fails(2, ["backup", "room", target]);
        assert!(err.contains("cannot be inside the room"), "{err}");
        assert!(!s.path(target).exists());
    }
    s.ok(["backup", "room", "copy"]);
    s.umount();
}

#[test]
fn an_unfinished_backup_is_called_one() {
    let s = Sandbox::with_room();
    std::fs::create_dir_all(s.path("copy/segments")).unwrap();
    std::fs::write(s.path("copy/backup.incomplete"), "").unwrap();
    let err = s.fails(10, ["ls", "copy"]);
    assert!(err.contains("run the same command again"), "{err}");
}

/// What failed: typed to restore, this replaced the room by its backup, and what had been written since was gone.
#[test]
fn a_backup_takes_the_place_of_no_room_that_is_in_use() {
    let s = with_files();
    s.with_pass(["backup", "room", "copy"]);
    s.with_pass(["restore", "copy", "again", "--no-verify"]);
    s.with_pass(["cp", "pass", "room:/later"]);
    for (from, to) in [("copy", "room"), ("room", "again")] {
        let before = files(&s.path(to));
        assert_eq!(
            s.fails(1, ["backup", from, to]),
            format!(
                "strongroom: {}: is a room, and no backup of this room as `strongroom backup` left it; choose a new directory. \
                 To bring a backup back: strongroom restore BACKUP NEW-DIRECTORY\n",
                s.path(to).display()
            )
        );
        assert!(files(&s.path(to)) == before, "{to} changed");
    }
    assert_eq!(s.with_pass(["ls", "room"]), "d\nf\nlater\n");
    s.with_pass(["backup", "room", "copy"]);
}
