//! A copy of the catalog, under its own key or another one.

use std::io;
use std::sync::Arc;

use pages::Registration;
use pages::authentic::table_path;
use rusqlite::{Connection, ffi};
use storage::{OpenMode, Storage, StorageFile, remove_if_there};
use zeroize::Zeroizing;

use super::open::{at, sync_parent};
use super::wal::{self, is_left};
use super::{Catalog, State};
use crate::{CatalogError, Result};

const BUFFER: usize = 1 << 20;

pub(super) fn copy(
    catalog: &Catalog,
    target: &Arc<dyn Storage>,
    name: &str,
    key: &seal::CatalogKey,
) -> Result<()> {
    if !catalog.read_only {
        catalog.commit_now()?;
    }
    let file = target.open(name, OpenMode::CreateNew);
    let file = file.map_err(|error| at(name, &error))?;
    // The log of an earlier copy that a crash cut off would be replayed over this one.
    remove_beside(&**target, name).map_err(|error| at(name, &error))?;
    let written = copy_locked(catalog, &*file, target, name, key);
    if written.is_err() {
        // Half a copy is of no use, and its name must be free for the next try. The first error is the one to report.
        let _ = remove(&**target, name);
    }
    written
}

/// Removes a closed catalog, with all files beside it. Missing files are skipped.
pub(super) fn remove(storage: &dyn Storage, name: &str) -> io::Result<()> {
    remove_if_there(storage, name)?;
    remove_beside(storage, name)
}

fn remove_beside(storage: &dyn Storage, name: &str) -> io::Result<()> {
    remove_if_there(storage, &wal::name(name))?;
    remove_if_there(storage, &format!("{name}-journal"))?;
    remove_if_there(storage, &table_path(name))
}

fn copy_locked(
    catalog: &Catalog,
    file: &dyn StorageFile,
    target: &Arc<dyn Storage>,
    name: &str,
    key: &seal::CatalogKey,
) -> Result<()> {
    // Another thread may have begun the next transaction since: commit it too, because a copy is of a commit.
    let mut state = loop {
        let state = catalog.lock();
        if !state.dirty {
            break state;
        }
        drop(state);
        catalog.commit_now()?;
    };
    state.readable()?;
    let same_key = *key.to_hex() == *catalog.key.to_hex()
        && key.digest().is_some() == catalog.witness.is_some();
    let fully_in_file =
        catalog.read_only && is_left(&*catalog.storage, &catalog.name).is_ok_and(|left| !left);
    if same_key && (fully_in_file || (!catalog.read_only && empty_log(&mut state)?)) {
        let copied = copy_bytes(catalog, file).and_then(|()| file.sync());
        copied.map_err(|error| at(name, &error))?;
        return match &catalog.witness {
            Some(witness) => witness
                .table()
                .and_then(|table| storage::replace(&**target, &table_path(name), &table))
                .map_err(|error| at(name, &error)),
            None => sync_parent(&**target, name),
        };
    }
    let place = super::open::place(target)?;
    let witness = super::open::making(target, name, &place, key);
    let before = pages::reads();
    let exported = export(&state.conn, &place, name, key);
    state.vouch(before, exported)?;
    if is_left(&**target, name).map_err(|error| at(name, &error))? {
        return Err(CatalogError::Io(format!(
            "{name}: what was written could not be moved out of its log"
        )));
    }
    remove_if_there(&**target, &wal::name(name)).map_err(|error| at(name, &error))?;
    match witness {
        Some(witness) => witness.settle().map_err(|error| at(name, &error)),
        None => sync_parent(&**target, name),
    }
}

/// Moves everything into the catalog's file; whether that was possible.
fn empty_log(state: &mut State) -> Result<bool> {
    state.checkpoint()?;
    let (busy, frames, moved) =
        state
            .conn
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, i64>(2)?,
                ))
            })?;
    Ok(busy == 0 && frames == moved)
}

fn copy_bytes(catalog: &Catalog, to: &dyn StorageFile) -> io::Result<()> {
    let from = catalog.storage.open(&catalog.name, OpenMode::Read)?;
    let mut buffer = vec![0; BUFFER];
    let (mut offset, len) = (0, from.len()?);
    while offset < len {
        let part = &mut buffer[..BUFFER.min((len - offset) as usize)];
        from.read_at(part, offset)?;
        to.write_at(part, offset)?;
        offset += part.len() as u64;
    }
    Ok(())
}

/// Writes every row into a new database under the other key. Its file is durable then, its name is not.
fn export(
    conn: &Connection,
    place: &Registration,
    name: &str,
    key: &seal::CatalogKey,
) -> Result<()> {
    let hex = key.to_hex();
    let mut raw = Zeroizing::new(String::with_capacity(hex.len() + 3));
    for part in ["x'", &hex, "'"] {
        raw.push_str(part);
    }
    conn.execute(
        "ATTACH DATABASE ?1 AS copy KEY ?2",
        (place.path(name), &*raw),
    )?;
    // It would hold for the copy too.
    let query_only: bool = conn.query_row("PRAGMA query_only", (), |row| row.get(0))?;
    conn.execute_batch("PRAGMA query_only = OFF")?;
    let exported = conn
        .execute_batch(
            &super::open::CIPHER
                .replace("PRAGMA cipher_page", "PRAGMA copy.cipher_page")
                .replace("PRAGMA cipher_hmac", "PRAGMA copy.cipher_hmac"),
        )
        // Half a copy is thrown away: it needs no journal, and one sync at its end.
        .and_then(|()| keep_no_journal(conn))
        .and_then(|()| conn.execute_batch("PRAGMA copy.synchronous = OFF"))
        .and_then(|()| conn.query_row("SELECT sqlcipher_export('copy')", (), |_| Ok(())))
        .map_err(by_its_words)
        .and_then(|()| conn.execute_batch("PRAGMA copy.synchronous = NORMAL"))
        // Now, because a page that is vouched for is never written by way of a journal afterwards.
        .and_then(|()| conn.execute_batch("PRAGMA copy.locking_mode = EXCLUSIVE"))
        .and_then(|()| super::open::keep_log(conn, "copy."));
    // Detaching moves the log too, but says nothing where that fails; nor does a mode that could not be changed.
    let moved = exported.and_then(|mode| {
        let busy: i64 =
            conn.query_row("PRAGMA copy.wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
        Ok(mode == "wal" && busy == 0)
    });
    let detached = conn.execute_batch(&format!(
        "DETACH DATABASE copy; PRAGMA query_only = {query_only}"
    ));
    let moved = moved?;
    detached?;
    if !moved {
        return Err(CatalogError::Io(format!(
            "{name}: the copy could not be completed"
        )));
    }
    Ok(())
}

/// `sqlcipher_export` passes the words of an error on, and not its number.
fn by_its_words(error: rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(words)) if words.contains("disk is full") => {
            let full = ffi::Error::new(ffi::SQLITE_FULL);
            rusqlite::Error::SqliteFailure(full, Some(words))
        }
        other => other,
    }
}

fn keep_no_journal(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA copy.journal_mode = OFF", (), |_| Ok(()))
}
