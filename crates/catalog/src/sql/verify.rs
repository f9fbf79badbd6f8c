//! The form of the catalog: every page, every row. What the rows mean together is the room's to check.

use pages::authentic::Witness;
use rusqlite::{Connection, Row};

use super::{State, rows, schema};
use crate::Result;

mod past;

/// More findings than this say nothing new.
const FINDINGS_MAX: usize = 1000;

/// `file_is_all`: the log holds nothing that the file does not. Only then each page of the file must be whole; otherwise
/// a page whose newer version is in the log may be half written, because a crash came while it was moved.
pub(super) fn findings(state: &State, file_is_all: bool) -> Result<Vec<String>> {
    state.readable()?;
    let mut found = Vec::new();
    if file_is_all && state.witness.as_ref().is_none_or(Witness::knows_file) {
        pragma(&state.conn, "PRAGMA cipher_integrity_check", "", &mut found);
    }
    pragma(&state.conn, "PRAGMA integrity_check", "ok", &mut found);
    each(
        state,
        "inodes",
        "SELECT i.* FROM inodes i",
        &mut found,
        |row| rows::inode(row).map(drop),
    );
    each(
        state,
        "entries",
        "SELECT cookie, name, inode, kind, hash FROM entries",
        &mut found,
        |row| {
            let entry = rows::entry(row, 0)?;
            if state.name_hash(&entry.name) == row.get::<_, i64>(4)? {
                Ok(())
            } else {
                Err(rows::damaged(format!(
                    "the directory entry with cookie {} has a wrong hash",
                    entry.cookie
                )))
            }
        },
    );
    each(
        state,
        "xattrs",
        "SELECT inode, name, value FROM xattrs",
        &mut found,
        |row| {
            let inode: u64 = rows::number(row, 0, "an attribute's inode")?;
            let name = rows::blob(row, 1, "an attribute's name")?;
            if inode != 0 && (1..=255).contains(&name.len()) {
                Ok(())
            } else {
                Err(rows::damaged(format!(
                    "inode {inode} has an attribute with a name of {} bytes",
                    name.len()
                )))
            }
        },
    );
    each(
        state,
        "chunks",
        "SELECT inode, idx, extents FROM chunks",
        &mut found,
        |row| {
            let inode: u64 = rows::number(row, 0, "a chunk's inode")?;
            let index: u64 = rows::number(row, 1, "a chunk's index")?;
            let chunk = rows::chunk(row, 2)
                .map_err(|error| rows::damaged(format!("inode {inode}, chunk {index}: {error}")))?;
            if chunk.is_empty() || index >= 1 << 43 {
                return Err(rows::damaged(format!(
                    "inode {inode}, chunk {index}: no such map can be"
                )));
            }
            Ok(())
        },
    );
    each(state, "segments", schema::SEGMENTS, &mut found, |row| {
        let account = rows::segment(row)?;
        if account.live <= account.length {
            return Ok(());
        }
        let (no, live, length) = (account.id.no.0, account.live, account.length);
        Err(rows::damaged(format!(
            "segment {no}: {live} of {length} blocks are live"
        )))
    });
    each(state, "shared", schema::ALL_SHARED, &mut found, |row| {
        let _: u64 = rows::number(row, 0, "a shared unit's segment")?;
        let _: u32 = rows::number(row, 1, "a shared unit's position")?;
        match row.get::<_, i64>(2)? {
            1.. => Ok(()),
            count => Err(rows::damaged(format!("a share count is {count}"))),
        }
    });
    if state.has_replies {
        each(state, "replies", schema::ALL_REPLIES, &mut found, |row| {
            rows::client(row, 0)?;
            rows::reply(row, 1).map(drop)
        });
    }
    if state.has_past() {
        past::findings(state, &mut found);
    }
    match state
        .conn
        .query_row("SELECT count(*) FROM inodes", (), |row| {
            row.get::<_, i64>(0)
        }) {
        Ok(count) if count.cast_unsigned() == state.inodes => {}
        Ok(count) => found.push(format!(
            "{count} inodes are there, {} were counted",
            state.inodes
        )),
        Err(error) => found.push(format!("inodes: {error}")),
    }
    found.extend(state.witness.as_ref().and_then(Witness::finding));
    Ok(found)
}

fn pragma(conn: &Connection, sql: &str, good: &str, found: &mut Vec<String>) {
    let lines = conn.prepare(sql).and_then(|mut statement| {
        let rows = statement.query_map((), |row| row.get::<_, String>(0))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    });
    match lines {
        Ok(lines) => found.extend(lines.into_iter().filter(|line| line != good)),
        Err(error) => found.push(error.to_string()),
    }
}

/// Runs `check` on every row; what it says is a finding, and the next row follows.
fn each(
    state: &State,
    table: &str,
    sql: &str,
    found: &mut Vec<String>,
    check: impl Fn(&Row<'_>) -> Result<()>,
) {
    let mut walk = || -> Result<()> {
        let mut statement = state.conn.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            if found.len() >= FINDINGS_MAX {
                break;
            }
            if let Err(error) = check(row) {
                found.push(match error {
                    crate::CatalogError::Damaged(what) => format!("{table}: {what}"),
                    other => format!("{table}: {other}"),
                });
            }
        }
        Ok(())
    };
    if let Err(error) = walk() {
        found.push(format!("{table}: {error}"));
    }
}
