//! Restores in a shared room: what comes back, who may read what, and what clients have open or change meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LONG, ROOT, Raw, World, people, posix, to_make, until};
use metadata_proto::admin::Quota;
use metadata_proto::rpc::*;
use metadata_server::server::{Restore, RestoreReport, ServerError};
use netdisk::DiskError;
use room::{FileKind, InodeNo, NewSnapshot, RenameMode, Snapshots as _};

type Done = Result<RestoreReport, ServerError>;

fn snapshot(world: &World, name: &str) {
    let created = world.server().change_snapshots(None, |room| {
        room.create_snapshot(name, NewSnapshot::default())
    });
    created.unwrap().unwrap();
}

fn snapshots(world: &World) -> Vec<String> {
    let all = world.server().with_snapshots(|room| room.snapshots());
    let all = all.unwrap().unwrap().into_iter();
    all.map(|snapshot| snapshot.name).collect()
}

/// Restores a path to where it was; `meanwhile` runs again and again while the copy is made.
fn restore_while(world: &World, from: &str, path: &str, meanwhile: &dyn Fn() -> bool) -> Done {
    let path = Path::new(path);
    let what = Restore {
        snapshot: from,
        path,
        to: path,
        replaces: true,
    };
    world.server().restore(&what, &|_, _| meanwhile())
}

fn restore(world: &World, from: &str, path: &str) -> RestoreReport {
    restore_while(world, from, path, &|| true).unwrap()
}

impl Raw {
    fn names(&self, no: InodeNo) -> Vec<String> {
        let list = self.ask(|c, x, s| async move { c.read_dir(x, s, no, 0, 100).await });
        let entries = list.unwrap().unwrap().entries.into_iter();
        let mut names: Vec<_> = entries
            .map(|(entry, _)| String::from_utf8(entry.name).unwrap())
            .collect();
        names.sort();
        names
    }

    fn rename(&self, parent: InodeNo, name: &str, new_name: &str) -> Reply<Changed> {
        self.change(Change::Rename {
            parent,
            name: name.into(),
            new_parent: parent,
            new_name: new_name.into(),
            mode: RenameMode::NoReplace,
        })
    }

    /// The first byte of a file by its name, as a program reads it that opens the file now.
    fn read(&self, world: &World, parent: InodeNo, name: &str) -> Reply<u8> {
        let no = self.lookup(parent, name)?.no;
        let map = self.map(no)?;
        Ok(self.read_by(world, &map).unwrap())
    }
}

/// A file of alice's with one byte.
fn file(world: &World, alice: &Raw, parent: InodeNo, name: &str, mode: u16, byte: u8) -> InodeNo {
    let made = alice.make(parent, name, FileKind::Regular, mode);
    let no = made.unwrap().no;
    alice.write(world, no, byte);
    no
}

#[test]
fn rights_come_back_with_a_file_and_those_to_what_it_replaces_are_revoked() {
    let (world, root, alice, bob, d) = people(LONG);
    let no = file(&world, &alice, d, "f", 0o600, b't');
    snapshot(&world, "monday");
    alice.chmod(no, 0o644).unwrap();
    alice.write(&world, no, b'n');
    let map = bob.map(bob.lookup(d, "f").unwrap().no).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'n');
    alice.open(no, true, true).unwrap();
    let open = alice.map(no).unwrap();

    let done = restore(&world, "monday", "/d/f");
    assert_eq!((done.restored.files, done.revoked), (1, true));
    assert!(done.meanwhile.is_none());
    let refused =
        |client: &Raw, map| matches!(client.read_by(&world, map), Err(DiskError::Revoked));
    assert!(refused(&bob, &map), "the disk itself refuses");
    let now = bob.lookup(d, "f").unwrap();
    assert_eq!((now.mode & 0o777, now.uid), (0o600, 1000));
    assert_eq!(posix(bob.map(now.no)), Posix::AccessDenied);
    assert_eq!(alice.read(&world, d, "f").unwrap(), b't');
    assert_eq!(alice.names(d), ["f"], "no copy is left");

    // What alice has open is what it was, and takes what she writes, until she closes it.
    assert_eq!(alice.read_by(&world, &open).unwrap(), b'n');
    alice.write(&world, no, b'w');
    let open = alice.map(no).unwrap();
    assert_eq!(alice.read_by(&world, &open).unwrap(), b'w');
    assert_eq!(posix(root.lookup(d, "nothing")), Posix::NotFound);
    alice.close(no).unwrap();
    until("the replaced file is gone", || alice.map(no).is_err());

    // Undone.
    let before = done.before.unwrap().name;
    assert_eq!(snapshots(&world), ["monday".to_owned(), before.clone()]);
    restore(&world, &before, "/d/f");
    assert_eq!(bob.read(&world, d, "f").unwrap(), b'n');
}

