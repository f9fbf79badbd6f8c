//! A disk that is really full: a small tmpfs, where this process may mount one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use seal::{CatalogKey, MasterKey, RoomId, Suite};
use storage::{HostStorage, Storage};
use strongroom_catalog::{
    Catalog, CatalogError, Change, FileKind, Inode, InodeNo, OpenOptions, Timestamp,
};

struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(dir.path())
            .output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(HostStorage::open(self.path()).unwrap())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn file(no: u64) -> Inode {
    Inode {
        mode: 0o644,
        has_xattrs: true,
        ..Inode::new(InodeNo(no), FileKind::Regular, Timestamp::default())
    }
}

/// Leaves so many bytes of the disk free. Returns the file that takes the others.
fn fill(disk: &Mounted, free: u64) -> std::fs::File {
    let mut ballast = std::fs::File::create(disk.path().join("ballast")).unwrap();
    while std::io::Write::write(&mut ballast, &[1; 4096]).is_ok_and(|n| n > 0) {}
    let len = ballast.metadata().unwrap().len();
    ballast.set_len(len - free).unwrap();
    ballast
}

fn key() -> CatalogKey {
    MasterKey::from_bytes(&[1; 32]).catalog_key(&RoomId::from_bytes([1; 16]))
}

fn create(storage: &Arc<dyn Storage>, key: &CatalogKey) -> Catalog {
    Catalog::create(storage, "catalog.db", key, &OpenOptions::default()).unwrap()
}

fn open(storage: &Arc<dyn Storage>, key: &CatalogKey) -> Catalog {
    Catalog::open(storage, "catalog.db", key, &OpenOptions::default()).unwrap()
}

#[test]
fn a_full_disk_leaves_the_changes_pending_until_there_is_space() {
    let Some(disk) = Mounted::new(12 << 20) else {
        return;
    };
    let key = key();
    let storage = disk.storage();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 6 << 20]).unwrap();
    let catalog = create(&storage, &key);

    let (mut applied, mut committed) = (0, 0);
    let error = loop {
        let inode = file(applied + 2);
        let xattr = Change::put_xattr(inode.no, b"user.a", &[1; 3000]);
        if let Err(error) = catalog.apply(&[Change::PutInode(&inode), xattr]) {
            break error;
        }
        applied += 1;
        if applied % 50 == 0 {
            if let Err(error) = catalog.commit() {
                break error;
            }
            committed = applied;
            // On a full disk this may fail; nothing is lost by that.
            let _ = catalog.checkpoint();
        }
        assert!(applied < 100_000, "the disk is never full");
    };
    assert!(matches!(error, CatalogError::NoSpace), "{error:?}");
    assert!(committed > 0);
    assert!(matches!(catalog.commit(), Err(CatalogError::NoSpace)));
    let count =
        |catalog: &Catalog| catalog.all_inodes(InodeNo(0), usize::MAX).unwrap().len() as u64;
    assert_eq!(count(&catalog), applied, "all of it can still be read");
    assert!(catalog.is_dirty());

    std::fs::remove_file(&ballast).unwrap();
    catalog.commit().unwrap();
    drop(catalog);
    let catalog = open(&storage, &key);
    assert_eq!(count(&catalog), applied);
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

#[test]
fn a_catalog_opens_and_deletes_on_a_full_disk() {
    let Some(disk) = Mounted::new(8 << 20) else {
        return;
    };
    let key = key();
    let storage = disk.storage();
    let catalog = create(&storage, &key);
    for no in 2..100 {
        catalog.apply(&[Change::PutInode(&file(no))]).unwrap();
    }
    catalog.commit().unwrap();
    drop(catalog);
    let ballast = fill(&disk, 0);
    let catalog = open(&storage, &key);
    assert!(catalog.inode(InodeNo(5)).unwrap().is_some());
    catalog.apply(&[Change::DeleteInode(InodeNo(5))]).unwrap();
    assert!(matches!(catalog.commit(), Err(CatalogError::NoSpace)));
    ballast.set_len(0).unwrap();
    catalog.commit().unwrap();
    drop(catalog);
    let catalog = open(&storage, &key);
    assert_eq!(catalog.inode(InodeNo(5)).unwrap(), None);
}

/// A change is given room for the pages it touches at worst. Many changes touch the same pages.
#[test]
fn changes_go_on_where_the_disk_has_room_for_their_pages_only() {
    let Some(disk) = Mounted::new(16 << 20) else {
        return;
    };
    let key = key();
    let storage = disk.storage();
    let catalog = create(&storage, &key);
    fill(&disk, 2 << 20);
    for no in 2..2000 {
        catalog.apply(&[Change::PutInode(&file(no))]).unwrap();
    }
    catalog.commit().unwrap();
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

#[test]
fn records_of_many_changes_are_applied_on_a_disk_that_is_nearly_full() {
    // A log is made where 64 MiB are free.
    let Some(disk) = Mounted::new(80 << 20) else {
        return;
    };
    let (master, room) = (MasterKey::from_bytes(&[1; 32]), RoomId::from_bytes([1; 16]));
    let log_key = master.log_key(&room, Suite::Aes256Gcm);
    let key = master.catalog_key(&room).with_log(log_key);
    let storage = disk.storage();
    let catalog = create(&storage, &key);
    let synced = |record: u64| {
        for i in 0..20 {
            let inode = file(2 + record * 20 + i);
            catalog.apply(&[Change::PutInode(&inode)]).unwrap();
        }
        catalog.sync(Vec::new(), Box::new(|| true)).unwrap()
    };
    assert_eq!(synced(0), None, "the commit that says that there is a log");
    catalog.commit().unwrap();
    for record in 1..100 {
        assert!(synced(record).is_some(), "{record}");
        catalog.write_ahead().unwrap();
    }
    // As after a crash: nothing is committed.
    std::mem::forget(catalog);
    fill(&disk, 2 << 20);
    let catalog = open(&storage, &key);
    assert_eq!(catalog.inode_count().unwrap(), 2000);
    catalog.commit().unwrap();
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

/// Each change is given room for all pages that it may touch: 3,000 changes of one commit had 38 MiB, and needed a part of that. The log
/// kept them, also for the next opening.
#[test]
fn what_a_commit_did_not_need_is_freed() {
    use std::os::unix::fs::MetadataExt;

    const CHANGES: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let key = key();
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(dir.path()).unwrap());
    let reserved = || {
        let log = std::fs::metadata(dir.path().join("catalog.db-wal")).unwrap();
        (log.blocks() * 512).saturating_sub(log.len())
    };
    let changes = |catalog: &Catalog, from: u64| {
        for no in from..from + CHANGES {
            catalog.apply(&[Change::PutInode(&file(no))]).unwrap();
        }
    };
    let catalog = create(&storage, &key);
    changes(&catalog, 2);
    if reserved() < 32 << 20 {
        eprintln!("skipped: space behind the end of a file cannot be reserved here");
        return;
    }
    catalog.commit().unwrap();
    assert!(reserved() <= 8 << 20, "{} bytes", reserved());

    changes(&catalog, 2 + CHANGES);
    // As after a crash.
    std::mem::forget(catalog);
    assert!(reserved() >= 32 << 20);
    let catalog = open(&storage, &key);
    assert!(reserved() <= 8 << 20, "{} bytes", reserved());
    assert_eq!(catalog.inode_count().unwrap(), CHANGES);
    changes(&catalog, 2 + CHANGES);
    catalog.commit().unwrap();
    assert_eq!(catalog.inode_count().unwrap(), 2 * CHANGES);
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}
