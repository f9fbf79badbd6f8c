//! A copy of the catalog, under its own key or another one.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::Connection;
use zeroize::Zeroizing;

use super::open::{at, sync_parent};
use super::{SqlCatalog, State};
use crate::{CatalogError, Result};

const BUFFER: usize = 1 << 20;

pub(super) fn copy(catalog: &SqlCatalog, target: &Path, key: &seal::CatalogKey) -> Result<()> {
    if !catalog.read_only {
        catalog.commit_now()?;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target);
    let file = file.map_err(|error| at(target, &error))?;
    let written = copy_locked(catalog, &file, target, key)
        .and_then(|()| file.sync_all().map_err(|error| at(target, &error)))
        .and_then(|()| sync_parent(target));
    if written.is_err() {
        // Half a copy is of no use, and its name must be free for the next try. The first error is the one to tell.
        let _ = std::fs::remove_file(target);
    }
    written
}

fn copy_locked(
    catalog: &SqlCatalog,
    file: &File,
    target: &Path,
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
    let same_key = *key.to_hex() == *catalog.key.to_hex();
    let fully_in_file =
        catalog.read_only && super::log::is_left(&catalog.path).is_ok_and(|left| !left);
    if same_key && (fully_in_file || (!catalog.read_only && empty_log(&mut state)?)) {
        return copy_bytes(&catalog.file, file).map_err(|error| at(target, &error));
    }
    export(&state.conn, target, key).map_err(|error| state.note(error))
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

fn copy_bytes(from: &File, to: &File) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut offset = 0;
    loop {
        let read = match from.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all_at(&buffer[..read], offset)?;
        offset += read as u64;
    }
}

/// Writes every row into a new database under the other key.
fn export(conn: &Connection, target: &Path, key: &seal::CatalogKey) -> Result<()> {
    let path = target
        .to_str()
        .ok_or_else(|| CatalogError::Io("the copy's path is not UTF-8".into()))?;
    let hex = key.to_hex();
    let mut raw = Zeroizing::new(String::with_capacity(hex.len() + 3));
    for part in ["x'", &hex, "'"] {
        raw.push_str(part);
    }
    conn.execute("ATTACH DATABASE ?1 AS copy KEY ?2", (path, &*raw))?;
    let exported = conn
        .execute_batch(
            &super::open::CIPHER
                .replace("PRAGMA cipher_page", "PRAGMA copy.cipher_page")
                .replace("PRAGMA cipher_hmac", "PRAGMA copy.cipher_hmac"),
        )
        .and_then(|()| conn.query_row("SELECT sqlcipher_export('copy')", (), |_| Ok(())));
    let detached = conn.execute_batch("DETACH DATABASE copy");
    exported?;
    Ok(detached?)
}
