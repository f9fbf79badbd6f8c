//! Making and opening the database: key, settings, version.
//!
//! Invariant: the settings that shape the file (page size, ciphers) are those of the format, whatever the library's
//! defaults become.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pages::Registration;
use pages::authentic::{Witness, table_path};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use seal::CatalogKey;
use storage::{OpenMode, Storage};
use zeroize::Zeroizing;

use super::changes::{Counters, decode_version, encode_version};
use super::maps::Edits;
use super::rows::damaged;
use super::snapshots::SnapshotList;
use super::wal::{self, Wal};
use super::{Catalog, OpenOptions, State, named, schema};
use crate::log::Pending;
use crate::{CatalogError, InodeNo, Result};

/// What shapes the file. The log of SQLCipher's own is off: what it would say comes back as an error.
pub(super) const CIPHER: &str = "
PRAGMA cipher_log_level = NONE;
PRAGMA cipher_page_size = 4096;
PRAGMA cipher_hmac_algorithm = HMAC_SHA512;
";

/// Statements kept ready: more than there are.
const STATEMENTS: usize = 128;
/// The log is cut back to this length when it starts over; below it, its blocks are used again and again.
const LOG_KEPT: u64 = 64 << 20;

impl Catalog {
    /// Makes an empty catalog in the file `name`, which must not exist; durable when it returns.
    ///
    /// # Errors
    /// [`CatalogError::Io`] where the file exists or cannot be made, [`CatalogError::NoSpace`].
    pub fn create(
        storage: &Arc<dyn Storage>,
        name: &str,
        key: &CatalogKey,
        options: &OpenOptions,
    ) -> Result<Self> {
        assert!(!options.read_only, "a catalog is made for writing");
        storage
            .open(name, OpenMode::CreateNew)
            .map_err(|error| at(name, &error))?;
        let place = place(storage)?;
        let witness = making(storage, name, &place, key);
        let mut conn = connect(
            &place.path(name),
            key,
            options,
            OpenFlags::SQLITE_OPEN_READ_WRITE,
        )?;
        settle(&conn)?;
        move_log_on_close(&conn)?;

        let mut hash_key = [0; 16];
        getrandom::fill(&mut hash_key)
            .map_err(|error| CatalogError::Io(format!("no random numbers: {error}")))?;
        let counters = Counters {
            generation: 1,
            next_inode: InodeNo::ROOT.0 + 1,
            next_cookie: schema::FIRST_COOKIE,
            inodes: 0,
        };
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(schema::TABLES)?;
        for (name, value) in [
            (
                schema::META_VERSION,
                &encode_version(schema::FIRST_VERSION)[..],
            ),
            (schema::META_HASH_KEY, &hash_key),
            (schema::META_COUNTERS, &counters.encode()),
        ] {
            transaction.execute(schema::PUT_META, (name, value))?;
        }
        transaction.commit()?;
        let wal = Wal::open(&**storage, name).map_err(|error| at(name, &error))?;
        wal.file()?.sync().map_err(|error| at(name, &error))?;
        let mut state = State::new(conn, wal, witness)?;
        // So that the file is complete by itself from the beginning.
        state.checkpoint()?;
        sync_parent(&**storage, name)?;
        Ok(Self::new(
            storage, name, place, key, options, state, counters,
        ))
    }

    /// Removes the catalog in the file `name`, which nobody has open, with its log and its table. What is not there is
    /// passed over.
    pub fn remove(storage: &dyn Storage, name: &str) -> io::Result<()> {
        super::copy::remove(storage, name)
    }

