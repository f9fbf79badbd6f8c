//! Opening the database below a container: every setting of SQLCipher that IOCipher ever used, without changing a byte.
//!
//! 1. The container's files are never written, made, or removed. Without a log it is opened as immutable. With one, SQLite reads
//!    the log without locks, keeps the log's index in memory, and moves nothing when it closes. Only after a crash in the middle
//!    of a transaction with a rollback journal (IOCipher never used one) it must write, and of root it gives the log to the
//!    database's owner: both happen to a private copy.
//! 2. Schema and values are a stranger's: no trigger, view or function of theirs runs.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use zeroize::Zeroizing;

use super::{Key, MAX_BLOCK};
use crate::{Error, Result};

/// How a container's database is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Not at all.
    Plain,
    /// By SQLCipher.
    SqlCipher {
        /// Its major version, whose settings are used: 2, 3 or 4.
        version: u8,
        /// Bytes of a page; `None`: the version's default.
        page: Option<u32>,
    },
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => write!(f, "SQLite, not encrypted"),
            Self::SqlCipher { version, page } => match page {
                Some(page) => write!(f, "SQLCipher {version} with pages of {page} bytes"),
                None => write!(f, "SQLCipher {version} with its default pages"),
            },
        }
    }
}

/// In the order in which they are tried: newest first.
const FORMATS: [Format; 6] = [
    sqlcipher(4, Some(8192)),
    sqlcipher(4, None),
    sqlcipher(3, Some(8192)),
    sqlcipher(3, None),
    sqlcipher(2, Some(8192)),
    sqlcipher(2, None),
];

const fn sqlcipher(version: u8, page: Option<u32>) -> Format {
    Format::SqlCipher { version, page }
}

/// The longest passphrase that is no text, in bytes: `PRAGMA hexkey` cuts off what is longer.
const MAX_BYTES: usize = 40;

/// The shortest page of an encrypted database, in bytes.
const SHORTEST_PAGE: usize = 1024;

/// Whether it can be the first page of an encrypted database: 1024 random bytes have some 250 values, text has less than 100.
fn may_be_encrypted(first: &[u8]) -> bool {
    let values: HashSet<u8> = first.iter().copied().collect();
    first.len() == SHORTEST_PAGE && values.len() > 128
}

/// The open database of a container.
pub(super) struct Database {
    connection: RefCell<Connection>,
    pub(super) format: Format,
    /// How it was opened, to open it once more: see [`Database::checked`].
    way: Way,
    secret: Option<Zeroizing<Vec<u8>>>,
    /// What the files looked like when they were opened.
    seen: Vec<(PathBuf, Option<Look>)>,
    /// The copy, where there had to be one.
    _copy: Option<tempfile::TempDir>,
}

/// The properties that change when a file is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    len: u64,
    modified: Option<SystemTime>,
}

/// How SQLite comes to the bytes.
#[derive(Debug, Clone)]
enum Way {
    Immutable(PathBuf),
    WithLog(PathBuf),
    Copy(PathBuf),
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Database {
    pub(super) fn open(path: &Path, key: &Key) -> Result<Self> {
        // A path of its own, so that the working directory and a link at its end do not matter to the names of the log.
        let path = path.canonicalize().map_err(|e| Error::io(path, e))?;
        let mut seen = Vec::new();
        for suffix in ["", "-wal", "-journal"] {
            let file = with_suffix(&path, suffix);
            let look = look(&file)?;
            seen.push((file, look));
        }
        let first = first_bytes(&path)?;
        let mut copy = None;
        let way = if is_hot(&with_suffix(&path, "-journal"))? || log_would_change_owner(&path) {
            let dir = tempfile::Builder::new()
                .prefix("strongroom-import-")
                .tempdir()
                .map_err(|e| Error::io(&path, e))?;
            let there = dir.path().join("container");
            for suffix in ["", "-wal", "-journal"] {
                let from = with_suffix(&path, suffix);
                match fs::copy(&from, with_suffix(&there, suffix)) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
                    Err(e) => return Err(Error::io(&from, e)),
                }
            }
            copy = Some(dir);
            Way::Copy(there)
        } else if seen[1].1.is_some_and(|log| log.len > 0) {
            Way::WithLog(path.clone())
        } else {
            Way::Immutable(path.clone())
        };
        // A fresh container without encryption can have all of itself, its first page too, in the log.
        let plain = first.starts_with(b"SQLite format 3\0") || first.is_empty();
        let (connection, format, secret) = if plain {
            let connection = way.connect()?;
            readable(&connection)
                .map_err(|e| not_a_container(&path, format!("SQLite says: {e}")))?;
            (connection, Format::Plain, None)
        } else if matches!(key, Key::None) && !may_be_encrypted(&first) {
            return Err(not_a_container(&path, "it is neither SQLite nor encrypted"));
        } else {
            try_formats(&path, &way, key)?
        };
        Ok(Self {
            connection: connection.into(),
            format,
            way,
            secret,
            seen,
            _copy: copy,
        })
    }

