//! Space: disks that are removed, and disks that were full.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use metadata_proto::admin::Quota;
use metadata_server::server::ServerError;
use room::{Access, Error, FileSystem, InodeNo, SetAttr};

use super::common::{Shared, assert_same, noise};
use crate::common::until;

const FILE_LEN: usize = 3 << 20;

fn bytes(n: u64) -> Vec<u8> {
    noise(n, FILE_LEN)
}

/// Writes a file durably.
fn write(path: &Path, n: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(&bytes(n))?;
    file.sync_all()
}

/// The same; without space there is none.
fn put(path: &Path, n: u64) -> bool {
    match write(path, n) {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::StorageFull, "{e}");
            // It may not even have got a name.
            let _ = std::fs::remove_file(path);
            false
        }
    }
}

#[test]
fn a_disk_is_emptied_while_clients_write_and_its_removal_outlives_the_server() {
    let mut shared = Shared::on_disks(640 << 20);
    let Some(mount) = shared.mount("a") else {
        return;
    };
    let path = |n: u64| mount.path(&n.to_string());
    for n in 0..40 {
        assert!(put(&path(n), n));
    }
    let left = |shared: &Shared| {
        let disks = shared.server().disks().unwrap();
        let disk = disks.into_iter().find(|d| d.name == "disk0")?;
        Some(disk.removal.expect("it is being emptied"))
    };
    let over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 40;
            while !over.load(Ordering::SeqCst) && n < 90 {
                // Also while the server goes and comes.
                write(&path(n), n).unwrap();
                n += 1;
            }
            n
        });
        let moved = shared.server().remove_disk("disk0").unwrap();
        assert!(moved.is_some_and(|bytes| bytes > 0), "it held something");
        shared.stop();
        shared.start();
        assert!(left(&shared).is_some(), "the next server knows of it");
        until("the disk is empty", || left(&shared).is_none());
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    let none = shared.disks.remove(0);
    drop(none);
    for n in 0..written {
        assert_same(&std::fs::read(path(n)).unwrap(), &bytes(n));
    }
    assert!(put(&path(0), 0));
    // The last one has nowhere to go.
    let refused = shared.server().remove_disk("disk1").unwrap_err();
    assert!(
        matches!(refused, ServerError::NoPlaceElsewhere { available: 0, .. }),
        "{refused}"
    );
    assert!(put(&path(1), 1), "a refused removal changes nothing");
}

