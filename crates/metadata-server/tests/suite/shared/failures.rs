//! Servers that restart under work.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metadata_client::SharedRoom;
use metadata_server::server::Point;
use room::{
    Access, Error, Fallocate, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, SeekTo,
    SetAttr, XattrMode,
};

use super::common::{Shared, assert_same, noise};
use super::rights::new;
use crate::common::until;

#[test]
fn writing_goes_on_when_the_metadata_server_is_restarted() {
    let mut shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(11, 60 << 20);
    let path = a.path("f");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (bytes, done) = (&bytes, &done);
        scope.spawn(move || {
            let mut file = std::fs::File::create(path).unwrap();
            for piece in bytes.chunks(100_000) {
                file.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            file.sync_all().unwrap();
            done.store(true, Ordering::SeqCst);
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(700));
            shared.stop();
            std::thread::sleep(Duration::from_millis(300));
            shared.start();
        }
    });
    assert!(done.load(Ordering::SeqCst));
    assert_same(&std::fs::read(b.path("f")).unwrap(), &bytes);
    assert_same(&std::fs::read(a.path("f")).unwrap(), &bytes);
}

#[test]
fn closed_data_that_is_not_durable_is_committed_again_by_its_client() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let kept = noise(1, 200_000);
    let mut first = std::fs::File::create(a.path("synced")).unwrap();
    first.write_all(&kept).unwrap();
    first.sync_all().unwrap();
    let bytes = noise(2, 5_000_000);
    std::fs::write(a.path("closed"), &bytes).unwrap();
    std::fs::write(a.path("cut"), &bytes).unwrap();
    // Durable when it is acknowledged: what was cut off must not come back.
    std::fs::File::options()
        .write(true)
        .open(a.path("cut"))
        .unwrap()
        .set_len(1000)
        .unwrap();
    // As when a flush of a disk fails: what was not committed is gone.
    shared.server().fail_for_test();
    assert_same(&std::fs::read(a.path("closed")).unwrap(), &bytes);
    first.write_all(b"goes on").unwrap();
    first.sync_all().unwrap();
    assert_same(&std::fs::read(b.path("closed")).unwrap(), &bytes);
    assert_same(&std::fs::read(b.path("cut")).unwrap(), &bytes[..1000]);
    let read = std::fs::read(b.path("synced")).unwrap();
    assert!(read[..200_000] == kept && read[200_000..] == *b"goes on");
}

/// A file, open at a client.
struct Open<'a> {
    client: &'a SharedRoom,
    no: InodeNo,
}

impl<'a> Open<'a> {
    fn make(client: &'a SharedRoom, name: &str) -> Self {
        let file = client.make(InodeNo::ROOT, name.as_bytes(), &new(0, 0o644));
        let no = file.unwrap().no;
        client.open(no, Access::READ_WRITE).unwrap();
        Self { client, no }
    }

    /// Writes as a program that closes the file afterwards: committed, and not durable.
    fn put(&self, at: u64, bytes: &[u8]) {
        self.client.write(self.no, at, bytes).unwrap();
        self.client.flush(self.no).unwrap();
    }

    #[track_caller]
    fn holds(&self, expected: &[u8]) {
        let mut found = vec![0; expected.len() + 1];
        let len = self.client.read(self.no, 0, &mut found).unwrap();
        assert_same(&found[..len], expected);
    }
}

/// Has three threads work on files of a client, each for itself, while the server forgets again and again what is not durable.
fn while_the_server_forgets(work: fn(&SharedRoom, &str, &dyn Fn() -> bool)) {
    let shared = Shared::new();
    let client = shared.client("a", 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || work(client, name, &|| !stop.load(Ordering::SeqCst)));
        }
        for at in 0..60 {
            std::thread::sleep(Duration::from_millis(30 + at * 7 % 40));
            shared.server().fail_for_test();
        }
        stop.store(true, Ordering::SeqCst);
    });
    client.end().unwrap();
}

