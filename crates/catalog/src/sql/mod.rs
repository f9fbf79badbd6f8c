//! The catalog in a SQLCipher database.
//!
//! 1. There is one connection, used under one lock. A transaction is open from the first change until the commit, so
//!    reads see what was applied and a crash forgets it.
//! 2. The generation, the next inode number and the next cookie are written with every commit that changes anything,
//!    in the same transaction as the changes.
//! 3. SQLite reaches its files through the storage seam (`pages`). It writes the log, this module makes it durable
//!    (`synchronous = NORMAL` and an `fdatasync` of the log after
//!    the commit), outside the lock: readers do not wait for the disk. A commit is acknowledged after that.
//! 4. After a failed write, sync or page check the connection never writes again: SQLite and SQLCipher have rolled back
//!    the transaction by then. Where it held changes, reading ends too: an older state does not fit the answers that
//!    the caller has. Space in the log is reserved before anything is written, so that a full disk is found while the
//!    transaction can still wait.
//!
//! It deliberately does not know what the changes mean.

mod accounts;
mod births;
mod calls;
mod changes;
mod chunks;
mod copy;
mod counts;
mod gathered;
mod keep;
mod kept_chunks;
mod maps;
mod open;
mod past;
mod reads;
mod records;
mod rows;
mod schema;
mod seen;
mod snapshots;
mod verify;
mod wal;

#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzzing"))]
pub use rows::fuzzing::rows as fuzz_rows;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pages::Registration;
use pages::authentic::Witness;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode};
use storage::{Storage, spans};

use crate::log::file::LogFile;
use crate::log::{Link, Pending};
use crate::{CatalogError, InodeNo, Result};
use births::KnownBirths;
use gathered::Gathered;
use maps::Edits;
use seen::SeenMaps;
use segments::SealedUnits;
use snapshots::{Moment, SnapshotList};
use wal::Wal;

/// How a catalog is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Nothing is written; [`apply`](crate::Catalog::apply) and [`commit`](crate::Catalog::commit) fail. A catalog that was closed properly opens
    /// from storage that cannot be written.
    pub read_only: bool,
    /// Bytes of memory for pages, from 1 MiB. Pages of changes not yet committed count too.
    pub cache_bytes: u64,
    /// A log that is damaged, or does not belong to the catalog, ends where that begins.
    pub cut_log: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            cache_bytes: 64 << 20,
            cut_log: false,
        }
    }
}

impl OpenOptions {
    /// What is usual, for reading.
    pub fn for_reading() -> Self {
        Self {
            read_only: true,
            ..Self::default()
        }
    }
}

/// The metadata of a room, in a SQLCipher database. All methods may be called from many threads; [`apply`](Self::apply) and
/// [`commit`](Self::commit) are serialised inside.
pub struct Catalog {
    storage: Arc<dyn Storage>,
    name: String,
    read_only: bool,
    state: Mutex<State>,
    /// Held while a commit or a record becomes durable: one after the other.
    committing: Mutex<Option<LogFile>>,
    /// What the records carried from which this catalog was brought up to date.
    replayed: Mutex<Vec<SealedUnits>>,
    /// Opened for reading, and there are records that only an opening for writing applies.
    unreplayed: AtomicBool,
    next_inode: AtomicU64,
    snapshots: SnapshotList,
    /// Of the last durable commit.
    generation: AtomicU64,
    key: seal::CatalogKey,
    witness: Option<Witness>,
    // Behind the connection, which reaches its files through it.
    _place: Registration,
}