#[test]
fn a_restored_directory_has_the_rights_of_then_for_who_went_through_the_one_it_replaces() {
    let (world, _root, alice, bob, d) = people(LONG);
    let directory = |parent, name: &str, mode| {
        let made = alice.make(parent, name, FileKind::Directory, mode);
        made.unwrap().no
    };
    let sub = directory(d, "sub", 0o700);
    let below = directory(sub, "below", 0o755);
    let no = file(&world, &alice, below, "f", 0o644, b't');
    let gone = file(&world, &alice, sub, "gone", 0o644, b'g');
    snapshot(&world, "monday");
    alice.unlink(sub, "gone").unwrap();
    let later = file(&world, &alice, below, "later", 0o644, b'l');
    alice.chmod(sub, 0o755).unwrap();
    assert_eq!(bob.read(&world, below, "f").unwrap(), b't');
    bob.open(later, true, false).unwrap();
    let (f, open) = (bob.map(no).unwrap(), bob.map(later).unwrap());

    let done = restore(&world, "monday", "/d/sub");
    assert_eq!(done.restored.files, 4);
    // By its number, by its path, and by what it had.
    assert!(matches!(bob.read_by(&world, &f), Err(DiskError::Revoked)));
    assert!(bob.map(no).is_err());
    let now = bob.lookup(d, "sub").unwrap();
    assert_eq!(now.mode & 0o777, 0o700);
    assert_eq!(posix(bob.lookup(now.no, "below")), Posix::AccessDenied);
    assert!(bob.lookup(below, "f").is_err() && bob.lookup(sub, "below").is_err());
    // A file that is open lives until it is closed.
    assert_eq!(bob.read_by(&world, &open).unwrap(), b'l');
    assert_eq!(bob.read_by(&world, &bob.map(later).unwrap()).unwrap(), b'l');
    bob.close(later).unwrap();
    until("the file is gone", || bob.map(later).is_err());

    assert_eq!(alice.names(now.no), ["below", "gone"]);
    assert_eq!(alice.read(&world, now.no, "gone").unwrap(), b'g');
    let below = alice.lookup(now.no, "below").unwrap().no;
    assert_eq!(alice.names(below), ["f"]);
    assert_eq!(alice.names(d), ["sub"]);
    assert_ne!(alice.lookup(now.no, "gone").unwrap().no, gone);
}

#[test]
fn the_whole_room_comes_back_in_one_step_also_after_a_restart() {
    let (mut world, root, alice, bob, d) = people(LONG);
    root.chmod(ROOT, 0o755).unwrap();
    file(&world, &alice, d, "f", 0o644, b't');
    root.make(ROOT, "gone", FileKind::Directory, 0o711).unwrap();
    snapshot(&world, "monday");
    root.chmod(ROOT, 0o700).unwrap();
    root.change(Change::Rmdir {
        parent: ROOT,
        name: b"gone".to_vec(),
    })
    .unwrap();
    root.make(ROOT, "added", FileKind::Directory, 0o755)
        .unwrap();
    assert_eq!(posix(bob.lookup(ROOT, "d")), Posix::AccessDenied);
    let done = restore(&world, "monday", "/");
    assert_eq!(root.names(ROOT), ["d", "gone"]);
    let d = bob.lookup(ROOT, "d").unwrap().no;
    assert_eq!(bob.read(&world, d, "f").unwrap(), b't');
    // Undone: what bob went through just now is closed to him.
    let undone = restore(&world, &done.before.unwrap().name, "/");
    let d = root.lookup(ROOT, "d").unwrap().no;
    assert_eq!(posix(bob.lookup(ROOT, "d")), Posix::AccessDenied);
    assert_eq!(posix(bob.lookup(d, "f")), Posix::AccessDenied);
    restore(&world, &undone.before.unwrap().name, "/");
    // Without another sync.
    world.server().fail_for_test();
    until("the room is open again", || world.server().is_serving());
    let root = Raw::connect(&world, root.identity.clone(), None).unwrap();
    assert_eq!(root.names(ROOT), ["d", "gone"]);
    let names = snapshots(&world);
    restore(&world, &names[1], "/");
    assert_eq!(root.names(ROOT), ["added", "d"]);
    assert_eq!(root.attributes(ROOT).unwrap().mode & 0o777, 0o700);
    let report = world
        .server()
        .with_snapshots(|room| room.check(false, false, &|_, _| true));
    let report = report.unwrap().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    world.stop();
}

