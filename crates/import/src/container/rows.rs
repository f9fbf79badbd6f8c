//! The rows of `meta_data` as a tree.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::open::{Database, not_a_container};
use super::{Container, Entry, EntryKind, LeftOut, MAX_BLOCK, MAX_ENTRIES, Node, RowKey, names};
use crate::{Error, Result};

/// The longest target of a symbolic link, in bytes.
const MAX_TARGET: usize = 4095;

/// A row as stored.
struct Found {
    key: RowKey,
    parts: Vec<Vec<u8>>,
    entry: Entry,
}

pub(super) fn read(database: Database, path: &Path) -> Result<Container> {
    database.checked(|connection| check_schema(connection, path))?;
    let mut left_out = Vec::new();
    let mut found = database.checked(|connection| rows(connection, &mut left_out))?;
    // A directory comes before what is in it, and of two keys for one path the one that is written plainly.
    found.sort_by(|a, b| {
        let rank = |row: &Found| !names::is_plain(row.key.bytes(), &row.parts);
        (a.parts.len(), &a.parts, rank(a)).cmp(&(b.parts.len(), &b.parts, rank(b)))
    });
    let mut number = found.len() as u64;
    let mut root = Node {
        entry: directory(&mut number),
        children: BTreeMap::new(),
    };
    let (mut count, mut bytes) = (0, 0_u64);
    for row in found {
        let Found { key, parts, entry } = row;
        let size = match entry.kind {
            EntryKind::File { size, .. } => size,
            _ => 0,
        };
        match place(&mut root, parts, entry, &mut number) {
            Ok(made) => {
                count += made;
                bytes = bytes.saturating_add(size);
            }
            Err(why) => left_out.push(LeftOut {
                key: key.into_bytes(),
                why: why.into(),
            }),
        }
    }
    Ok(Container {
        database,
        root,
        left_out,
        count,
        bytes,
    })
}

/// Both tables must be tables: a view can be any program.
fn check_schema(connection: &Connection, path: &Path) -> Result<()> {
    let refused = |e: rusqlite::Error| not_a_container(path, format!("SQLite says: {e}"));
    for table in ["meta_data", "value_data"] {
        let is_there: bool = connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?1 AND type = 'table' AND rootpage > 0)",
                [table],
                |row| row.get(0),
            )
            .map_err(refused)?;
        if !is_there {
            return Err(not_a_container(path, format!("it has no table {table}")));
        }
    }
    connection
        .prepare("SELECT key, block_no, data_block FROM value_data")
        .map_err(refused)?;
    Ok(())
}

fn rows(connection: &Connection, left_out: &mut Vec<LeftOut>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut query = connection
        .prepare("SELECT key, type, mode, atime, mtime, size, block_size FROM meta_data")?;
    let mut rows = query.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen > MAX_ENTRIES {
            return Err(Error::TooLarge(format!(
                "the container has more than {MAX_ENTRIES} entries"
            )));
        }
        let key = match row.get_ref(0)? {
            ValueRef::Text(key) => RowKey::Text(key.to_vec()),
            ValueRef::Blob(key) => RowKey::Blob(key.to_vec()),
            _ => {
                left_out.push(LeftOut {
                    key: Vec::new(),
                    why: "its key is neither text nor bytes".into(),
                });
                continue;
            }
        };
        let made = names::parts(key.bytes())
            .map_err(String::from)
            .and_then(|parts| Ok((parts, entry(connection, row, &key, seen)?)));
        match made {
            Ok((parts, entry)) => found.push(Found { key, parts, entry }),
            Err(why) => left_out.push(LeftOut {
                key: key.into_bytes(),
                why,
            }),
        }
    }
    Ok(found)
}