    /// Opens the catalog in the file `name`: its state is that of the last durable commit.
    ///
    /// # Errors
    /// [`CatalogError::NotThisRoom`], [`CatalogError::Version`], [`CatalogError::Damaged`]; [`CatalogError::Io`] where
    /// the file cannot be opened; [`CatalogError::Denied`] where it may not be, or must be recovered in storage that cannot be
    /// written. That nobody else has it open is the caller's to see to.
    pub fn open(
        storage: &Arc<dyn Storage>,
        name: &str,
        key: &CatalogKey,
        options: &OpenOptions,
    ) -> Result<Self> {
        match Self::open_once(storage, name, key, options) {
            Err(CatalogError::NotThisRoom) => {
                // SQLCipher takes a failure to read the beginning of the file for a wrong key.
                let mut salt = [0; 16];
                let read = storage
                    .open(name, OpenMode::Read)
                    .and_then(|file| file.read_at(&mut salt, 0));
                match read {
                    Ok(()) => Self::open_once(storage, name, key, options),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Err(CatalogError::NotThisRoom)
                    }
                    Err(error) => Err(at(name, &error)),
                }
            }
            other => other,
        }
    }

    fn open_once(
        storage: &Arc<dyn Storage>,
        name: &str,
        key: &CatalogKey,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mode = if options.read_only {
            OpenMode::Read
        } else {
            OpenMode::ReadWrite
        };
        let file = storage.open(name, mode).map_err(|error| at(name, &error))?;
        if file.is_empty().map_err(|error| at(name, &error))? {
            // SQLite would take it for a new database.
            return Err(CatalogError::NotThisRoom);
        }
        let place = place(storage)?;
        if !options.read_only {
            wal::write_again(&**storage, name).map_err(|error| at(name, &error))?;
        }
        let witness = match key.digest() {
            Some(digest) => Some(
                Witness::open(storage.clone(), name, digest.clone())
                    .map_err(|error| without_witness(&place, name, key, &error))?,
            ),
            None => None,
        };
        if let Some(witness) = &witness {
            place.vouch(name, witness.clone());
        }
        let state = open_state(storage, name, &place, key, options, witness.clone())
            .map_err(|error| named(witness.as_ref(), error))?;
        let counters = state.counters()?;
        let catalog = Self::new(storage, name, place, key, options, state, counters);
        catalog.replay(options)?;
        Ok(catalog)
    }

    /// Whether the catalog is open for reading only and its log holds what the last commit does not.
    pub fn has_unreplayed_records(&self) -> bool {
        self.unreplayed.load(Ordering::Relaxed)
    }

    fn new(
        storage: &Arc<dyn Storage>,
        name: &str,
        place: Registration,
        key: &CatalogKey,
        options: &OpenOptions,
        state: State,
        counters: Counters,
    ) -> Self {
        Self {
            storage: storage.clone(),
            name: name.to_owned(),
            read_only: options.read_only,
            witness: state.witness.clone(),
            snapshots: state.snapshots.clone(),
            state: Mutex::new(state),
            committing: Mutex::new(None),
            replayed: Mutex::default(),
            unreplayed: AtomicBool::new(false),
            next_inode: AtomicU64::new(counters.next_inode),
            generation: AtomicU64::new(counters.generation),
            key: key.clone(),
            _place: place,
        }
    }
}

impl State {
    fn new(conn: Connection, wal: Wal, witness: Option<Witness>) -> Result<Self> {
        let mut state = Self {
            conn,
            witness,
            wal,
            hash_key: [0; 16],
            hash_mask: i64::MAX as u64,
            next_cookie: 0,
            snapshots: SnapshotList::default(),
            last_snapshot: 0,
            latest: None,
            kept_inodes: HashSet::new(),
            births: RefCell::default(),
            seen: RefCell::default(),
            gathered: RefCell::default(),
            edits: Edits::Unknown,
            has_replies: false,
            inodes: 0,
            generation: 0,
            dirty: false,
            has_flags: false,
            applying: false,
            failed: None,
            checkpoint_wanted: false,
            wants_log: false,
            has_log: false,
            anchor: [0; 16],
            no_log_before: 0,
            pending: Pending::default(),
        };
        let hash_key = state.meta(schema::META_HASH_KEY)?.unwrap_or_default();
        state.hash_key = hash_key
            .try_into()
            .map_err(|_| damaged("the key of the name hash is not there"))?;
        state.has_replies = state.find_replies()?;
        let counters = state.counters()?;
        state.next_cookie = counters.next_cookie;
        state.inodes = counters.inodes;
        state.generation = counters.generation;
        state.has_flags = state.meta(schema::META_FLAGS)?.is_some();
        state.find_anchor()?;
        let version = state.meta(schema::META_VERSION)?.unwrap_or_default();
        if decode_version(&version)? >= schema::VERSION {
            state.edits = Edits::Known;
        }
        state.find_snapshots()?;
        Ok(state)
    }