#[test]
fn what_clients_change_while_the_copy_is_made_is_in_a_snapshot_of_its_own() {
    let (world, root, alice, _bob, d) = people(LONG);
    let sub = alice.make(d, "sub", FileKind::Directory, 0o755).unwrap().no;
    let no = file(&world, &alice, sub, "f", 0o644, b't');
    snapshot(&world, "monday");
    alice.write(&world, no, b'n');
    let once = AtomicBool::new(false);
    let done = restore_while(&world, "monday", "/d/sub", &|| {
        if !once.swap(true, Ordering::SeqCst) {
            alice.write(&world, no, b'm');
            file(&world, &alice, sub, "new", 0o644, b'x');
        }
        true
    });
    let done = done.unwrap();
    assert_eq!(
        root.read(&world, root.lookup(d, "sub").unwrap().no, "f")
            .unwrap(),
        b't'
    );
    let (during, name) = done.meanwhile.expect("it changed");
    assert!(during.name.starts_with("during-restore-"), "{during:?}");
    let kept = Path::new("/d").join(String::from_utf8(name).unwrap());
    for (name, byte) in [("f", b'm'), ("new", b'x')] {
        let (path, to) = (kept.join(name), format!("/d/{name}"));
        let what = Restore {
            snapshot: &during.name,
            path: &path,
            to: Path::new(&to),
            replaces: false,
        };
        let back = world.server().restore(&what, &|_, _| true).unwrap();
        assert!(back.before.is_none(), "nothing was replaced");
        assert_eq!(root.read(&world, d, name).unwrap(), byte);
    }
    assert_eq!(root.names(d), ["f", "new", "sub"]);
}

#[test]
fn a_restore_that_is_stopped_or_led_astray_changes_nothing() {
    let (world, root, alice, bob, d) = people(LONG);
    let sub = alice.make(d, "sub", FileKind::Directory, 0o755).unwrap().no;
    let no = file(&world, &alice, sub, "f", 0o644, b't');
    snapshot(&world, "monday");
    alice.write(&world, no, b'n');
    let unchanged = |names: &[&str]| {
        assert_eq!(root.names(d), names);
        assert_eq!(root.lookup(d, "sub").unwrap().no, sub);
        assert_eq!(bob.read(&world, sub, "f").unwrap(), b'n');
        assert_eq!(snapshots(&world), ["monday"]);
    };
    let stopped = restore_while(&world, "monday", "/d/sub", &|| false);
    assert!(
        matches!(&stopped, Err(ServerError::Room(room::Error::Io(e))) if e.kind() == std::io::ErrorKind::Interrupted),
        "{stopped:?}"
    );
    unchanged(&["sub"]);

    // While the copy is made only root may look at it. Alice's directory has it: she moves it, and puts a file there.
    let copy = ".strongroom-restore-0";
    let looked = AtomicBool::new(false);
    let astray = restore_while(&world, "monday", "/d/sub", &|| {
        if let Ok(there) = alice.lookup(d, copy)
            && !looked.swap(true, Ordering::SeqCst)
        {
            assert_eq!((there.mode & 0o777, there.uid), (0o700, 0));
            assert_eq!(posix(alice.lookup(there.no, "f")), Posix::AccessDenied);
            alice.rename(d, copy, "moved").unwrap();
            file(&world, &alice, d, copy, 0o644, b'a');
        }
        true
    });
    assert!(looked.load(Ordering::SeqCst));
    assert!(
        matches!(astray, Err(ServerError::Room(room::Error::NotPermitted(_)))),
        "{astray:?}"
    );
    unchanged(&[copy, "moved", "sub"]);
    assert_eq!(root.read(&world, d, copy).unwrap(), b'a');

    // A link on the way could lead into somebody else's directory.
    let mut link = room::NewFile::of_kind(FileKind::Symlink);
    (link.uid, link.gid, link.target) = (1000, 50, b"/d/sub".to_vec());
    alice.change(to_make(d, "link", link)).unwrap();
    for (path, to) in [("/d/sub/f", "/d/link/f"), ("/d/link/f", "/d/f")] {
        let what = Restore {
            snapshot: "monday",
            path: Path::new(path),
            to: Path::new(to),
            replaces: true,
        };
        let refused = world.server().restore(&what, &|_, _| true);
        assert!(refused.is_err(), "{refused:?}");
    }
    unchanged(&[copy, "link", "moved", "sub"]);
}

