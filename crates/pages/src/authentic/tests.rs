//! SQLCipher on a storage in memory, with a witness: crashes and mixtures of moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OpenFlags};
use seal::{MasterKey, PageDigestKey, RoomId};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
use storage::{OpenMode, Storage};

use super::chain::{Chain, Frame};
use super::log_file::{FRAME, HEADER, SLOT, STRIDE};
use super::*;
use crate::{Registration, VFS};

mod crashes;
mod mixtures;

const DB: &str = "a.db";
const LOG: &str = "a.db-wal";
const TABLE: &str = "a.db-pages";

fn key() -> PageDigestKey {
    MasterKey::from_bytes(&[7; 32]).page_digest_key(&RoomId::from_bytes([1; 16]))
}

/// A connection with what it needs to live.
struct Db {
    conn: Connection,
    witness: Witness,
    _place: Registration,
}

fn connect(storage: Arc<dyn Storage>, witness: Witness) -> rusqlite::Result<Db> {
    let place = Registration::new(storage).unwrap();
    place.vouch(DB, witness.clone());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let conn = Connection::open_with_flags_and_vfs(place.path(DB), flags, VFS)?;
    conn.execute_batch(
        "PRAGMA key = \"x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'\";
         PRAGMA cipher_log_level = NONE;
         PRAGMA cipher_page_size = 4096;
         PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = 10;
         PRAGMA journal_mode = WAL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA synchronous = NORMAL;",
    )?;
    Ok(Db {
        conn,
        witness,
        _place: place,
    })
}

fn create(storage: Arc<dyn Storage>) -> rusqlite::Result<Db> {
    let witness = Witness::create(storage.clone(), DB, key());
    let db = connect(storage, witness)?;
    db.conn
        .execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)")?;
    Ok(db)
}

/// Opens; an error in words, with the witness's finding where it has one.
fn open(storage: Arc<dyn Storage>) -> Result<Db, String> {
    let witness =
        Witness::open(storage.clone(), DB, key()).map_err(|error| format!("witness: {error}"))?;
    connect(storage, witness.clone()).map_err(|error| {
        let finding = witness.finding();
        finding.unwrap_or_else(|| format!("without a finding: {error}"))
    })
}

impl Db {
    /// Puts `value` into rows, and makes that durable as the catalog does it.
    fn put(&self, rows: std::ops::Range<i64>, value: u8) -> rusqlite::Result<()> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        for row in rows {
            self.conn.execute(
                "INSERT OR REPLACE INTO t VALUES (?1, ?2)",
                (row, vec![value; 300]),
            )?;
        }
        self.conn.execute_batch("COMMIT")
    }

    fn checkpoint(&self) -> rusqlite::Result<()> {
        self.conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
    }

    fn close(self) -> rusqlite::Result<()> {
        self.conn.close().map_err(|(_, error)| error)
    }

    /// All rows by their values, after a look at every page.
    fn rows(&self) -> Result<BTreeMap<i64, u8>, String> {
        self.read()
            .map_err(|error| self.witness.finding().unwrap_or(format!("{error}")))
    }

    fn read(&self) -> rusqlite::Result<BTreeMap<i64, u8>> {
        let ok: String = self
            .conn
            .query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
        if ok != "ok" {
            return Err(rusqlite::Error::InvalidColumnName(ok));
        }
        let mut rows = self.conn.prepare("SELECT a, b FROM t")?;
        rows.query_map((), |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?[0])))?
            .collect()
    }
}

fn bytes(storage: &dyn Storage, name: &str) -> Vec<u8> {
    storage::read_limited(storage, name, 1 << 30).unwrap_or_default()
}

fn put_bytes(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    storage::replace(storage, name, bytes).unwrap();
}

fn rows(parts: &[(std::ops::Range<i64>, u8)]) -> BTreeMap<i64, u8> {
    let mut all = BTreeMap::new();
    for (range, value) in parts {
        all.extend(range.clone().map(|row| (row, *value)));
    }
    all
}

#[test]
fn a_catalog_lives_through_checkpoints_and_openings_with_its_pages_vouched_for() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    for round in 1..6 {
        db.put(0..200, round).unwrap();
        db.put(100..300, round + 10).unwrap();
        if round % 2 == 0 {
            db.checkpoint().unwrap();
        }
    }
    let expected = rows(&[(0..100, 5), (100..300, 15)]);
    assert_eq!(db.rows().unwrap(), expected);
    db.close().unwrap();
    let mut names = memory.list("").unwrap();
    names.sort();
    assert_eq!(names, [DB, TABLE], "closing leaves no log");
    let db = open(Arc::new(memory.clone())).unwrap();
    assert_eq!(db.rows().unwrap(), expected);
    assert!(fits(&memory, TABLE, DB, &key()).unwrap());
    assert_eq!(db.witness.table().unwrap(), bytes(&memory, TABLE));
}