#[test]
fn a_user_with_a_quota_gets_no_more_and_everybody_else_goes_on() {
    const QUOTA: u64 = 16 << 20;
    let mut shared = Shared::new();
    let (ada, bob) = (shared.client("ada", 1001), shared.client("bob", 1002));
    let set = |shared: &Shared, bytes, files| {
        let quota = Quota { bytes, files };
        shared.server().set_quota("ada", quota).unwrap();
    };
    let file = |client: &dyn FileSystem, name: &str, uid| {
        let new = super::rights::new(uid, 0o600);
        let made = client.create(InodeNo::ROOT, name.as_bytes(), &new, Access::WRITE)?;
        let mut written = Ok(());
        for at in (0..FILE_LEN as u64).step_by(1 << 20) {
            written = written.and(client.write(made.no, at, &bytes(at)[..1 << 20]));
        }
        let synced = written.and_then(|()| client.fsync(made.no));
        let closed = client.flush(made.no);
        client.close(made.no, Access::WRITE);
        synced.and(closed)
    };
    let root = SetAttr::mode(0o777);
    shared
        .client("root", 0)
        .set_attributes(InodeNo::ROOT, &root)
        .unwrap();
    file(&*ada, "before", 1001).unwrap();
    set(&shared, Some(QUOTA), None);
    let used = |shared: &Shared| {
        let users = shared.server().users().unwrap();
        let ada = users.iter().find(|user| user.name == "ada").unwrap();
        ada.used.unwrap()
    };
    assert_eq!(used(&shared).bytes, FILE_LEN as u64);
    assert_eq!(ada.space().unwrap().total, QUOTA);
    assert_eq!(
        ada.space().unwrap().available,
        QUOTA - FILE_LEN as u64,
        "df shows what is left"
    );
    let refused = (0..8).find_map(|n| file(&*ada, &format!("f{n}"), 1001).err());
    let refused = refused.expect("the quota holds");
    assert!(matches!(refused, Error::QuotaExceeded), "{refused}");
    assert!(used(&shared).bytes <= QUOTA && used(&shared).bytes > QUOTA - FILE_LEN as u64);
    file(&*bob, "of bob", 1002).unwrap();
    // The next server knows it too.
    drop(ada);
    shared.stop();
    shared.start();
    let ada = shared.client("ada", 1001);
    let refused = file(&*ada, "more", 1001).unwrap_err();
    assert!(matches!(refused, Error::QuotaExceeded), "{refused}");
    // What is deleted can be used again.
    for n in 0..4 {
        ada.unlink(InodeNo::ROOT, format!("f{n}").as_bytes())
            .unwrap();
    }
    until("the deleted files are gone", || {
        used(&shared).bytes <= QUOTA - FILE_LEN as u64
    });
    file(&*ada, "again", 1001).unwrap();
    set(&shared, None, Some(used(&shared).files));
    let refused = file(&*ada, "one file too many", 1001).unwrap_err();
    assert!(matches!(refused, Error::QuotaExceeded), "{refused}");
    set(&shared, None, None);
    file(&*ada, "one file too many", 1001).unwrap();
    let names: BTreeSet<Vec<u8>> = {
        let names = bob.read_dir(InodeNo::ROOT, 0, 100).unwrap().into_iter();
        names.map(|(entry, _)| entry.name).collect()
    };
    assert!(names.contains(&b"again"[..]) && names.contains(&b"one file too many"[..]));
}

/// The close of somebody who only read took the error away, and the writer's fsync said that all was well.
#[test]
fn data_that_finds_no_quota_fails_the_fsync_of_each_writer() {
    use rustix::io::Errno;
    const EDQUOT: Option<i32> = Some(Errno::DQUOT.raw_os_error());
    let shared = Shared::new();
    let Some(mount) = shared.mount("a") else {
        return;
    };
    let set = |bytes| {
        let quota = Quota { bytes, files: None };
        shared.server().set_quota("a", quota).unwrap();
    };
    let failed = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    // The commit is asked for by a close, by the background, and by a lock.
    for (round, name) in ["closed", "in the background", "locked"]
        .into_iter()
        .enumerate()
    {
        let path = mount.path(name);
        let open = || std::fs::File::options().write(true).open(&path).unwrap();
        write(&path, 0).unwrap();
        let [writer, other, closing] = [open(), open(), open()];
        let bytes = noise(round as u64, 1 << 20);
        set(Some(1));
        writer.write_all_at(&bytes, FILE_LEN as u64).unwrap();
        match name {
            "closed" => {}
            // By its length. A write would be refused only until any descriptor is closed, and the children of other tests close copies.
            "in the background" => until("a refusal", || {
                writer.metadata().unwrap().len() == FILE_LEN as u64
            }),
            _ => {
                let lock = rustix::fs::FlockOperation::LockShared;
                assert_eq!(rustix::fs::flock(&other, lock), Err(Errno::DQUOT));
            }
        }
        // It reports an error of its close, and has none.
        mount.ok(&format!("cat '{name}' > /dev/null"));
        drop(closing);
        assert_eq!(failed(writer.sync_all()), EDQUOT, "{name}");
        assert_eq!(failed(other.sync_all()), EDQUOT, "{name}");
        writer.sync_all().unwrap();
        other.sync_all().unwrap();
        set(None);
        writer.write_all_at(&bytes, FILE_LEN as u64).unwrap();
        writer.sync_all().unwrap();
        drop((writer, other));
        assert_same(&std::fs::read(&path).unwrap()[FILE_LEN..], &bytes);
    }
}
