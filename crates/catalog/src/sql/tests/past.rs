//! Snapshots: what is this implementation's own.

use storage::testing::MemoryStorage;

use super::vouched::{NAME, copy_of};
use super::*;
use crate::KeptChunk;
use whole::blocks;

mod edits;
mod gathered;
mod rooms;
mod whole;

fn log_key() -> CatalogKey {
    let (master, room) = (MasterKey::from_bytes(&[1; 32]), RoomId::from_bytes([9; 16]));
    master
        .catalog_key(&room)
        .with_log(master.log_key(&room, seal::Suite::Aes256Gcm))
}

fn create_in(memory: &MemoryStorage) -> Catalog {
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    Catalog::create(&storage, NAME, &log_key(), &OpenOptions::default()).unwrap()
}

fn open_in(memory: &MemoryStorage) -> Catalog {
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    Catalog::open(&storage, NAME, &log_key(), &OpenOptions::default()).unwrap()
}

fn snapshot(catalog: &Catalog, name: &str) -> u64 {
    let row = catalog.new_snapshot(name, crate::Timestamp { secs: 1, nanos: 2 }, false);
    catalog.apply(&[Change::CreateSnapshot(&row)]).unwrap();
    row.no()
}

/// A catalog with something in every table of snapshots.
fn with_past(catalog: &Catalog) -> (InodeNo, u64) {
    let no = put(catalog, InodeNo::ROOT, b"a");
    let xattr = |value| Change::put_xattr(no, b"user.a", value);
    catalog.apply(&[xattr(b"1")]).unwrap();
    let at = snapshot(catalog, "then");
    let mut kept = KeptChunk::default();
    kept.keep(0, 200, map(1, 200).extents());
    let name = b"a";
    let parent = InodeNo::ROOT;
    catalog
        .apply(&[
            Change::PutInode(&Inode {
                nlink: 7,
                ..file(no.0)
            }),
            xattr(b"2"),
            Change::remove_entry(parent, name),
            Change::keep_chunk(no, 0, at, &kept),
            Change::count_space(0, at, 200),
        ])
        .unwrap();
    (no, at)
}

fn assert_past(catalog: &Catalog, no: InodeNo, at: u64) {
    assert_eq!(
        catalog.past_lookup(at, InodeNo::ROOT, b"a").unwrap(),
        Some(file(no.0))
    );
    assert_eq!(
        catalog.past_xattr(at, no, b"user.a").unwrap().unwrap(),
        b"1"
    );
    assert_eq!(
        blocks(&catalog.past_chunk(at, no, 0).unwrap()),
        blocks(&map(1, 200))
    );
    assert_eq!(catalog.snapshot_space_rows().unwrap()[0].blocks, 200);
    assert_eq!(catalog.verify().unwrap(), [""; 0]);
}

fn version(catalog: &Catalog) -> u32 {
    let value = catalog.lock().meta(schema::META_VERSION).unwrap().unwrap();
    u32::from_le_bytes(value.try_into().unwrap())
}

#[test]
fn a_listing_finds_inodes_among_many_kept_rows_of_others() {
    let mut files = Files::new();
    let catalog = files.create();
    let [a, busy, c] = [b"a", b"b", b"c"].map(|name| put(&catalog, InodeNo::ROOT, name));
    let sized = |no: InodeNo, size| Inode { size, ..file(no.0) };
    let moments: Vec<u64> = (0..200)
        .map(|i| {
            let at = snapshot(&catalog, &format!("{i}"));
            catalog
                .apply(&[Change::PutInode(&sized(busy, i + 1))])
                .unwrap();
            if i == 100 {
                catalog.apply(&[Change::PutInode(&sized(c, 7))]).unwrap();
            }
            at
        })
        .collect();
    for (i, at) in moments.into_iter().enumerate() {
        let i = i as u64;
        let listed = catalog.past_entries_plus(at, InodeNo::ROOT, 0, 9).unwrap();
        let sizes: Vec<_> = listed
            .iter()
            .map(|(_, inode)| (inode.no, inode.size))
            .collect();
        let first = file(a.0).size;
        let busy_then = if i == 0 { first } else { i };
        let last = if i > 100 { 7 } else { first };
        assert_eq!(sizes, [(a, first), (busy, busy_then), (c, last)]);
    }
}

