//! Restores: of a file, a directory and the whole room.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use super::{both_ways, json_lines, names, ok, put};
use crate::common::{Sandbox, is_root, listing, make_tree};

#[test]
fn a_restore_puts_a_tree_back_with_every_attribute_and_can_be_undone() {
    both_ways(|s| {
        make_tree(&s.path("tree"));
        ok(s, &["cp", "-r", "tree", "room:/"]);
        ok(s, &["snapshot", "create", "room", "good"]);
        ok(s, &["rm", "-r", "room:/tree"]);
        ok(s, &["mkdir", "room:/tree"]);
        put(s, "/tree/other", b"other");

        ok(s, &["snapshot", "restore", "room", "good", "/tree"]);
        ok(s, &["cp", "-r", "room:/tree", "back"]);
        assert_eq!(listing(&s.path("tree")), listing(&s.path("back")));
        assert_eq!(ok(s, &["ls", "-a", "room:/"]), "tree\n");
        // Undone.
        let before = names(s).pop().unwrap();
        assert!(before.starts_with("before-restore-"), "{before}");
        ok(s, &["snapshot", "restore", "room", &before, "/tree"]);
        assert_eq!(ok(s, &["ls", "-a", "room:/tree"]), "other\n");
        assert_eq!(names(s).len(), 3);
    });
}

#[test]
fn a_restore_brings_back_one_file_its_directory_or_puts_it_elsewhere() {
    both_ways(|s| {
        ok(s, &["mkdir", "-p", "room:/a/b"]);
        put(s, "/a/b/f", b"first");
        put(s, "/a/b/g", b"stays");
        ok(s, &["snapshot", "create", "room", "good"]);
        put(s, "/a/b/f", b"second");
        put(s, "/a/b/g", b"of today");

        ok(s, &["snapshot", "restore", "room", "good", "/a/b/f"]);
        assert_eq!(
            ok(s, &["cat", "room:/a/b/f", "room:/a/b/g"]),
            "firstof today"
        );
        ok(
            s,
            &[
                "snapshot", "restore", "room", "good", "/a", "--to", "/a then",
            ],
        );
        assert_eq!(
            ok(s, &["cat", "room:/a then/b/g", "room:/a/b/g"]),
            "staysof today"
        );
        // A file in the place of a directory, and the other way round.
        ok(
            s,
            &[
                "snapshot", "restore", "room", "good", "/a/b/f", "--to", "/a then",
            ],
        );
        assert_eq!(ok(s, &["cat", "room:/a then"]), "first");
        ok(
            s,
            &[
                "snapshot", "restore", "room", "good", "/a/", "--to", "/a then",
            ],
        );
        assert_eq!(ok(s, &["ls", "room:/a then"]), "b\n");
        // The directories above come back too.
        ok(s, &["rm", "-r", "room:/a"]);
        let done = ok(
            s,
            &["snapshot", "restore", "room", "good", "/a/b/f", "--json"],
        );
        let done = &json_lines(&done)[0];
        assert_eq!((&done["files"], &done["bytes"]), (&1.into(), &5.into()));
        assert_eq!(ok(s, &["ls", "-R", "room:/a"]), "/a:\nb\n\n/a/b:\nf\n");

        // What is refused changes nothing, and leaves no snapshot.
        let count = names(s).len();
        for (args, code) in [
            (&["good", "/nothing"][..], 1),
            (&["good", "a/b/f"], 2),
            (&["good", "/a/../a"], 2),
            (&["good", "/a/b/f/"], 1),
            (&["good", "/a/b/f", "--to", "/"], 2),
            (&["good", "/a/b/f", "--to", "/missing/f"], 1),
            (&["good", "/a/b/f", "--to", "/a then/b/g/f"], 1),
        ] {
            s.fails(code, ["snapshot", "restore", "room"].iter().chain(args));
        }
        assert_eq!(names(s).len(), count);
        assert_eq!(ok(s, &["ls", "-a", "room:/"]), "a\na then\n");
    });
}

#[test]
fn the_whole_room_can_be_restored() {
    both_ways(|s| {
        put(s, "/replaced", b"first");
        put(s, "/removed", b"back again");
        ok(s, &["mkdir", "room:/dir"]);
        put(s, "/dir/f", b"in a directory");
        ok(s, &["snapshot", "create", "room", "good"]);
        put(s, "/replaced", b"second");
        ok(s, &["rm", "room:/removed"]);
        put(s, "/added", b"goes away");
        ok(s, &["rm", "-r", "room:/dir"]);

        ok(s, &["snapshot", "restore", "room", "good", "/"]);
        assert_eq!(
            ok(s, &["ls", "-aR", "room:"]),
            "/:\ndir\nremoved\nreplaced\n\n/dir:\nf\n"
        );
        assert_eq!(
            ok(
                s,
                &["cat", "room:/replaced", "room:/removed", "room:/dir/f"]
            ),
            "firstback againin a directory"
        );
        let before = names(s).pop().unwrap();
        ok(s, &["snapshot", "restore", "room", &before, "/"]);
        assert_eq!(ok(s, &["ls", "-a", "room:"]), "added\nreplaced\n");
    });
}