fn entry(
    connection: &Connection,
    row: &Row<'_>,
    key: &RowKey,
    number: u64,
) -> std::result::Result<Entry, String> {
    let whole = |at| match row.get_ref(at) {
        Ok(ValueRef::Integer(value)) => Some(value),
        // Times were stored as they came.
        Ok(ValueRef::Real(value)) => Some(value as i64),
        _ => None,
    };
    let kind = match row.get_ref(1) {
        Ok(ValueRef::Text(b"dir")) => EntryKind::Directory,
        Ok(ValueRef::Text(b"sym link")) => EntryKind::Symlink(target(connection, key)?),
        // "blob", and what libsqlfs keeps values of other types as; without a type it reads a file.
        _ => {
            let size = whole(5)
                .and_then(|size| u64::try_from(size).ok())
                .ok_or("its size is not a number of bytes")?;
            let block = whole(6).unwrap_or(0);
            let block = u64::try_from(block)
                .ok()
                .filter(|block| *block <= MAX_BLOCK)
                .ok_or_else(|| format!("its blocks of {block} bytes cannot be"))?;
            EntryKind::File { size, block }
        }
    };
    // 0 is what IOCipher's read-only open leaves, never what anybody meant.
    let mode = whole(2)
        .map(|mode| (mode & 0o7777) as u16)
        .filter(|mode| *mode != 0);
    Ok(Entry {
        number,
        kind,
        mode,
        atime: whole(3).unwrap_or(0),
        mtime: whole(4).unwrap_or(0),
        key: key.clone(),
    })
}

/// A link's target is its first block up to the NUL.
fn target(connection: &Connection, key: &RowKey) -> std::result::Result<Vec<u8>, String> {
    let mut query = connection
        .prepare_cached("SELECT data_block FROM value_data WHERE key = ?1 AND block_no = 0")
        .map_err(|e| e.to_string())?;
    let mut rows = query.query([key]).map_err(|e| e.to_string())?;
    let row = rows.next().map_err(|e| e.to_string())?;
    let Some(row) = row else {
        return Err("a symbolic link without a target".into());
    };
    let stored = match row.get_ref(0) {
        Ok(ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => bytes,
        _ => b"",
    };
    let target = stored.split(|b| *b == 0).next().unwrap_or_default();
    match target.len() {
        0 => Err("a symbolic link without a target".into()),
        1..=MAX_TARGET => Ok(names::utf8(target).into_owned()),
        _ => Err("a symbolic link with a target of more than 4095 bytes".into()),
    }
}

/// A directory without a row of its own.
fn directory(number: &mut u64) -> Entry {
    *number += 1;
    Entry {
        number: *number,
        kind: EntryKind::Directory,
        mode: None,
        atime: 0,
        mtime: 0,
        key: RowKey::Blob(Vec::new()),
    }
}

/// Puts an entry at its path, and creates the directories above it that have no row. Returns how many it created.
fn place(
    root: &mut Node,
    mut parts: Vec<Vec<u8>>,
    entry: Entry,
    number: &mut u64,
) -> std::result::Result<u64, &'static str> {
    let Some(name) = parts.pop() else {
        if entry.kind != EntryKind::Directory {
            return Err("the root is not a directory");
        }
        root.entry = entry;
        return Ok(0);
    };
    let (mut node, mut made) = (root, 0);
    for part in parts {
        node = node.children.entry(part).or_insert_with(|| {
            made += 1;
            Node {
                entry: directory(number),
                children: BTreeMap::new(),
            }
        });
        if node.entry.kind != EntryKind::Directory {
            return Err("what it is in is not a directory");
        }
    }
    if node.children.contains_key(&name) {
        return Err("another key leads to the same path");
    }
    node.children.insert(
        name,
        Node {
            entry,
            children: BTreeMap::new(),
        },
    );
    Ok(made + 1)
}

impl RowKey {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => bytes,
        }
    }
}

impl rusqlite::ToSql for RowKey {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        let value = match self {
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        };
        Ok(rusqlite::types::ToSqlOutput::Borrowed(value))
    }
}
