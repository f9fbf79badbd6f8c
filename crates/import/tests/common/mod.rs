//! Containers as libsqlfs makes them, written row by row.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use import::Key;
use rusqlite::{Connection, params};

/// What is written, and how it is encrypted.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// 2, 3, 4; 0: plain.
    pub version: u8,
    /// 8192 or 131072.
    pub block: u64,
    pub raw: bool,
}

pub const PASSPHRASE: &[u8] = b"open \"it's\" sesame \xC3\xBC";

impl Kind {
    pub fn all() -> Vec<Kind> {
        let mut all = Vec::new();
        for block in [8192, 131_072] {
            for version in [2, 3, 4] {
                for raw in [false, true] {
                    all.push(Kind {
                        version,
                        block,
                        raw,
                    });
                }
            }
            all.push(Kind {
                version: 0,
                block,
                raw: false,
            });
        }
        all
    }

    pub fn key(&self) -> Key {
        match (self.version, self.raw) {
            (0, _) => Key::None,
            (_, true) => Key::Raw(zeroize::Zeroizing::new(raw_key())),
            (_, false) => Key::Passphrase(PASSPHRASE.to_vec().into()),
        }
    }

    /// Opens or makes the database, as an app with that version does.
    pub fn connect(&self, path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        if self.version > 0 {
            if self.raw {
                let digits: String = raw_key().iter().map(|b| format!("{b:02x}")).collect();
                connection
                    .execute_batch(&format!("PRAGMA key = \"x'{digits}'\""))
                    .unwrap();
            } else {
                let text = std::str::from_utf8(PASSPHRASE).unwrap();
                connection.pragma_update(None, "key", text).unwrap();
            }
            if self.version < 4 {
                connection
                    .execute_batch(&format!("PRAGMA cipher_compatibility = {}", self.version))
                    .unwrap();
            }
            if self.block == 8192 {
                connection
                    .execute_batch("PRAGMA cipher_page_size = 8192")
                    .unwrap();
            }
        } else if self.block == 8192 {
            connection.execute_batch("PRAGMA page_size = 8192").unwrap();
        }
        connection
    }

    /// A container with the tables, its connection open.
    pub fn make(&self, path: &Path) -> Writer {
        let connection = self.connect(path);
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE meta_data(key text, type text, inode integer, uid integer, gid integer, mode integer, acl text,
                     attribute text, atime integer, mtime integer, ctime integer, size integer, block_size integer,
                     primary key (key), unique(key));
                 CREATE TABLE value_data (key text, block_no integer, data_block blob, unique(key, block_no));
                 CREATE INDEX meta_index ON meta_data (key);",
            )
            .unwrap();
        let writer = Writer {
            connection,
            block: self.block,
        };
        writer.dir("/");
        writer
    }
}

pub fn raw_key() -> [u8; 32] {
    std::array::from_fn(|i| (11 * i + 3) as u8)
}

pub struct Writer {
    pub connection: Connection,
    pub block: u64,
}

impl Writer {
    pub fn row(&self, key: &[u8], kind: Option<&str>, mode: i64, size: i64, block: i64) {
        self.connection
            .execute(
                "INSERT INTO meta_data (key, type, mode, atime, mtime, ctime, size, block_size)
                 VALUES (CAST(?1 AS TEXT), ?2, ?3, 1700000001, 1700000002, 1700000003, ?4, ?5)",
                params![key, kind, mode, size, block],
            )
            .unwrap();
    }

    pub fn block(&self, key: &[u8], no: i64, data: &[u8]) {
        self.connection
            .execute(
                "INSERT INTO value_data VALUES (CAST(?1 AS TEXT), ?2, ?3)",
                params![key, no, data],
            )
            .unwrap();
    }

    pub fn dir(&self, key: &str) {
        self.row(key.as_bytes(), Some("dir"), 0o40700, 0, self.block as i64);
    }

    pub fn file(&self, key: &[u8], data: &[u8]) {
        self.row(
            key,
            Some("blob"),
            0o100_640,
            data.len() as i64,
            self.block as i64,
        );
        for (no, piece) in data.chunks(self.block as usize).enumerate() {
            self.block(key, no as i64, piece);
        }
    }

    pub fn link(&self, key: &str, target: &str) {
        let target = [target.as_bytes(), b"\0"].concat();
        self.row(
            key.as_bytes(),
            Some("sym link"),
            0o120_777,
            target.len() as i64,
            self.block as i64,
        );
        self.block(key.as_bytes(), 0, &target);
    }

    /// A file with holes: of these blocks only, each filled with its number.
    pub fn sparse(&self, key: &str, blocks: &[i64], size: i64) {
        self.row(
            key.as_bytes(),
            Some("blob"),
            0o100_600,
            size,
            self.block as i64,
        );
        for no in blocks {
            let len = (size - no * self.block as i64).min(self.block as i64);
            self.block(key.as_bytes(), *no, &vec![*no as u8 + 1; len as usize]);
        }
    }
}

/// Bytes that depend on their offset.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i * 7 + i / 251 + i / 65_521) as u8)
        .collect()
}

/// Every file below a directory with its bytes and times, to see that nothing was changed or made.
pub fn everything(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        found.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
    }
    found
}
