//! Directories whose names a client need not ask for, and that nobody sees one that is gone.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use metadata_proto::rpc::DIRECTORY_AGE;
use room::{Access, Error, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, SetAttr};

use super::common::Shared;

/// After a change had to wait for a lease, none is granted for a second.
const GRANTED_AGAIN: Duration = Duration::from_millis(1100);

fn directory(client: &dyn FileSystem, parent: InodeNo, name: &[u8]) -> Inode {
    let new = NewFile {
        mode: 0o755,
        ..NewFile::of_kind(FileKind::Directory)
    };
    client.make(parent, name, &new).unwrap()
}

fn calls(shared: &Shared) -> BTreeMap<&'static str, u64> {
    let calls = shared.server().metrics().calls.into_iter();
    calls.map(|(name, count)| (name, count.done)).collect()
}

/// What failed: a path of four directories was four calls, however often it was walked.
#[test]
fn the_way_to_files_is_asked_for_once_in_a_while() {
    const FILES: u32 = 32;
    let shared = Shared::new();
    let client = shared.client("walker", 0);
    let mut way = vec![InodeNo::ROOT];
    for name in [b"a", b"b", b"c", b"d"] {
        way.push(directory(&*client, way[way.len() - 1], name).no);
    }
    let (begun, before) = (Instant::now(), calls(&shared));
    for n in 0..FILES {
        for (at, name) in [b"a", b"b", b"c", b"d"].into_iter().enumerate() {
            assert_eq!(client.lookup(way[at], name).unwrap().no, way[at + 1]);
        }
        let name = format!("file-{n}");
        let absent = client.lookup(way[4], name.as_bytes());
        assert!(matches!(absent, Err(Error::NotFound)), "{absent:?}");
        let new = NewFile::of_kind(FileKind::Regular);
        let made = client.create(way[4], name.as_bytes(), &new, Access::WRITE);
        client.close(made.unwrap().no, Access::WRITE);
    }
    let lookups = calls(&shared)["lookup"] - before.get("lookup").copied().unwrap_or(0);
    // A lease counts from before it is asked for.
    let leases = 1 + begun.elapsed().as_millis() / DIRECTORY_AGE.as_millis();
    let most = u128::from(FILES) + 4 * leases;
    assert!(u128::from(lookups) <= most, "{lookups}, not {most}");
}

#[test]
fn a_directory_that_another_client_removes_or_moves_is_gone_at_once() {
    let shared = Shared::new();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    let outer = directory(&*root, InodeNo::ROOT, b"outer").no;
    for name in [&b"removed"[..], b"moved", b"inner"] {
        directory(&*root, outer, name);
        alice.lookup(outer, name).unwrap();
    }
    let is_gone = |name: &[u8]| matches!(alice.lookup(outer, name), Err(Error::NotFound));
    root.rmdir(outer, b"removed").unwrap();
    assert!(is_gone(b"removed"));

    sleep(GRANTED_AGAIN);
    alice.lookup(outer, b"moved").unwrap();
    let (from, to) = ((outer, b"moved"), (InodeNo::ROOT, b"moved"));
    root.rename(from.0, from.1, to.0, to.1, RenameMode::NoReplace)
        .unwrap();
    assert!(is_gone(b"moved"));
    alice.lookup(InodeNo::ROOT, b"moved").unwrap();

    sleep(GRANTED_AGAIN);
    alice.lookup(outer, b"inner").unwrap();
    root.set_attributes(outer, &SetAttr::mode(0o700)).unwrap();
    let refused = alice.lookup(outer, b"inner");
    assert!(matches!(refused, Err(Error::AccessDenied)), "{refused:?}");
}

#[test]
fn a_client_sees_its_own_changes_of_directories() {
    let shared = Shared::new();
    let (Some(mount), Some(_other)) = (shared.mount("one"), shared.mount("other")) else {
        return;
    };
    std::fs::create_dir(mount.path("d")).unwrap();
    let times = || {
        let d = std::fs::metadata(mount.path("d")).unwrap();
        (d.mtime(), d.mtime_nsec(), d.ctime(), d.ctime_nsec())
    };
    let mut last = times();
    let mut is_newer = |what: &str| {
        let now = times();
        assert!(now > last, "{what}: {last:?}, then {now:?}");
        last = now;
    };
    for n in 0..10 {
        let file = mount.path(&format!("d/{n}"));
        std::fs::write(&file, b"x").unwrap();
        is_newer("created");
        std::fs::hard_link(&file, mount.path(&format!("d/{n}-linked"))).unwrap();
        is_newer("linked");
        std::fs::create_dir(mount.path(&format!("d/{n}-within"))).unwrap();
        is_newer("made");
        std::fs::remove_file(&file).unwrap();
        is_newer("removed");
    }
    mount.ok("chmod 711 d; [ $(stat -c %a d) = 711 ]; chmod 755 d; [ $(stat -c %a d) = 755 ]");
    mount.ok("mv d e; [ ! -e d ]; mkdir d; [ -d d/. ]; rmdir d; [ ! -e d ]; [ -d e/0-within ]");
}

#[test]
fn a_server_that_begins_waits_for_the_leases_of_the_one_before() {
    let mut shared = Shared::with_long_leases();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    directory(&*root, InodeNo::ROOT, b"d");
    alice.lookup(InodeNo::ROOT, b"d").unwrap();
    shared.stop();
    shared.start();
    root.rmdir(InodeNo::ROOT, b"d").unwrap();
    let gone = alice.lookup(InodeNo::ROOT, b"d");
    assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
}
