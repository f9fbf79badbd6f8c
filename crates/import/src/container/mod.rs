//! A container of libsqlfs: a file system in two tables of a SQLite database, as IOCipher keeps it under SQLCipher.
//!
//! 1. `meta_data.size` and `meta_data.block_size` decide how long a file is and where its blocks are; a missing block is zeros,
//!    and is reported as a hole.
//! 2. All rows of `meta_data` are in memory, the contents never: a file is read in pieces.
//! 3. A row that cannot be a file is in [`Container::left_out`] and nowhere else.

mod contents;
mod names;
mod open;
mod rows;

use std::collections::BTreeMap;
use std::path::Path;

use zeroize::Zeroizing;

pub use open::Format;

use crate::Result;
use open::Database;

/// The most rows of `meta_data`.
pub const MAX_ENTRIES: u64 = 20_000_000;
/// The largest block, in bytes. libsqlfs has 8 KiB, and had 128 KiB until 2013.
pub const MAX_BLOCK: u64 = 16 << 20;

/// What opens a container.
#[derive(Clone)]
pub enum Key {
    /// Nothing: it is plain SQLite.
    None,
    /// A passphrase: any bytes.
    Passphrase(Zeroizing<Vec<u8>>),
    /// The key itself.
    Raw(Zeroizing<[u8; 32]>),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Bytes of a block; 0 where no file has more than its first.
        block: u64,
    },
    /// A symbolic link, with its target: neither empty nor with a NUL.
    Symlink(Vec<u8>),
}

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unique in its container.
    pub number: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits with set-id and sticky; `None` where the container has none (IOCipher's read-only open sets 0).
    pub mode: Option<u16>,
    /// Seconds since 1970 of the last access.
    pub atime: i64,
    /// Seconds since 1970 of the last change. libsqlfs moves it at every change of attributes too.
    pub mtime: i64,
    /// How its contents are found.
    key: RowKey,
}

/// A key as stored in the tables: SQLite never compares text and bytes as equal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RowKey {
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// A row that is not imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its key, as stored; any bytes.
    pub key: Vec<u8>,
    /// Why.
    pub why: String,
}

#[derive(Debug)]
struct Node {
    entry: Entry,
    children: BTreeMap<Vec<u8>, Node>,
}

/// An open container.
#[derive(Debug)]
pub struct Container {
    database: Database,
    root: Node,
    left_out: Vec<LeftOut>,
    /// Entries, the root not counted.
    count: u64,
    /// Bytes of all files.
    bytes: u64,
}

impl Container {
    /// Opens a container for reading; its `-wal` file must be beside it. Never changes any of its files.
    pub fn open(path: &Path, key: &Key) -> Result<Container> {
        let database = Database::open(path, key)?;
        rows::read(database, path)
    }

    /// How it is encrypted.
    pub fn format(&self) -> Format {
        self.database.format
    }

    /// The entry at a path, given by its names; none: the root.
    pub fn get<'a>(&self, path: impl IntoIterator<Item = &'a [u8]>) -> Option<&Entry> {
        self.node(path).map(|node| &node.entry)
    }

    /// Names and entries in the directory at a path, in the order of the names. `None`: there is no such entry.
    pub fn list<'a>(
        &self,
        path: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<impl Iterator<Item = (&[u8], &Entry)>> {
        let node = self.node(path)?;
        Some(
            node.children
                .iter()
                .map(|(name, node)| (name.as_slice(), &node.entry)),
        )
    }

    fn node<'a>(&self, path: impl IntoIterator<Item = &'a [u8]>) -> Option<&Node> {
        path.into_iter()
            .try_fold(&self.root, |node, name| node.children.get(name))
    }

    /// The rows that are not imported, each with the reason.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// How many files, directories and links it has, the root not counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of all its files, holes among them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fails where the container was written to since it was opened: what was read may then be of two states.
    pub fn unchanged(&self) -> Result<()> {
        self.database.unchanged()
    }
}
