//! An SQLite database whose files are in a `Storage`: what it writes and syncs passes through code that you choose.
//!
//! `cargo run -p strongroom-pages --example sqlite_on_storage -- DIRECTORY`: the directory must exist.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use storage::{HostStorage, Storage};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    // Here a directory of the host; a room's tests use one in memory that loses power.
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(&dir)?);
    // Gives the storage a name that SQLite understands. It must outlive the connections.
    let place = pages::Registration::new(storage)?;

    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = Connection::open_with_flags_and_vfs(place.path("notes.db"), flags, pages::VFS)?;
    // Exclusive before the write-ahead log: this layer has no memory that connections share, and no locks between them.
    // FULL: a transaction that was committed is durable.
    db.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS note (text TEXT NOT NULL)",
    )?;
    db.execute("INSERT INTO note VALUES (?1)", ["remember the milk"])?;
    let count: i64 = db.query_row("SELECT count(*) FROM note", [], |row| row.get(0))?;
    println!("{count} note");
    // Moves the log into the database; an error here would be lost in a drop.
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}