#[test]
fn a_client_reads_what_it_wrote_at_whatever_moment_the_server_forgets_it() {
    while_the_server_forgets(|client, name, goes_on| {
        let file = Open::make(client, name);
        let mut version = 0_u8;
        while goes_on() {
            version = version.wrapping_add(1);
            let mut bytes = [version; 12288];
            file.put(0, &bytes);
            file.holds(&bytes);
            bytes[1000..6000].fill(!version);
            file.put(1000, &bytes[1000..6000]);
            file.holds(&bytes);
        }
    });
}

#[test]
fn copies_and_holes_are_those_of_what_was_written_at_whatever_moment_the_server_forgets_it() {
    while_the_server_forgets(|client, name, goes_on| {
        let [from, copy, sparse] =
            ["from", "copy", "sparse"].map(|kind| Open::make(client, &format!("{name} {kind}")));
        let mut version = 0_u8;
        while goes_on() {
            version = version.wrapping_add(1);
            let bytes = [version; 12288];
            from.put(0, &bytes);
            let copied = client.copy_range(from.no, 0, copy.no, 0, 12288).unwrap();
            assert_eq!(copied, 12288);
            copy.holds(&bytes);
            client.set_attributes(sparse.no, &SetAttr::size(0)).unwrap();
            sparse.put(8192, &[version; 100]);
            let mut bytes = [0; 8292];
            bytes[8192..].fill(version);
            sparse.holds(&bytes);
            assert_eq!(client.seek(sparse.no, 0, SeekTo::Data).unwrap(), 8192);
        }
    });
}

const POINTS: [Point; 4] = [
    Point::Received,
    Point::Applied,
    Point::Committed,
    Point::Answered,
];

/// The server's storage failed between the moment an operation came and the moment its answer arrived. The client asked again,
/// and got the answer of the second attempt: that the name exists already, or is gone. Or it got an answer of unknown outcome.
#[test]
fn an_operation_is_done_once_and_gets_its_first_answer_at_whatever_point_the_server_fails() {
    let shared = Shared::new();
    let client = shared.client("a", 0);
    let root = InodeNo::ROOT;
    for point in POINTS {
        let name = |what: &str| format!("{what} {point:?}").into_bytes();
        let failing = |what: &str, operation: &dyn Fn() -> room::Result<()>| {
            let before = shared.server().metrics().reopened;
            shared.server().fail_at_for_test(point);
            operation().unwrap_or_else(|e| panic!("{point:?}, {what}: {e}"));
            assert!(!shared.server().awaits_failure_for_test(), "{what}");
            until("the room is opened again", || {
                shared.server().metrics().reopened > before && shared.server().is_serving()
            });
        };
        let find = |what: &str| client.lookup(root, &name(what));
        let make = |what: &str, kind| {
            let new = NewFile {
                kind,
                target: match kind {
                    FileKind::Symlink => b"target".to_vec(),
                    _ => Vec::new(),
                },
                ..new(0, 0o755)
            };
            client.make(root, &name(what), &new)
        };
        for (what, kind) in [
            ("file", FileKind::Regular),
            ("directory", FileKind::Directory),
            ("link", FileKind::Symlink),
        ] {
            let made: std::cell::RefCell<Option<Inode>> = std::cell::RefCell::default();
            failing(what, &|| {
                *made.borrow_mut() = Some(make(what, kind)?);
                Ok(())
            });
            let found = find(what).unwrap();
            assert_eq!(made.into_inner().unwrap().no, found.no);
            assert_eq!(found.kind, kind);
        }
        let no = find("file").unwrap().no;
        failing("link", &|| {
            let linked = client.link(no, root, &name("second"))?;
            assert_eq!((linked.no, linked.nlink), (no, 2));
            Ok(())
        });
        failing("unlink", &|| client.unlink(root, &name("second")));
        assert_eq!(find("file").unwrap().nlink, 1);
        failing("rename", &|| {
            let mode = RenameMode::NoReplace;
            client.rename(root, &name("file"), root, &name("moved"), mode)
        });
        assert!(matches!(find("file"), Err(Error::NotFound)));
        failing("exchange", &|| {
            let mode = RenameMode::Exchange;
            client.rename(root, &name("moved"), root, &name("link"), mode)
        });
        assert_eq!(find("moved").unwrap().kind, FileKind::Symlink);
        assert_eq!(find("link").unwrap().no, no);
        failing("rmdir", &|| client.rmdir(root, &name("directory")));
        assert!(matches!(find("directory"), Err(Error::NotFound)));
        failing("xattr", &|| {
            client.set_xattr(no, b"user.a", b"1", XattrMode::Create, false)
        });
        failing("remove xattr", &|| client.remove_xattr(no, b"user.a"));
        assert!(client.xattr_names(no).unwrap().is_empty());
        failing("mode", &|| {
            client.set_attributes(no, &SetAttr::mode(0o640)).map(drop)
        });
        assert_eq!(client.attributes(no).unwrap().mode, 0o640);
        // What changes data, after data that is not durable.
        let file = Open::make(&client, &format!("data {point:?}"));
        let blocks: Vec<u8> = (1..=4).flat_map(|n| [n; 4096]).collect();
        file.put(0, &blocks);
        failing("collapse", &|| {
            client.fallocate(file.no, Fallocate::Collapse, 4096, 4096)
        });
        file.holds(&[&blocks[..4096], &blocks[8192..]].concat());
        file.put(4096, &[9; 4096]);
        failing("truncate", &|| {
            client
                .set_attributes(file.no, &SetAttr::size(6000))
                .map(drop)
        });
        file.holds(&[&blocks[..4096], &[9; 1904]].concat());
        let copy = Open::make(&client, &format!("copy {point:?}"));
        failing("copy", &|| {
            let copied = client.copy_range(file.no, 0, copy.no, 0, 6000)?;
            assert_eq!(copied, 6000);
            Ok(())
        });
        copy.holds(&[&blocks[..4096], &[9; 1904]].concat());
    }
    client.end().unwrap();
}