    /// Does a piece of reading, and finds out whether all of it was good.
    ///
    /// SQLCipher hands out zeros for a page that does not authenticate, and for every page it reads after that, for as long as the
    /// connection lives. Where SQLite looks for structure it notices; the middle of a block would pass for zeros. `cipher_status`
    /// shows it. Another connection is needed then to read the undamaged pages.
    pub(super) fn checked<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let done = read(&self.connection.borrow());
        if self.format == Format::Plain || is_sound(&self.connection.borrow())? {
            return done;
        }
        let again = self.way.connect()?;
        if let Some(secret) = &self.secret {
            unlock(&again, secret, self.format)?;
            readable(&again)?;
        }
        self.connection.replace(again);
        done.and_then(|_| {
            Err(Error::Damaged(
                "a page of the container does not authenticate".into(),
            ))
        })
    }

    /// Fails where the container was written to since it was opened.
    pub(super) fn unchanged(&self) -> Result<()> {
        for (path, before) in &self.seen {
            if look(path)? != *before {
                return Err(Error::Changed { path: path.clone() });
            }
        }
        Ok(())
    }
}

/// Whether SQLite, run by root, would give the log to another owner: to the database's.
fn log_would_change_owner(path: &Path) -> bool {
    let owner = |file: &Path| fs::metadata(file).map(|meta| (meta.uid(), meta.gid())).ok();
    let log = owner(&with_suffix(path, "-wal"));
    log.is_some() && log != owner(path)
}

/// A connection that reads, what opened it, and the secret that does so again.
type Unlocked = (Connection, Format, Option<Zeroizing<Vec<u8>>>);

fn try_formats(path: &Path, way: &Way, key: &Key) -> Result<Unlocked> {
    let (secret, kind) = match key {
        Key::None => {
            return Err(Error::NeedsKey {
                path: path.to_owned(),
            });
        }
        Key::Passphrase(passphrase)
            if passphrase.len() > MAX_BYTES
                && (passphrase.contains(&0) || str::from_utf8(passphrase).is_err()) =>
        {
            return Err(Error::TooLarge(format!(
                "a passphrase that is no text (UTF-8 without NUL) may have {MAX_BYTES} bytes here, and this has {}",
                passphrase.len()
            )));
        }
        Key::Passphrase(passphrase) => (passphrase.clone(), "passphrase"),
        // SQLCipher takes a key of this form for a raw one.
        Key::Raw(raw) => {
            let mut text = Zeroizing::new(Vec::with_capacity(3 + 2 * raw.len()));
            text.extend_from_slice(b"x'");
            hex(&mut text, raw.as_slice());
            text.push(b'\'');
            (text, "raw key")
        }
    };
    for format in FORMATS {
        let connection = way.connect()?;
        match unlock(&connection, &secret, format).and_then(|()| readable(&connection)) {
            Ok(()) => return Ok((connection, format, Some(secret))),
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {}
            Err(e) => {
                return Err(Error::Damaged(format!(
                    "{}: as {format}: {e}",
                    path.display()
                )));
            }
        }
    }
    Err(Error::WrongKey {
        path: path.to_owned(),
        kind,
        tried: "SQLCipher 4, 3 and 2, each with pages of 8192 bytes and of its default".into(),
    })
}

