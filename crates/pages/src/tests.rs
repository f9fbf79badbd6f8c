use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};
use storage::{OpenMode, Storage};

use crate::{Registration, VFS};

fn connect(place: &Registration) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = Connection::open_with_flags_and_vfs(place.path("a.db"), flags, VFS).unwrap();
    db.execute_batch(
        "PRAGMA key = \"x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'\";
         PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA temp_store = MEMORY;",
    )
    .unwrap();
    let mode: String = db
        .query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    db
}

fn sum(db: &Connection) -> i64 {
    db.query_row("SELECT sum(a) FROM t", (), |row| row.get(0))
        .unwrap()
}

#[test]
fn a_database_lives_in_a_storage_and_survives_a_power_cut() {
    let memory = MemoryStorage::new();
    let place = Registration::new(Arc::new(memory.clone())).unwrap();
    let db = connect(&place);
    db.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    db.execute_batch("PRAGMA wal_checkpoint; INSERT INTO t VALUES (4)")
        .unwrap();
    memory
        .open("a.db-wal", OpenMode::ReadWrite)
        .unwrap()
        .sync()
        .unwrap();
    db.execute_batch("BEGIN; INSERT INTO t VALUES (100)")
        .unwrap();
    memory.power_cut();
    drop(db);
    let db = connect(&place);
    assert_eq!(sum(&db), 7);
    let ok: String = db
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(ok, "ok");
}

#[test]
fn a_refused_write_is_an_error_that_says_so_and_the_database_stays_whole() {
    let faulty = FaultyStorage::new(MemoryStorage::new());
    let place = Registration::new(Arc::new(faulty.clone())).unwrap();
    let db = connect(&place);
    db.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        .unwrap();
    faulty.refuse(Op::Write, 1, Fault::NoSpace, Times::Once);
    let full = db.execute_batch("INSERT INTO t VALUES (2)").unwrap_err();
    assert_eq!(
        full.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DiskFull)
    );
    db.execute_batch("INSERT INTO t VALUES (4)").unwrap();
    assert_eq!(sum(&db), 5);
}

/// SQLCipher decrypts what was not read, and refuses all pages from then on. As a lack of space, that was something after which one goes on:
/// the next call found a damaged database.
#[test]
fn a_read_that_finds_no_space_is_a_failure_of_the_storage() {
    let faulty = FaultyStorage::new(MemoryStorage::new());
    let place = Registration::new(Arc::new(faulty.clone())).unwrap();
    connect(&place)
        .execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        .unwrap();
    let db = connect(&place);
    faulty.refuse(Op::Read, 1, Fault::NoSpace, Times::Always);
    let failed = db.execute_batch("SELECT a FROM t").unwrap_err();
    assert_eq!(
        failed.sqlite_error_code(),
        Some(rusqlite::ErrorCode::SystemIoFailure)
    );
}

#[test]
fn a_long_statement_spills_into_memory_only() {
    let memory = MemoryStorage::new();
    let place = Registration::new(Arc::new(memory.clone())).unwrap();
    let db = connect(&place);
    db.execute_batch(
        "CREATE TABLE t(a, b UNIQUE);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO t SELECT i, hex(randomblob(200)) FROM n;",
    )
    .unwrap();
    db.execute_batch("BEGIN; UPDATE t SET b = hex(randomblob(200)); SAVEPOINT s; UPDATE t SET b = a; ROLLBACK TO s; COMMIT")
        .unwrap();
    let mut names = memory.list("").unwrap();
    names.sort();
    assert_eq!(names, ["a.db", "a.db-wal"]);
    assert_eq!(sum(&db), 3000 * 3001 / 2);
}

#[test]
fn a_place_that_is_gone_has_no_files() {
    let place = Registration::new(Arc::new(MemoryStorage::new())).unwrap();
    let path = place.path("a.db");
    drop(place);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let gone = Connection::open_with_flags_and_vfs(path, flags, VFS);
    assert!(gone.is_err());
}