/// What the lock guards.
struct State {
    conn: Connection,
    /// What vouches for the pages, where the room has that.
    witness: Option<Witness>,
    wal: Wal,
    hash_key: [u8; 16],
    /// Bits of the name hash in use: all, but in tests that need collisions.
    hash_mask: u64,
    next_cookie: u64,
    snapshots: SnapshotList,
    /// The highest number that a snapshot ever had: 0 where there was none.
    last_snapshot: u64,
    /// The newest snapshot, for which is kept what changes.
    latest: Option<Moment>,
    /// Inodes known to be kept for it.
    kept_inodes: HashSet<InodeNo>,
    /// When blocks of chunks were written.
    births: RefCell<KnownBirths>,
    /// What snapshots saw of chunks.
    seen: RefCell<SeenMaps>,
    /// What the commit writes.
    gathered: RefCell<Gathered>,
    /// Whether the log may have edits of maps.
    edits: Edits,
    /// Whether there is a table of answers.
    has_replies: bool,
    /// Inodes in the catalog, uncommitted ones included.
    inodes: u64,
    /// Generation of the last commit, durable or about to be.
    generation: u64,
    dirty: bool,
    /// Whether the catalog says that inodes have flags.
    has_flags: bool,
    /// An operation is under way, or panicked half done: the pending changes must not be committed then.
    applying: bool,
    failed: Option<Failure>,
    checkpoint_wanted: bool,
    /// Whether the next commit writes an anchor for a log.
    wants_log: bool,
    /// Whether the last one did: an opening reads only the records that follow an anchor.
    has_log: bool,
    /// Of the last commit.
    anchor: Link,
    /// Generation before which creating a log is not tried again.
    no_log_before: u64,
    /// What was applied since the last record or commit.
    pending: Pending,
}

/// Why the connection is of no further use.
#[derive(Debug, Clone)]
enum Failure {
    /// A commit that is not durable: what it holds can still be read.
    Commit,
    /// Acknowledged changes are gone. What is left is an older state, which does not fit the answers that the caller
    /// has: it is read only after the catalog is opened again.
    Lost,
    /// A page failed its check: SQLCipher refuses everything from then on.
    Page(String),
}

impl From<rusqlite::Error> for CatalogError {
    fn from(error: rusqlite::Error) -> Self {
        let Some(inner) = error.sqlite_error() else {
            // A row of another shape than the schema's.
            return Self::Damaged(error.to_string());
        };
        match inner.code {
            ErrorCode::NotADatabase => Self::NotThisRoom,
            ErrorCode::DatabaseCorrupt => Self::Damaged(error.to_string()),
            ErrorCode::DiskFull => Self::NoSpace,
            ErrorCode::CannotOpen => match pages::not_opened() {
                Some(why) => open::storage_error(why),
                None => Self::Io(error.to_string()),
            },
            _ => Self::Io(error.to_string()),
        }
    }
}

/// The error in the words of who found it: SQLite says only that something is wrong.
fn named(witness: Option<&Witness>, error: CatalogError) -> CatalogError {
    match witness.and_then(Witness::finding) {
        Some(what) if !matches!(error, CatalogError::NoSpace) => CatalogError::Damaged(what),
        _ => error,
    }
}

impl State {
    fn readable(&self) -> Result<()> {
        match &self.failed {
            Some(Failure::Page(what)) => Err(CatalogError::Damaged(what.clone())),
            Some(Failure::Lost) => Err(CatalogError::Poisoned),
            Some(Failure::Commit) | None => Ok(()),
        }
    }

    fn writable(&self) -> Result<()> {
        self.readable()?;
        if self.failed.is_some() || self.applying {
            return Err(CatalogError::Poisoned);
        }
        Ok(())
    }

    /// Notes what an error means for the connection, and says it in the catalog's words.
    fn note(&mut self, error: CatalogError) -> CatalogError {
        if matches!(self.failed, Some(Failure::Page(_))) {
            return error;
        }
        let error = named(self.witness.as_ref(), error);
        // A connection on which a page could not be read or failed authentication fails calls from then on, with varying codes.
        let probe = self
            .conn
            .query_row("SELECT 1 FROM meta LIMIT 1", (), |_| Ok(()));
        let error = match (error, probe) {
            (CatalogError::Damaged(what), _) => CatalogError::Damaged(what),
            (error @ CatalogError::Io(_), _) | (error @ CatalogError::NoSpace, Err(_)) => {
                // The storage failed, which says nothing about the page.
                self.fail(Failure::Lost);
                return error;
            }
            (other, Ok(())) => other,
            (other, Err(_)) => CatalogError::Damaged(format!("a page fails its check ({other})")),
        };
        if let (CatalogError::Damaged(what), true) = (&error, self.page_failed()) {
            self.fail(Failure::Page(what.clone()));
        } else if self.dirty && self.conn.is_autocommit() {
            self.fail(Failure::Commit);
        }
        error
    }