/// Hands the key over and sets what the version needs, in the order that works: key, compatibility, page size.
fn unlock(connection: &Connection, secret: &[u8], format: Format) -> rusqlite::Result<()> {
    // Of its full length at once: nothing is left behind by growing.
    let mut command = Zeroizing::new(Vec::with_capacity(32 + 2 * secret.len()));
    match str::from_utf8(secret) {
        Ok(_) if !secret.contains(&0) => {
            command.extend_from_slice(b"PRAGMA key = '");
            for byte in secret {
                command.push(*byte);
                if *byte == b'\'' {
                    command.push(*byte);
                }
            }
        }
        // What is no text; SQLCipher takes no more than 40 bytes so: see `MAX_BYTES`.
        _ => {
            command.extend_from_slice(b"PRAGMA hexkey = '");
            hex(&mut command, secret);
        }
    }
    command.extend_from_slice(b"';");
    // It is text by now, whatever the secret is.
    connection.execute_batch(str::from_utf8(&command).unwrap_or_default())?;
    if let Format::SqlCipher { version, page } = format {
        if version < 4 {
            connection.execute_batch(&format!("PRAGMA cipher_compatibility = {version};"))?;
        }
        if let Some(page) = page {
            connection.execute_batch(&format!("PRAGMA cipher_page_size = {page};"))?;
        }
    }
    Ok(())
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
}

/// Whether every page that was read until now authenticated.
fn is_sound(connection: &Connection) -> Result<bool> {
    let status: String = connection.query_row("PRAGMA cipher_status", [], |row| row.get(0))?;
    Ok(status == "1")
}

/// Reads the first page, which shows whether the key is right.
fn readable(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
}

impl Way {
    fn connect(&self) -> Result<Connection> {
        let (path, parameter, flags) = match self {
            Way::Immutable(path) => (path, "?immutable=1", OpenFlags::SQLITE_OPEN_READ_ONLY),
            Way::WithLog(path) => (path, "?vfs=unix-none", OpenFlags::SQLITE_OPEN_READ_ONLY),
            Way::Copy(path) => (path, "", OpenFlags::SQLITE_OPEN_READ_WRITE),
        };
        let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        pages::start().map_err(|e| Error::io(path, e))?;
        let open = || -> rusqlite::Result<Connection> {
            let connection =
                Connection::open_with_flags(format!("file:{}{parameter}", escaped(path)), flags)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_BLOCK as i32 + (1 << 20))?;
            connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
            // What is sorted or kept for a while goes to no file.
            connection
                .execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cipher_log_level = NONE;")?;
            if matches!(self, Way::WithLog(_)) {
                // Asked for before the log is looked at: its index is then in memory, and no -shm is made or written.
                connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
            }
            Ok(connection)
        };
        open().map_err(|e| Error::io(path, io::Error::other(e)))
    }
}

/// A path within a `file:` URI.
fn escaped(path: &Path) -> String {
    let mut uri = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri
}

pub(super) fn not_a_container(path: &Path, why: impl Into<String>) -> Error {
    Error::NotAContainer {
        path: path.to_owned(),
        why: why.into(),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn look(path: &Path) -> Result<Option<Look>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Look {
            len: meta.len(),
            modified: meta.modified().ok(),
        })),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path, e)),
    }
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let meta = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(not_a_container(path, "it is not a regular file"));
    }
    let mut found = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(SHORTEST_PAGE as u64).read_to_end(&mut found))
        .map_err(|e| Error::io(path, e))?;
    Ok(found)
}

/// Whether a rollback journal is of a transaction that did not end. One that ended has no file, no bytes, or zeros at its start.
fn is_hot(journal: &Path) -> Result<bool> {
    match fs::File::open(journal) {
        Ok(file) => {
            let mut first = Vec::new();
            file.take(8)
                .read_to_end(&mut first)
                .map_err(|e| Error::io(journal, e))?;
            Ok(first.iter().any(|b| *b != 0))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io(journal, e)),
    }
}