#[test]
fn programs_that_do_not_know_snapshots_refuse_a_catalog_that_ever_had_one() {
    let mut files = Files::new();
    let catalog = files.create();
    put(&catalog, InodeNo::ROOT, b"a");
    catalog.commit().unwrap();
    assert_eq!(version(&catalog), 1);
    let at = snapshot(&catalog, "then");
    catalog.commit().unwrap();
    assert_eq!(version(&catalog), 4);
    catalog
        .apply(&[Change::DoomSnapshot(at), Change::DropSnapshot(at)])
        .unwrap();
    assert!(catalog.snapshots().is_empty());
    catalog.commit().unwrap();
    drop(catalog);
    let catalog = open(&files.path).unwrap();
    assert_eq!(version(&catalog), 4);
    assert_eq!(snapshot(&catalog, "then"), 2);
}

/// A program that refuses version 4 must find it before it finds a record that it cannot read.
#[test]
fn the_first_snapshot_is_made_durable_by_a_commit_and_later_ones_by_a_record() {
    let memory = MemoryStorage::new();
    let catalog = create_in(&memory);
    let sync = || catalog.sync(Vec::new(), Box::new(|| true)).unwrap();
    put(&catalog, InodeNo::ROOT, b"a");
    assert_eq!(sync(), None, "there is no log yet");
    catalog.commit().unwrap();
    put(&catalog, InodeNo::ROOT, b"b");
    assert!(sync().is_some());
    assert_eq!(version(&catalog), 3);
    snapshot(&catalog, "first");
    assert_eq!(sync(), None);
    catalog.commit().unwrap();
    let (no, at) = with_past(&catalog);
    assert!(sync().is_some());
    let list = catalog.snapshots();
    // The records are replayed, and after a crash in between once more.
    for _ in 0..2 {
        let again = open_in(&copy_of(&memory));
        assert_eq!(again.snapshots(), list);
        assert_past(&again, no, at);
        again.leave_log();
    }
    let once = copy_of(&memory);
    let again = open_in(&once);
    again.commit().unwrap();
    let twice = open_in(&copy_of(&once));
    assert_eq!(twice.snapshots(), list);
    assert_past(&twice, no, at);
}

#[test]
fn copies_hold_the_snapshots_and_go_on_with_them() {
    let mut files = Files::new();
    let catalog = files.create();
    let (no, at) = with_past(&catalog);
    catalog.commit().unwrap();
    for n in [1, 2] {
        let copy = files.dir();
        catalog
            .copy_to(&beside(&copy), "catalog.db", &key(n))
            .unwrap();
        let other = open_under(&copy, &key(n), &OpenOptions::default()).unwrap();
        assert_eq!(other.snapshots(), catalog.snapshots());
        assert_past(&other, no, at);
        assert_eq!(snapshot(&other, "next"), at + 1);
        other.commit().unwrap();
    }
    drop(catalog);
    let reader = open_for_reading(&files.path).unwrap();
    assert_past(&reader, no, at);
    assert!(reader.apply(&[Change::DoomSnapshot(at)]).is_err());
}