/// What failed: the names before the one that could not be moved stayed those of the snapshot, and the rest of the copy stayed beside them.
#[test]
fn a_room_of_which_one_name_cannot_be_moved_stays_as_it_is() {
    let s = Sandbox::with_room();
    if !is_root() || !s.mount() {
        return;
    }
    let write = |text: &str, files: &[&str]| {
        for name in files {
            fs::write(s.path("mnt").join(name), text).unwrap();
        }
    };
    write("then", &["a", "b", "z", "y"]);
    s.ok(["snapshot", "create", "room", "good"]);
    fs::remove_file(s.path("mnt/a")).unwrap();
    write("now", &["b", "c", "y", "z"]);
    let chattr = |flag: &str| {
        let done = Command::new("chattr")
            .arg(flag)
            .arg(s.path("mnt/y"))
            .status();
        done.is_ok_and(|status| status.success())
    };
    assert!(chattr("+i"));
    // Without the root, whose time changes with its names.
    let all = || listing(&s.path("mnt")).split_off(1);
    let before = all();
    let restore = ["snapshot", "restore", "room", "good", "/"];
    let refused = s.fails(1, restore);
    assert!(refused.contains("y: operation not permitted"), "{refused}");
    assert_eq!(all(), before);
    s.umount();
    let refused = s.fails(1, restore);
    assert!(refused.contains("immutable"), "{refused}");
    assert!(s.mount());
    assert_eq!(all(), before);
    assert!(chattr("-i"));
    s.ok(restore);
    assert_eq!(fs::read_to_string(s.path("mnt/y")).unwrap(), "then");
    assert!(!s.path("mnt/c").exists() && s.path("mnt/a").exists());
}

#[test]
fn hard_links_and_holes_within_a_directory_are_restored() {
    let Some(s) = Sandbox::mounted() else { return };
    let d = s.path("mnt/d");
    fs::create_dir(&d).unwrap();
    fs::write(d.join("a"), "linked").unwrap();
    fs::hard_link(d.join("a"), d.join("b")).unwrap();
    symlink("a", d.join("soft")).unwrap();
    let sparse = fs::File::create(d.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    drop(sparse);
    s.ok(["snapshot", "create", "room", "good"]);
    fs::remove_dir_all(&d).unwrap();
    s.ok(["snapshot", "restore", "room", "good", "/d"]);
    let meta = |name: &str| fs::symlink_metadata(d.join(name)).unwrap();
    assert_eq!((meta("a").ino(), meta("a").nlink()), (meta("b").ino(), 2));
    assert_eq!(meta("sparse").len(), 100 << 20);
    assert!(meta("sparse").blocks() * 512 < 1 << 20);
    assert_eq!(fs::read_link(d.join("soft")).unwrap(), Path::new("a"));
}

/// Writes files into a directory of the mount, one after the other, until it is to end. Returns those that were complete while the same
/// directory had that path from beginning to end, each with the number of that directory.
fn write_until(end: &AtomicBool, directory: &Path) -> Vec<(String, u64)> {
    let number = || fs::metadata(directory).map(|meta| meta.ino()).ok();
    let mut written = Vec::new();
    for at in 0.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("during-{at}");
        let before = number();
        let done = fs::File::create_new(directory.join(&name)).and_then(|mut file| {
            file.write_all(name.as_bytes())?;
            file.sync_all()
        });
        if let (Ok(()), Some(number), true) = (done, before, before == number()) {
            written.push((name, number));
        }
    }
    written
}

/// Restores `path` while files are written into `directory`. Each must be in the room or in one of the snapshots afterwards.
fn nothing_is_lost(path: &str, directory: &str) {
    let Some(s) = Sandbox::mounted() else { return };
    let mount = s.path("mnt");
    let d = mount.join(directory);
    fs::create_dir(&d).unwrap();
    for at in 0..500 {
        fs::write(d.join(format!("old-{at}")), "old").unwrap();
    }
    s.ok(["snapshot", "create", "room", "good"]);
    // Nothing is changed meanwhile.
    let done = s.ok(["snapshot", "restore", "room", "good", path, "--json"]);
    assert_eq!(json_lines(&done)[0]["meanwhile"], Value::Null);
    assert_eq!(names(&s).len(), 2);

    let end = AtomicBool::new(false);
    let (done, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&end, &d));
        let done = s.ok(["snapshot", "restore", "room", "good", path, "--json"]);
        end.store(true, Ordering::Relaxed);
        (json_lines(&done)[0].clone(), writer.join().unwrap())
    });
    let meanwhile = &done["meanwhile"];
    let during = meanwhile["snapshot"].as_str().unwrap();
    assert!(during.starts_with("during-restore-"), "{during}");
    let snapshots = mount.join(".snapshots");
    let kept = meanwhile["path"].as_str().unwrap();
    let kept = snapshots.join(during).join(kept.trim_start_matches('/'));
    let kept = match path {
        "/" => kept.join(directory),
        _ => kept,
    };
    let is_now = fs::metadata(&d).unwrap().ino();
    let mut replaced = 0;
    for (name, number) in written {
        let place = match number == is_now {
            true => &d,
            false => &kept,
        };
        replaced += u32::from(number != is_now);
        let contents = fs::read_to_string(place.join(&name));
        assert_eq!(contents.unwrap(), name, "in {}", place.display());
    }
    assert!(replaced > 0);
    // Nothing else is left.
    let left = fs::read_dir(&mount).unwrap().count();
    assert_eq!(left, 1);
}

#[test]
fn what_programs_write_while_a_directory_is_restored_is_in_a_snapshot() {
    nothing_is_lost("/d", "d");
}

#[test]
fn what_programs_write_while_the_room_is_restored_is_in_a_snapshot() {
    nothing_is_lost("/", "d");
}