#[test]
fn a_log_left_by_a_crash_is_taken_up_to_its_last_whole_commit() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..100, 1).unwrap();
    db.put(0..50, 2).unwrap();
    let log = memory.open(LOG, OpenMode::ReadWrite).unwrap();
    log.sync().unwrap();
    db.put(50..100, 3).unwrap();
    memory.power_cut();
    let db = open(Arc::new(memory.clone())).unwrap();
    assert_eq!(db.rows().unwrap(), rows(&[(0..50, 2), (50..100, 1)]));
    // Written over what was lost, and lost and written once more.
    db.put(50..60, 4).unwrap();
    drop(db);
    let db = open(Arc::new(memory)).unwrap();
    assert_eq!(
        db.rows().unwrap(),
        rows(&[(0..50, 2), (50..60, 4), (60..100, 1)])
    );
}

/// A torn frame whose code and tag had arrived was in our chain and not in SQLite's log: moving the log then looked like an
/// older page put over a newer one, and the catalog was called damaged. Found by the crash explorer.
#[test]
fn a_commit_torn_outside_tag_and_code_is_no_commit() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..3, 1).unwrap();
    keep_log(&db);
    drop(db);
    let whole = bytes(&memory, LOG);
    let db = open(Arc::new(memory.clone())).unwrap();
    db.put(0..3, 2).unwrap();
    keep_log(&db);
    drop(db);
    let mut torn = bytes(&memory, LOG);
    let from = (0..torn.len()).find(|i| whole.get(*i) != torn.get(*i));
    // Within the page of the first frame that came with the second commit.
    torn[from.unwrap() + 2048..][..512].fill(0);
    put_bytes(&memory, LOG, &torn);
    let db = open(Arc::new(memory)).unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.rows().unwrap(), rows(&[(0..3, 1)]));
    db.put(0..3, 3).unwrap();
    assert_eq!(db.rows().unwrap(), rows(&[(0..3, 3)]));
}

#[test]
fn a_transaction_larger_than_the_cache_rewrites_its_frames_and_still_holds() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..400, 1).unwrap();
    db.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    for round in 2..6_u8 {
        // Each round touches the same pages again, after they were spilled.
        db.conn
            .execute("UPDATE t SET b = ?1", [vec![round; 300]])
            .unwrap();
    }
    db.conn.execute_batch("COMMIT").unwrap();
    db.put(400..410, 9).unwrap();
    // Rolled back after it spilled, then written over.
    db.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    db.conn
        .execute("UPDATE t SET b = ?1", [vec![99; 300]])
        .unwrap();
    db.conn.execute_batch("ROLLBACK").unwrap();
    db.put(0..3, 7).unwrap();
    let expected = rows(&[(0..3, 7), (3..400, 5), (400..410, 9)]);
    assert_eq!(db.rows().unwrap(), expected);
    keep_log(&db);
    drop(db);
    let db = open(Arc::new(memory)).unwrap();
    assert_eq!(db.rows().unwrap(), expected);
}

#[test]
fn a_catalog_that_shrinks_is_as_long_as_its_table_says() {
    let memory = MemoryStorage::new();
    let db = create(Arc::new(memory.clone())).unwrap();
    db.put(0..500, 1).unwrap();
    db.checkpoint().unwrap();
    let before = bytes(&memory, DB).len();
    db.conn
        .execute_batch("DELETE FROM t WHERE a > 20; VACUUM")
        .unwrap();
    db.checkpoint().unwrap();
    db.put(20..22, 2).unwrap();
    assert!(bytes(&memory, DB).len() < before);
    db.close().unwrap();
    let db = open(Arc::new(memory)).unwrap();
    assert_eq!(db.rows().unwrap(), rows(&[(0..20, 1), (20..22, 2)]));
}

#[test]
fn a_page_never_written_is_zeros_throughout() {
    let mut page = [0; PAGE];
    assert!(is_version(&page, Tag::default()));
    page[17] = 1;
    assert!(!is_version(&page, Tag::default()));
    page[CODE] = 5;
    assert!(is_version(&page, tag_of(&page)));
}

#[test]
fn a_commit_written_over_is_as_if_it_had_never_been() {
    let frame = |page, size, tag| Frame {
        page,
        size,
        tag: [tag; 16],
        sum: 0,
    };
    let begun = || {
        let mut chain = Chain::default();
        chain.begin([1; 32]);
        chain.put(0, frame(1, 3, 1), &key()).unwrap();
        chain
    };
    let mut straight = begun();
    straight.put(1, frame(2, 0, 7), &key());
    let expected = straight.put(2, frame(3, 3, 8), &key());
    // A commit of three frames, then another one over its first two.
    let mut chain = begun();
    chain.put(1, frame(2, 0, 4), &key());
    chain.put(2, frame(3, 0, 5), &key());
    chain.put(3, frame(4, 4, 6), &key()).unwrap();
    assert_eq!(chain.newest(4), Some([6; 16]));
    chain.put(1, frame(2, 0, 7), &key());
    assert_eq!((chain.newest(2), chain.size()), (None, Some(3)));
    assert_eq!(chain.put(2, frame(3, 3, 8), &key()), expected);
    assert_eq!(chain.len(), 3);
    // Each version of each page makes another code.
    let mut other = begun();
    other.put(1, frame(2, 0, 4), &key());
    assert_ne!(other.put(2, frame(3, 3, 8), &key()), expected);
}

/// Closing must not move the log into the file.
fn keep_log(db: &Db) {
    db.conn
        .set_db_config(
            rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
            true,
        )
        .unwrap();
}