#[test]
fn rows_of_snapshots_that_the_format_does_not_allow_are_found() {
    for (what, sql) in [
        (
            "no snapshot has the number",
            "UPDATE snapshots SET no = 9, next_inode = 3; UPDATE meta SET value = x'0900000000000000' WHERE key = 'snapshots'",
        ),
        ("a younger inode", "UPDATE past_inodes SET no = 77"),
        ("another inode", "UPDATE past_inodes SET inode = x'05'"),
        (
            "not all of an inode",
            "UPDATE past_inodes SET inode = CAST(substr(inode, 1, length(inode) - 1) AS BLOB)",
        ),
        (
            "more than an inode",
            "UPDATE past_inodes SET inode = CAST(inode || x'00' AS BLOB)",
        ),
        ("a wrong hash", "UPDATE past_entries SET hash = 1"),
        ("a younger cookie", "UPDATE past_entries SET cookie = 999"),
        ("no name", "UPDATE past_entries SET name = x''"),
        (
            "an attribute of a younger inode",
            "UPDATE past_xattrs SET inode = 77",
        ),
        (
            "an attribute without a name",
            "UPDATE past_xattrs SET name = x''",
        ),
        (
            "a chunk that covers nothing",
            "UPDATE past_chunks SET kept = x''",
        ),
        (
            "a chunk that covers less than it keeps",
            "UPDATE past_chunks SET kept = CAST(x'010000' || substr(kept, 4) AS BLOB)",
        ),
        (
            "a chunk that is cut off",
            "UPDATE past_chunks SET kept = CAST(substr(kept, 1, 30) AS BLOB)",
        ),
        (
            "a chunk outside every file",
            "UPDATE past_chunks SET idx = 1 << 43",
        ),
        (
            "blocks after themselves",
            "UPDATE snapshot_space SET since = 1",
        ),
        (
            "less than no blocks",
            "UPDATE snapshot_space SET blocks = -1",
        ),
        (
            "blocks of no snapshot",
            "UPDATE snapshot_space SET until = 8",
        ),
    ] {
        let mut files = Files::new();
        let catalog = files.create();
        with_past(&catalog);
        catalog.commit().unwrap();
        catalog.lock().conn.execute_batch(sql).unwrap();
        drop(catalog);
        let catalog = open(&files.path).unwrap();
        let found = catalog.verify().unwrap();
        assert!(!found.is_empty(), "{what}");
        assert!(found.iter().all(|line| line.len() < 200), "{found:?}");
    }
    for sql in [
        "UPDATE meta SET value = x'00' WHERE key = 'snapshots'",
        "UPDATE meta SET value = x'0000000000000000' WHERE key = 'snapshots'",
        "UPDATE snapshots SET name = 'a/b'",
        "UPDATE snapshots SET deleted = 2",
        "UPDATE snapshots SET created_ns = 1000000000",
    ] {
        let mut files = Files::new();
        let catalog = files.create();
        with_past(&catalog);
        catalog.commit().unwrap();
        catalog.lock().conn.execute_batch(sql).unwrap();
        drop(catalog);
        assert!(
            matches!(open(&files.path), Err(CatalogError::Damaged(_))),
            "{sql}"
        );
    }
}

#[test]
fn every_statement_of_snapshots_uses_the_index_that_is_meant_for_it() {
    let catalog = Files::new().create();
    snapshot(&catalog, "then");
    use schema::past::*;
    let statements = [
        (PAST_INODE, "PRIMARY KEY (no=? AND until>?)"),
        (PAST_LOOKUP, "past_entry_names (parent=? AND hash=?"),
        (
            PAST_LOOKUP,
            "PRIMARY KEY (parent=? AND cookie=? AND until>? AND until<?)",
        ),
        (LIVE_LOOKUP, "entry_names (parent=? AND hash=?"),
        (
            LIVE_LOOKUP,
            "PRIMARY KEY (parent=? AND cookie=? AND until>?)",
        ),
        (
            PAST_ENTRIES,
            "PRIMARY KEY (parent=? AND cookie>? AND cookie<?)",
        ),
        (
            LIVE_ENTRIES,
            "PRIMARY KEY (parent=? AND cookie>? AND cookie<?)",
        ),
        (
            LIVE_ENTRIES_PLUS,
            "PRIMARY KEY (parent=? AND cookie>? AND cookie<?)",
        ),
        (PAST_INODES, "PRIMARY KEY (no>? AND no<?)"),
        (PAST_XATTR, "PRIMARY KEY (inode=? AND name=? AND until>?)"),
        (
            LIVE_XATTR_NAMES,
            "PRIMARY KEY (inode=? AND name=? AND until>?)",
        ),
        (
            KEPT_BETWEEN,
            "PRIMARY KEY (inode=? AND idx=? AND until>? AND until<?)",
        ),
        (NEXT_KEPT, "PRIMARY KEY (inode=? AND idx>?)"),
        (ALL_KEPT, "PRIMARY KEY ((inode,idx,until)>(?,?,?))"),
        (
            KEPT_UNTIL,
            "past_chunks_until (until=? AND (inode,idx)>(?,?))",
        ),
        (
            MOVE_ENTRY,
            "PRIMARY KEY (parent=? AND cookie=? AND until=?)",
        ),
        (ENTRIES_UNTIL, "past_entries_until (until=?)"),
        (SPACE_SINCE, "PRIMARY KEY (since=?)"),
    ];
    uses(&catalog.lock(), &statements);
}