#[test]
fn both_versions_count_against_the_quota_and_without_space_nothing_is_restored() {
    let (world, root, alice, bob, d) = people(LONG);
    let no = file(&world, &alice, d, "f", 0o644, b't');
    snapshot(&world, "monday");
    alice.write(&world, no, b'n');
    let quota = |files| {
        let bytes = None;
        world.server().set_quota("alice", Quota { bytes, files })
    };
    // The directory and the file.
    quota(Some(2)).unwrap();
    let full = restore_while(&world, "monday", "/d/f", &|| true);
    assert!(
        matches!(full, Err(ServerError::Room(room::Error::QuotaExceeded))),
        "{full:?}"
    );
    assert_eq!(root.names(d), ["f"]);
    assert_eq!(snapshots(&world), ["monday"]);
    assert_eq!(bob.read(&world, d, "f").unwrap(), b'n');
    quota(Some(3)).unwrap();
    restore(&world, "monday", "/d/f");
    assert_eq!(bob.read(&world, d, "f").unwrap(), b't');
}

#[test]
fn a_disk_that_goes_away_at_the_end_is_reported_and_revokes_when_it_is_back() {
    let (mut world, _root, alice, bob, d) = people(LONG);
    let no = file(&world, &alice, d, "f", 0o644, b't');
    snapshot(&world, "monday");
    alice.write(&world, no, b'n');
    let map = bob.map(no).unwrap();
    let mut disks = std::mem::take(&mut world.disks);
    let disk = std::sync::Mutex::new(disks.remove(0));
    let done = restore_while(&world, "monday", "/d/f", &|| {
        if alice.lookup(d, "f").unwrap().no != no {
            disk.lock().unwrap().stop();
        }
        true
    });
    assert!(!done.unwrap().revoked);
    let mut disk = disk.into_inner().unwrap();
    disk.start();
    world.disks.push(disk);
    until("the disk is used again", || {
        let map = bob.lookup(d, "f").and_then(|found| bob.map(found.no));
        map.is_ok_and(|map| bob.read_by(&world, &map).is_ok_and(|byte| byte == b't'))
    });
    let read = bob.read_by(&world, &map);
    assert!(read.is_err(), "{read:?}");
}

#[test]
fn without_a_disk_nothing_is_restored() {
    let (mut world, root, alice, bob, d) = people(LONG);
    let no = file(&world, &alice, d, "f", 0o644, b't');
    snapshot(&world, "monday");
    alice.write(&world, no, b'n');
    world.disks[0].stop();
    let away = restore_while(&world, "monday", "/d/f", &|| true);
    assert!(
        matches!(&away, Err(ServerError::RestoreWaits(name)) if name == "disk0"),
        "{away:?}"
    );
    world.disks[0].start();
    assert_eq!(snapshots(&world), ["monday"]);
    assert_eq!(root.names(d), ["f"]);
    let read = || {
        bob.map(no)
            .is_ok_and(|map| bob.read_by(&world, &map).is_ok_and(|byte| byte == b'n'))
    };
    until("the disk is back", read);
    restore(&world, "monday", "/d/f");
    assert_eq!(bob.read(&world, d, "f").unwrap(), b't');
}
