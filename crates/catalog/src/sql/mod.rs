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

mod changes;
mod copy;
mod keep;
mod open;
mod past;
mod reads;
mod records;
mod rows;
mod schema;
mod snapshots;
mod verify;
mod wal;

#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzzing"))]
pub use rows::fuzzing::rows as fuzz_rows;

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
use crate::{
    Births, CHUNK_BLOCKS, CachedReply, Catalog, CatalogError, Change, Chunk, ClientKey, DirEntry,
    Inode, InodeNo, KeptChunk, KeptRow, Result, SegmentAccount, SegmentNo, SnapshotRow, SpaceRow,
    Timestamp, Totals,
};
use segments::SealedUnits;
use snapshots::{Moment, SnapshotList};
use wal::Wal;

/// How a catalog is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Nothing is written; [`Catalog::apply`] and [`Catalog::commit`] fail. A catalog that was closed properly opens
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

/// The catalog of a room in a directory.
pub struct SqlCatalog {
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
    /// Whether commits write an anchor for a log.
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
        self.conn
            .query_row("SELECT 1 FROM meta LIMIT 1", (), |_| Ok(()))
            .is_err()
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
        open::keep_log_on_close(&self.conn);
        if !self.conn.is_autocommit() {
            // Fails only where SQLite has rolled back by itself.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}

impl SqlCatalog {
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
        read(&state).map_err(|error| state.note(error))
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
        write(&mut state)
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

impl fmt::Debug for SqlCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlCatalog")
            .field("name", &self.name)
            .field("read_only", &self.read_only)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl Catalog for SqlCatalog {
    fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.inode(no))
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.lookup(parent, name))
    }

    fn entries(&self, parent: InodeNo, after: u64, limit: usize) -> Result<Vec<DirEntry>> {
        self.read(|state| state.entries(parent, after, limit))
    }

    fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.entries_plus(parent, after, limit))
    }

    fn next_cookie(&self) -> u64 {
        self.lock().next_cookie
    }

    fn is_empty(&self, parent: InodeNo) -> Result<bool> {
        self.read(|state| state.is_empty(parent))
    }

    fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.xattr(inode, name))
    }

    fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.xattr_names(inode))
    }

    fn chunk(&self, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.chunk(inode, index))
    }

    fn chunks_from(&self, inode: InodeNo, first: u64, limit: usize) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.chunks_from(inode, first, limit))
    }

    fn chunk_before(&self, inode: InodeNo, end: u64) -> Result<Option<(u64, Chunk)>> {
        self.read(|state| state.chunk_before(inode, end))
    }

    fn shared_references(&self, segment: SegmentNo, position: u32) -> Result<u64> {
        self.read(|state| state.shared_references(segment, position))
    }

    fn segments(&self) -> Result<Vec<SegmentAccount>> {
        self.read(State::segments)
    }

    fn orphans(&self) -> Result<Vec<InodeNo>> {
        self.read(State::orphans)
    }

    fn all_chunks(
        &self,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64, Chunk)>> {
        self.read(|state| state.all_chunks(after, limit))
    }

    fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>> {
        self.read(|state| state.all_inodes(after, limit))
    }

    fn all_entries(&self, after: (InodeNo, u64), limit: usize) -> Result<Vec<(InodeNo, DirEntry)>> {
        self.read(|state| state.all_entries(after, limit))
    }

    fn all_shared(&self) -> Result<Vec<(SegmentNo, u32, u64)>> {
        self.read(State::all_shared)
    }

    fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        self.read(|state| state.replies(client))
    }

    fn reply_clients(&self) -> Result<Vec<ClientKey>> {
        self.read(State::reply_clients)
    }

    fn snapshots(&self) -> Arc<Vec<SnapshotRow>> {
        self.snapshots.get()
    }

    fn new_snapshot(&self, name: &str, created: Timestamp, automatic: bool) -> SnapshotRow {
        let state = self.lock();
        state.new_snapshot(
            name,
            created,
            automatic,
            InodeNo(self.next_inode.load(Ordering::Relaxed)),
        )
    }

    fn past_inode(&self, at: u64, no: InodeNo) -> Result<Option<Inode>> {
        self.read(|state| state.past_inode(at, no))
    }

    fn past_lookup(&self, at: u64, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| state.past_lookup(at, parent, name))
    }

    fn past_entries(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        self.read(|state| state.past_entries(at, parent, after, limit))
    }

    fn past_entries_plus(
        &self,
        at: u64,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| state.past_entries_plus(at, parent, after, limit))
    }

    fn past_entry(&self, at: u64, parent: InodeNo, cookie: u64) -> Result<Option<DirEntry>> {
        self.read(|state| state.past_entry(at, parent, cookie))
    }

    fn past_numbers(&self, at: u64, from: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.past_numbers(at, from, limit))
    }

    fn past_xattr(&self, at: u64, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.past_xattr(at, inode, name))
    }

    fn past_xattr_names(&self, at: u64, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| state.past_xattr_names(at, inode))
    }

    fn past_chunk(&self, at: u64, inode: InodeNo, index: u64) -> Result<Chunk> {
        self.read(|state| state.past_chunk(at, inode, index))
    }

    fn past_chunks_from(
        &self,
        at: u64,
        inode: InodeNo,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.read(|state| state.past_chunks_from(at, inode, first, limit))
    }

    fn past_chunk_before(&self, at: u64, inode: InodeNo, end: u64) -> Result<Option<(u64, Chunk)>> {
        self.read(|state| state.past_chunk_before(at, inode, end))
    }

    fn kept_chunk(&self, inode: InodeNo, index: u64, until: u64) -> Result<KeptChunk> {
        self.read(|state| state.kept_chunk(inode, index, until))
    }

    fn kept_chunks(&self, inode: InodeNo, index: u64) -> Result<Vec<(u64, KeptChunk)>> {
        self.read(|state| state.kept_chunks(inode, index))
    }

    fn births(&self, inode: InodeNo, index: u64, until: u64) -> Result<Births> {
        let all: Vec<u16> = (0..CHUNK_BLOCKS as u16).collect();
        self.births_of(inode, index, until, &all)
    }

    fn births_of(&self, inode: InodeNo, index: u64, until: u64, blocks: &[u16]) -> Result<Births> {
        self.read(|state| state.births(inode, index, until, blocks))
    }

    fn all_kept_chunks(
        &self,
        after: Option<(InodeNo, u64, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read(|state| state.all_kept_chunks(after, limit))
    }

    fn kept_until(
        &self,
        until: u64,
        after: Option<(InodeNo, u64)>,
        limit: usize,
    ) -> Result<Vec<KeptRow>> {
        self.read(|state| state.kept_until(until, after, limit))
    }

    fn inodes_until(&self, until: u64, after: InodeNo, limit: usize) -> Result<Vec<InodeNo>> {
        self.read(|state| state.inodes_until(until, after, limit))
    }

    fn entries_until(
        &self,
        until: u64,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, u64)>> {
        self.read(|state| state.entries_until(until, after, limit))
    }

    fn xattrs_until(
        &self,
        until: u64,
        after: &(InodeNo, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(InodeNo, Vec<u8>)>> {
        self.read(|state| state.xattrs_until(until, after, limit))
    }

    fn snapshot_space_rows(&self) -> Result<Vec<SpaceRow>> {
        self.read(|state| state.snapshot_space_rows())
    }

    fn skip_inodes(&self, next: InodeNo) {
        self.next_inode.fetch_max(next.0, Ordering::Relaxed);
    }

    fn new_inode(&self) -> InodeNo {
        InodeNo(self.next_inode.fetch_add(1, Ordering::Relaxed))
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        self.write(|state| state.apply(changes))
    }

    fn is_dirty(&self) -> bool {
        self.lock().dirty
    }

    fn commit(&self) -> Result<u64> {
        if self.read_only {
            return Ok(self.generation());
        }
        self.commit_now()
    }

    fn sync(&self, units: Vec<SealedUnits>, taken: Box<dyn FnOnce() + '_>) -> Result<Option<u64>> {
        self.append_record(units, taken)
    }

    fn take_replayed(&self) -> Vec<SealedUnits> {
        std::mem::take(&mut self.replayed.lock())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.read(|state| state.meta(key))
    }

    fn set_meta(&self, key: &str, value: &[u8]) -> Result<()> {
        assert!(
            ![
                schema::META_VERSION,
                schema::META_HASH_KEY,
                schema::META_COUNTERS,
                schema::META_FLAGS,
                schema::META_ANCHOR,
                schema::past::META_SNAPSHOTS,
            ]
            .contains(&key),
            "{key} is the catalog's own"
        );
        self.write(|state| state.set_meta(key, value))
    }

    fn has_flags(&self) -> bool {
        self.lock().has_flags
    }

    fn totals(&self) -> Result<Totals> {
        let catalog_bytes = self.bytes_on_disk();
        self.read(|state| {
            Ok(Totals {
                catalog_bytes,
                ..state.totals()?
            })
        })
    }

    fn checkpoint(&self) -> Result<()> {
        self.write(State::checkpoint)
    }

    fn leave_log(&self) {
        open::keep_log_on_close(&self.lock().conn);
    }

    fn verify(&self) -> Result<Vec<String>> {
        let mut state = self.lock();
        let file_is_all = if self.read_only {
            wal::is_left(&*self.storage, &self.name).is_ok_and(|left| !left)
        } else {
            !state.dirty && state.writable().is_ok() && state.checkpoint().is_ok()
        };
        verify::findings(&state, file_is_all)
    }

    fn copy_to(&self, target: &Arc<dyn Storage>, name: &str, key: &seal::CatalogKey) -> Result<()> {
        copy::copy(self, target, name, key)
    }
}