    fn page_failed(&self) -> bool {
        self.cipher_failed()
            || self
                .one("SELECT 1 FROM meta LIMIT 1", (), |_| Ok(()))
                .is_err()
    }

    /// Whether SQLCipher has found a page that fails its check.
    fn cipher_failed(&self) -> bool {
        // Prepared each time: the answer is found then.
        let status = self
            .conn
            .query_row("PRAGMA cipher_status", (), |row| row.get::<_, String>(0));
        status.is_ok_and(|status| status == "0")
    }

    /// An answer, or the damage in it. SQLCipher gives zeros for a page that fails its check, and an error from the next page on: what is
    /// in the last page that was read, as the end of a long value may be, says nothing. `before`: the reads before the question.
    fn vouch<T>(&mut self, before: u64, answer: Result<T>) -> Result<T> {
        match answer {
            Ok(answer) if pages::reads() == before || !self.cipher_failed() => Ok(answer),
            Ok(_) => Err(self.note(CatalogError::Damaged("a page fails its check".into()))),
            Err(error) => Err(self.note(error)),
        }
    }

    /// No further changes; and what is in the log stays there for the next opening to judge.
    fn fail(&mut self, failure: Failure) {
        let failure = match failure {
            Failure::Commit if self.dirty => Failure::Lost,
            other => other,
        };
        tracing::error!(?failure, "the catalog accepts no further changes");
        self.failed = Some(failure);
        self.dirty = false;
        *self.gathered.get_mut() = Gathered::default();
        self.births.get_mut().clear();
        open::keep_log_on_close(&self.conn);
        if !self.conn.is_autocommit() {
            // Fails only where SQLite has rolled back by itself.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}

impl Catalog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().unwrap_or_else(|| {
            let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
            self.state.lock()
        })
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let mut state = self.lock();
        state.readable()?;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CATALOG).entered();
        let before = pages::reads();
        let answer = read(&state);
        state.vouch(before, answer)
    }

    /// Reads in tables that hold all that is gathered.
    fn read_tables<T>(&self, read: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let mut state = self.lock();
        state.readable()?;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CATALOG).entered();
        let before = pages::reads();
        state.bring_up_to_date()?;
        let answer = read(&state);
        state.vouch(before, answer)
    }

    fn write<T>(&self, write: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        if self.read_only {
            return Err(CatalogError::Io(
                "the catalog is open for reading only".into(),
            ));
        }
        let mut state = self.lock();
        state.writable()?;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CATALOG).entered();
        let before = pages::reads();
        let done = write(&mut state)?;
        state.vouch(before, Ok(done))
    }

    /// Commits under the lock, syncs outside it.
    fn commit_now(&self) -> Result<u64> {
        let mut log = {
            let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
            self.committing.lock()
        };
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CATALOG).entered();
        let (generation, anchor, wal) = {
            let mut state = self.lock();
            state.writable()?;
            if !state.dirty {
                return Ok(state.generation);
            }
            state.commit(self.next_inode.load(Ordering::Relaxed))?;
            (state.generation, state.anchor, state.wal.file()?)
        };
        if let Err(error) = wal.sync() {
            self.lock().fail(Failure::Commit);
            return Err(CatalogError::Io(format!(
                "the log could not be made durable: {error}"
            )));
        }
        self.generation.store(generation, Ordering::Release);
        if let Some(log) = &mut *log {
            log.restart(anchor);
        }
        let mut state = self.lock();
        if state.checkpoint_wanted && !state.dirty && state.writable().is_ok() {
            // The commit is done whether this works or not.
            if let Err(error) = state.checkpoint() {
                tracing::warn!(%error, "the catalog's log could not be moved into its file");
            }
        }
        Ok(generation)
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("name", &self.name)
            .field("read_only", &self.read_only)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