    pub(super) fn counters(&self) -> Result<Counters> {
        let value = self.meta(schema::META_COUNTERS)?.unwrap_or_default();
        Counters::decode(&value).ok_or_else(|| damaged("the counters are malformed"))
    }
}

/// Opens what is already there.
fn open_state(
    storage: &Arc<dyn Storage>,
    name: &str,
    place: &Registration,
    key: &CatalogKey,
    options: &OpenOptions,
    witness: Option<Witness>,
) -> Result<State> {
    let conn = if options.read_only {
        open_for_reading(&**storage, name, place, key, options)?
    } else {
        let conn = connect(
            &place.path(name),
            key,
            options,
            OpenFlags::SQLITE_OPEN_READ_WRITE,
        )?;
        check_version(&conn)?;
        settle(&conn)?;
        move_log_on_close(&conn)?;
        conn
    };
    check_version(&conn)?;
    let wal = if options.read_only {
        Wal::none()
    } else {
        Wal::open(&**storage, name).map_err(|error| at(name, &error))?
    };
    State::new(conn, wal, witness)
}

/// What vouches for a catalog that is about to be made, where its key says that something must.
pub(super) fn making(
    storage: &Arc<dyn Storage>,
    name: &str,
    place: &Registration,
    key: &CatalogKey,
) -> Option<Witness> {
    let witness = Witness::create(storage.clone(), name, key.digest()?.clone());
    place.vouch(name, witness.clone());
    Some(witness)
}

/// What it means that the table of pages cannot be used: another key, or another table.
fn without_witness(
    place: &Registration,
    name: &str,
    key: &CatalogKey,
    error: &io::Error,
) -> CatalogError {
    match error.kind() {
        io::ErrorKind::InvalidData => {}
        io::ErrorKind::Unsupported => return CatalogError::Io(error.to_string()),
        _ => return at(&table_path(name), error),
    }
    let alone = connect(
        &format!("file:{}?immutable=1", place.path(name)),
        key,
        &OpenOptions::default(),
        OpenFlags::SQLITE_OPEN_READ_ONLY,
    )
    .and_then(|conn| check_version(&conn));
    match alone {
        Err(CatalogError::NotThisRoom) => CatalogError::NotThisRoom,
        _ => damaged(error.to_string()),
    }
}

fn open_for_reading(
    storage: &dyn Storage,
    name: &str,
    place: &Registration,
    key: &CatalogKey,
    options: &OpenOptions,
) -> Result<Connection> {
    let path = place.path(name);
    if !wal::is_left(storage, name).map_err(|error| at(name, &error))? {
        // Closed properly: the file is all there is, and nothing beside it needs to be made.
        let conn = connect(
            // A URI that promises that the file does not change.
            &format!("file:{path}?immutable=1"),
            key,
            options,
            OpenFlags::SQLITE_OPEN_READ_ONLY,
        )?;
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")?;
        return Ok(conn);
    }
    let conn = connect(&path, key, options, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    check_version(&conn)?;
    settle(&conn)?;
    conn.execute_batch("PRAGMA query_only = ON;")?;
    Ok(conn)
}

/// A connection that has the key; nothing is read yet, and closing it moves nothing out of the log.
///
/// `locking_mode` comes before the first look at the log, so that the log's index is kept in memory: a file for it would need
/// room that a full disk does not have.
fn connect(
    path: &str,
    key: &CatalogKey,
    options: &OpenOptions,
    flags: OpenFlags,
) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags_and_vfs(path, flags, pages::VFS)?;
    conn.execute_batch(&key_pragma("key", key))?;
    conn.execute_batch(CIPHER)?;
    keep_log_on_close(&conn);
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Without it SQLite looks at the values bound to a range and compiles the statement again for each: 30 µs a call.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    let cache_kib = options.cache_bytes.clamp(1 << 20, 1 << 40) / 1024;
    conn.execute_batch(&format!(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA mmap_size = 0; PRAGMA cache_size = -{cache_kib};"
    ))?;
    Ok(conn)
}

