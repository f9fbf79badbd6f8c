//! Pages of one moment: someone with write access to the directory cannot mix pages of an older catalog with those of a newer one.
//!
//! SQLCipher authenticates every page with its number, but not that the pages belong together, and the checksums of
//! SQLite's log have no key. Here every version of a page is known by its *tag*, the first 16 bytes of the code that
//! SQLCipher puts at its end (fresh for each write, because the page's nonce is), and all tags are vouched for:
//!
//! 1. Beside the catalog's file is the *table* of its pages' tags, authenticated; its code is the *root*. It holds
//!    the tags of the moment at which the present log began.
//! 2. In the log's own file, behind SQLite's header and behind each of its frames, there are 32 bytes of ours. Behind the
//!    header is a code over header and root; behind the last frame of a commit one over the commit before (or the header)
//!    and the tags of the commit's frames. What such a chain does not cover is not shown to SQLite.
//! 3. The table is replaced, durably, before a log ends: when SQLite begins a new one, cuts it to nothing or deletes
//!    it. Then everything is in the catalog's file, which is synced. A crash in between leaves a log that is based on an
//!    older table: it is treated as empty, which it is.
//! 4. A page read that does not have the tag expected is an error, never data. A page written to the catalog's file must
//!    have the tag that the newest commit of the log has for it: a rollback journal put beside the catalog cannot be
//!    played back into it.
//!
//! Whole moments can still be put back: the room's generation notices that. It does not know SQLite's interface nor what
//! is in the pages.

mod chain;
mod log_file;
mod main_file;
mod state;
mod table;

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use seal::PageDigestKey;
use storage::{OpenMode, Storage, spans};

use crate::PageFile;
use log_file::LogFile;
use main_file::MainFile;
use state::State;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Where in a page SQLCipher's code begins: it is the last 64 bytes.
const CODE: usize = PAGE - 64;

/// What names one version of one page.
type Tag = [u8; 16];
/// An HMAC-SHA-256.
type Mac = [u8; 32];

/// The name of the table beside the catalog's file at `path`.
pub fn table_path(path: &str) -> String {
    format!("{path}-pages")
}

/// Whether the file `table` is authentic, and the table of the catalog's file `catalog`: of its length and every page.
///
/// # Errors
/// What the storage says; a file that is not there does not fit.
pub fn fits(
    storage: &dyn Storage,
    table: &str,
    catalog: &str,
    key: &PageDigestKey,
) -> io::Result<bool> {
    let fit = || -> io::Result<bool> {
        let bytes = storage::read_limited(storage, table, table::LEN_MAX)?;
        let (tags, _) = table::decode(&bytes, key)?;
        let file = storage.open(catalog, OpenMode::Read)?;
        if file.len()? != (tags.len() * PAGE) as u64 {
            return Ok(false);
        }
        let mut page = [0; PAGE];
        for (index, tag) in tags.iter().enumerate() {
            file.read_at(&mut page, (index * PAGE) as u64)?;
            if !is_version(&page, *tag) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match fit() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::NotFound
            ) =>
        {
            Ok(false)
        }
        other => other,
    }
}

/// What vouches for the pages of one open catalog. Clones are the same.
#[derive(Debug, Clone)]
pub struct Witness(Arc<Mutex<State>>);

impl Witness {
    /// Of a catalog about to be made at `path`. Its table is written when its log begins, or by [`Witness::settle`].
    pub fn create(storage: Arc<dyn Storage>, path: &str, key: PageDigestKey) -> Self {
        Self(Arc::new(Mutex::new(State::new(storage, path, key, None))))
    }

    /// Of the catalog at `path`.
    ///
    /// # Errors
    /// `InvalidData` where the table is missing or not the one that was written, `Unsupported` for one of a later
    /// version, and what the storage says.
    pub fn open(storage: Arc<dyn Storage>, path: &str, key: PageDigestKey) -> io::Result<Self> {
        let at = table_path(path);
        let bytes = storage::read_limited(&*storage, &at, table::LEN_MAX).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                bad(format!("{at} is missing"))
            } else {
                error
            }
        })?;
        let known = authenticating(|| table::decode(&bytes, &key))?;
        let state = State::new(storage, path, key, Some(known));
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// The catalog's file, with every page checked.
    pub(crate) fn main(&self, file: Box<dyn PageFile>) -> MainFile {
        MainFile::new(self.0.clone(), file)
    }

    /// The log, as far as its commits are vouched for.
    pub(crate) fn log(&self, file: Box<dyn PageFile>) -> io::Result<LogFile> {
        LogFile::open(self.0.clone(), file)
    }

    /// To be called before the log is deleted: everything is in the catalog's file.
    pub(crate) fn log_ends(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.chain.has_begun() {
            state.persist()?;
            state.chain.end();
        }
        Ok(())
    }

    /// Writes the table of a catalog that was made without a log; durable when it returns. Without effect on others.
    ///
    /// # Errors
    /// What the storage says; `InvalidInput` where the catalog's file was not synced.
    pub fn settle(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_making() {
            state.persist()?;
        }
        Ok(())
    }

    /// The table for a copy of the catalog's file, byte by byte, at this moment.
    ///
    /// # Errors
    /// `InvalidInput` while the log holds commits: the file is not all there is.
    pub fn table(&self) -> io::Result<Vec<u8>> {
        let state = self.0.lock();
        if state.chain.has_commits() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the catalog's log holds what its file does not",
            ));
        }
        Ok(table::encode(&state.tags, &state.key).0)
    }

    /// Whether every page of the catalog's file by itself is the version known. It is not for certain after a crash, until
    /// a checkpoint is complete; SQLite reads the pages in question from the log until then.
    pub fn knows_file(&self) -> bool {
        !self.0.lock().between
    }

    /// Whether the catalog is being made: its file is written, by way of a journal, before there is a log.
    pub(crate) fn is_making(&self) -> bool {
        self.0.lock().is_making()
    }

    /// Pages in the log of a commit that is not complete.
    pub fn pending_pages(&self) -> u64 {
        self.0.lock().chain.pending() as u64
    }

    /// What was found to be wrong with the pages since the catalog was opened; the first finding.
    pub fn finding(&self) -> Option<String> {
        self.0.lock().finding.clone()
    }
}

/// Runs what only authenticates, in a span that says so.
fn authenticating<T>(run: impl FnOnce() -> T) -> T {
    let _span = tracing::trace_span!(target: spans::TARGET, spans::AUTHENTICATION).entered();
    run()
}

/// The tag of a page.
fn tag_of(page: &[u8; PAGE]) -> Tag {
    *page[CODE..]
        .first_chunk()
        .expect("a page is longer than its tag")
}

/// A sum by which damage is noticed, not an attack.
fn sum_of(page: &[u8; PAGE]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(page);
    hasher.finish()
}

/// Whether a page is the version with this tag. A page that was never written has a tag of zeros, and is zeros
/// throughout: SQLCipher takes such a page as it is.
fn is_version(page: &[u8; PAGE], tag: Tag) -> bool {
    tag_of(page) == tag && (tag != Tag::default() || page.iter().all(|byte| *byte == 0))
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A request that SQLite never makes of a catalog.
fn unexpected(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}