#[test]
fn a_file_that_was_unlinked_while_it_was_open_outlives_a_restart_of_the_server() {
    let mut shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(4, 300_000);
    std::fs::write(a.path("f"), &bytes).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(a.path("f"))
        .unwrap();
    std::fs::remove_file(b.path("f")).unwrap();
    for round in 0..2 {
        if round == 0 {
            shared.stop();
            shared.start();
        } else {
            shared.server().fail_for_test();
        }
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_same(&found, &bytes);
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
    }
}

#[test]
fn reading_and_writing_go_on_when_a_disk_is_restarted() {
    let mut shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(21, 30 << 20);
    std::fs::write(a.path("old"), &bytes).unwrap();
    let (path, old) = (a.path("new"), b.path("old"));
    std::thread::scope(|scope| {
        let bytes = &bytes;
        let writer = scope.spawn(move || {
            let mut file = std::fs::File::create(path).unwrap();
            for piece in bytes.chunks(300_000) {
                file.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            file.sync_all().unwrap();
        });
        let reader = scope.spawn(move || {
            for _ in 0..3 {
                let file = std::fs::File::open(&old).unwrap();
                let mut piece = vec![0; 1 << 20];
                for at in (0..bytes.len()).step_by(1 << 20) {
                    file.read_exact_at(&mut piece, at as u64).unwrap();
                    assert!(piece == bytes[at..at + (1 << 20)]);
                }
            }
        });
        for at in [0, 1, 0] {
            std::thread::sleep(Duration::from_millis(500));
            shared.disks[at].restart(Duration::from_millis(300));
        }
        writer.join().unwrap();
        reader.join().unwrap();
    });
    assert_same(&std::fs::read(b.path("new")).unwrap(), &bytes);
}

#[test]
fn what_a_disk_lost_with_its_power_is_written_again() {
    let mut shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(3, 3_000_000);
    // Closed, so committed; durability was not requested.
    std::fs::write(a.path("f"), &bytes).unwrap();
    for disk in &mut shared.disks {
        disk.lose_power();
    }
    // The commit finds out, and the server opens the room again, without the file's data.
    std::fs::File::open(a.path("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    assert_same(&std::fs::read(a.path("f")).unwrap(), &bytes);
    assert_same(&std::fs::read(b.path("f")).unwrap(), &bytes);
}

/// A small file, written and synced.
fn synced(client: &SharedRoom, name: &str, bytes: &[u8]) -> InodeNo {
    written(client, name, bytes, |no| client.fsync(no).unwrap())
}

/// A small file, written and closed: committed, and not durable.
fn closed(client: &SharedRoom, name: &str, bytes: &[u8]) -> InodeNo {
    written(client, name, bytes, |_| {})
}

/// A small file that is written and closed; `then` is done before that.
fn written(client: &SharedRoom, name: &str, bytes: &[u8], then: impl FnOnce(InodeNo)) -> InodeNo {
    let new = NewFile::of_kind(FileKind::Regular);
    let made = client.create(InodeNo::ROOT, name.as_bytes(), &new, Access::READ_WRITE);
    let no = made.unwrap().no;
    client.write(no, 0, bytes).unwrap();
    then(no);
    client.flush(no).unwrap();
    client.close(no, Access::READ_WRITE);
    no
}

/// What is in a file.
fn contents(client: &SharedRoom, name: &str) -> Vec<u8> {
    let inode = client.lookup(InodeNo::ROOT, name.as_bytes()).unwrap();
    let mut read = vec![0; inode.size as usize];
    assert_eq!(client.read(inode.no, 0, &mut read).unwrap(), read.len());
    read
}

/// A server that was restarted had lost the data of a new file, and the file's move overtook it: the file was empty, for a second, or for good
/// where its client ended then, and the one that it replaced was gone. So it was with links and removals.
#[test]
fn names_do_not_overtake_data_that_the_server_lost() {
    let shared = Shared::with_long_leases();
    let (client, other) = (shared.client("a", 0), shared.client("b", 0));
    let root = InodeNo::ROOT;
    for name in ["moved over", "removed"] {
        synced(&client, name, b"old");
    }
    let bytes = noise(7, 10_000);
    type Work<'a> = &'a dyn Fn(InodeNo) -> room::Result<()>;
    let works: [(&str, Work<'_>); 3] = [
        ("moved over", &|_| {
            let mode = RenameMode::Replace;
            client.rename(root, b"new", root, b"moved over", mode)
        }),
        ("linked", &|no| client.link(no, root, b"linked").map(drop)),
        ("new", &|_| client.unlink(root, b"removed")),
    ];
    for (name, work) in works {
        let no = closed(&client, "new", &bytes);
        shared.server().fail_for_test();
        work(no).unwrap();
        assert_same(&contents(&other, name), &bytes);
        if name == "linked" {
            client.unlink(root, b"new").unwrap();
        }
    }
    client.end().unwrap();
}

/// To the server a number is not enough once it was there for two minutes. The data of a file that its client had closed before was taken for that
/// of a removed one, and discarded without a word, when a server had lost it and could take it again only after that time.
#[test]
fn closed_data_is_kept_when_the_server_has_seen_no_name_of_its_file() {
    let shared = Shared::with_long_leases();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    shared.server().forget_names_for_test();
    let dir = InodeNo::ROOT;
    let bytes = noise(9, 10_000);
    let write = |name: &str, between: &dyn Fn()| {
        let made = root.make(dir, name.as_bytes(), &new(0, 0o666)).unwrap();
        let no = alice.lookup(dir, name.as_bytes()).unwrap().no;
        assert_eq!(no, made.no);
        alice.open(no, Access::WRITE).unwrap();
        between();
        alice.write(no, 0, &bytes).unwrap();
        alice.flush(no).unwrap();
        alice.close(no, Access::WRITE);
        no
    };
    write("f", &|| ());
    shared.server().fail_for_test();
    alice.sync().unwrap();
    assert_same(&contents(&root, "f"), &bytes);

    // Under a name that the client does not know it is kept until somebody looks at that.
    write("moved", &|| {
        let mode = RenameMode::NoReplace;
        root.rename(dir, b"moved", dir, b"new", mode).unwrap();
    });
    shared.server().fail_for_test();
    let kept = alice.sync();
    assert!(matches!(kept, Err(Error::Io(_))), "{kept:?}");
    // Changes of other names do not wait for it.
    let refused = alice.unlink(dir, b"f");
    assert!(matches!(refused, Err(Error::AccessDenied)), "{refused:?}");
    root.lookup(dir, b"new").unwrap();
    alice.sync().unwrap();
    assert_same(&contents(&root, "new"), &bytes);

    // By a name that it moved itself.
    root.set_attributes(dir, &SetAttr::mode(0o777)).unwrap();
    write("its own", &|| {
        let mode = RenameMode::NoReplace;
        alice.rename(dir, b"its own", dir, b"other", mode).unwrap();
    });
    shared.server().fail_for_test();
    alice.sync().unwrap();
    assert_same(&contents(&root, "other"), &bytes);

    // A removed file needs none, also while another client has it open.
    let no = write("removed", &|| ());
    root.open(no, Access::READ).unwrap();
    root.unlink(dir, b"removed").unwrap();
    shared.server().fail_for_test();
    alice.sync().unwrap();
    root.close(no, Access::READ);
}

/// The client found out about the restart when it made everything durable at its end, and ended without the data that the server had lost.
#[test]
fn a_client_that_ends_after_a_restart_of_the_server_leaves_nothing_behind() {
    let shared = Shared::with_long_leases();
    let (client, other) = (shared.client("a", 0), shared.client("b", 0));
    let bytes = noise(8, 10_000);
    closed(&client, "f", &bytes);
    shared.server().fail_for_test();
    client.end().unwrap();
    assert_same(&contents(&other, "f"), &bytes);
}

#[test]
fn small_files_that_were_synced_do_not_care_about_a_disks_power() {
    let mut shared = Shared::new();
    let client = shared.client("a", 0);
    let bytes = noise(5, 10_000);
    let before: Vec<_> = (0..8)
        .map(|n| synced(&client, &format!("before-{n}"), &bytes))
        .collect();
    for disk in &mut shared.disks {
        disk.lose_power();
    }
    let after = synced(&client, "after", &bytes);
    // Nothing was missing, so nothing ended.
    assert_eq!(shared.server().metrics().reopened, 0);
    let other = shared.client("b", 0);
    for no in before.into_iter().chain([after]) {
        let mut read = vec![0; bytes.len()];
        assert_eq!(other.read(no, 0, &mut read).unwrap(), bytes.len());
        assert_same(&read, &bytes);
    }
}

#[test]
fn a_small_file_is_synced_when_its_disk_can_flush_again() {
    let shared = Shared::new();
    let client = shared.client("a", 0);
    let bytes = noise(6, 10_000);
    synced(&client, "before", &bytes);
    let fail = |fails| {
        for disk in &shared.disks {
            disk.fails.store(fails, Ordering::SeqCst);
        }
    };
    fail(true);
    let no = std::thread::scope(|scope| {
        let syncing = scope.spawn(|| synced(&client, "f", &bytes));
        // The data cannot be durable, and the server begins again.
        until("the server to open its room again", || {
            shared.server().metrics().reopened > 0
        });
        fail(false);
        syncing.join().unwrap()
    });
    let mut read = vec![0; bytes.len()];
    assert_eq!(client.read(no, 0, &mut read).unwrap(), bytes.len());
    assert_same(&read, &bytes);
}

#[test]
fn a_writer_of_more_than_the_free_space_gets_an_error() {
    let shared = Shared::on_disks(200 << 20);
    let Some(a) = shared.mount("a") else { return };
    let kept = noise(1, 1 << 20);
    std::fs::write(a.path("kept"), &kept).unwrap();
    let mut file = std::fs::File::create(a.path("f")).unwrap();
    let piece = noise(2, 1 << 20);
    let written = (0..600).try_for_each(|_| file.write_all(&piece));
    let refused = written.and_then(|()| file.sync_all()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    assert_same(&std::fs::read(a.path("kept")).unwrap(), &kept);
}

#[test]
fn as_much_as_the_disks_hold_can_nearly_be_written() {
    // Six segments of 64 MiB.
    let shared = Shared::on_disks(200 << 20);
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(1, 200 << 20);
    std::fs::write(a.path("f"), &bytes).unwrap();
    assert_same(&std::fs::read(b.path("f")).unwrap(), &bytes);
}