/// Has a database write to a log; returns the mode it is in then. `of` is the database with a dot, or nothing.
pub(super) fn keep_log(conn: &Connection, of: &str) -> rusqlite::Result<String> {
    let mut statement = conn.prepare(&format!("PRAGMA {of}journal_mode = WAL"))?;
    let mut rows = statement.query(())?;
    let mut mode = String::new();
    // To the end: the mode is changed by a transaction that commits after the answer, and may fail.
    while let Some(row) = rows.next()? {
        mode = row.get(0)?;
    }
    Ok(mode)
}

/// What a connection to a file in use needs, once the format is known.
fn settle(conn: &Connection) -> Result<()> {
    let mode = keep_log(conn, "")?;
    conn.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = {LOG_KEPT};
         PRAGMA temp_store = MEMORY;"
    ))?;
    if mode != "wal" {
        return Err(CatalogError::Io(format!(
            "the catalog's log cannot be used here (mode {mode})"
        )));
    }
    Ok(())
}

fn move_log_on_close(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

pub(super) fn keep_log_on_close(conn: &Connection) {
    // Cannot fail on an open connection.
    let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}

/// `PRAGMA <name> = "x'…'"`.
pub(super) fn key_pragma(name: &str, key: &CatalogKey) -> Zeroizing<String> {
    let hex = key.to_hex();
    let mut text = Zeroizing::new(String::with_capacity(name.len() + hex.len() + 32));
    for part in ["PRAGMA ", name, " = \"x'", &hex, "'\";"] {
        text.push_str(part);
    }
    text
}

/// The first look into the file: whether the key fits, and whether the format is known.
fn check_version(conn: &Connection) -> Result<()> {
    let tables: i64 = conn
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'",
            (),
            |row| row.get(0),
        )
        .map_err(|error| match CatalogError::from(error) {
            CatalogError::Damaged(_) => CatalogError::NotThisRoom,
            other => other,
        })?;
    if tables == 0 {
        return Err(damaged("it has no tables"));
    }
    let value = conn.query_row(schema::META, [schema::META_VERSION], |row| {
        row.get::<_, Vec<u8>>(0)
    });
    let found = match value {
        Ok(value) => decode_version(&value)?,
        Err(rusqlite::Error::QueryReturnedNoRows) => {
            return Err(damaged("it has no format version"));
        }
        Err(error) => {
            let text = format!("its first table cannot be read ({error})");
            return Err(match CatalogError::from(error) {
                // That the storage fails, or memory, says nothing about the catalog.
                error @ (CatalogError::Io(_) | CatalogError::NoSpace) => error,
                _ => damaged(text),
            });
        }
    };
    if found > schema::VERSION {
        return Err(CatalogError::Version {
            found,
            known: schema::VERSION,
        });
    }
    if found == 0 {
        return Err(damaged("its format version is 0"));
    }
    Ok(())
}

pub(super) fn place(storage: &Arc<dyn Storage>) -> Result<Registration> {
    Registration::new(storage.clone()).map_err(|error| CatalogError::Io(error.to_string()))
}

pub(super) fn at(name: &str, error: &io::Error) -> CatalogError {
    storage_error(io::Error::new(error.kind(), format!("{name}: {error}")))
}

pub(super) fn storage_error(error: io::Error) -> CatalogError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CatalogError::NoSpace,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            CatalogError::Denied(error)
        }
        _ => CatalogError::Io(error.to_string()),
    }
}

pub(super) fn sync_parent(storage: &dyn Storage, name: &str) -> Result<()> {
    let parent = storage::parent(name);
    storage.sync_dir(parent).map_err(|error| at(parent, &error))
}
