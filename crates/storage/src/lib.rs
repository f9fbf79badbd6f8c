//! The one seam between a room and the disk.
//!
//! To begin with, copy `examples/durable_replace.rs`.
//!
//! Segments, header and lock reach the disk only through [`Storage`], so that a test can record, delay, tear and
//! refuse every step (rule 9 of the architecture). Paths are relative to the room's directory, `/`-separated.
//!
//! 1. Nothing here is durable until the call that says so: [`StorageFile::sync`] for a file's data and length,
//!    [`Storage::sync_dir`] for names in a directory.
//! 2. A sync that succeeds after a failed one proves nothing: the caller must treat the file as unknown.
//!
//! It deliberately does not know keys, formats, or what the bytes mean.

#![forbid(unsafe_code)]

mod direct;
mod host;
mod overlay;
mod private;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub use host::{HostStorage, host_file, host_lock};
pub use model::spans;
pub use overlay::Overlay;
pub use private::{NewPrivateFile, write_new_private};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; reading only.
    Read,
    /// Must exist; reading and writing.
    ReadWrite,
    /// Must not exist; it is created, for reading and writing, with mode 0600.
    CreateNew,
}

/// A directory tree that holds a room. All methods may be called from many threads at once.
///
/// Errors carry the [`io::ErrorKind`] a caller acts on: `NotFound`, `AlreadyExists`, `StorageFull`, `UnexpectedEof`,
/// `Unsupported`; every other is a failure of the storage.
pub trait Storage: Send + Sync + Debug {
    /// Opens or creates one file. `NotFound` where it or its directory is not there, `AlreadyExists` for
    /// [`OpenMode::CreateNew`] of one that is.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>>;
    /// Puts `from` in the place of `to`, replacing it in one step.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name; open handles stay valid.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, in no order; `""` is the root.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Creates a directory with mode 0700; its parent must exist. `AlreadyExists` where the name is taken.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable; `""` is the root.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Space of the storage below.
    fn space(&self) -> io::Result<Space>;
    /// Space where the file at `path` is, or would be: not everywhere that of the rest.
    fn space_at(&self, path: &str) -> io::Result<Space> {
        let _ = path;
        self.space()
    }
    /// Locks the file at `path` exclusively, creating it if it is missing. Dropping the guard releases the lock, as
    /// does the end of the process. `WouldBlock` where it is locked already. `note` becomes the file's contents, for
    /// those that find it locked.
    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>>;
    /// Whether this process was still the writer at some moment of the call: of a storage that other machines reach, asked there.
    /// An error says that nobody knows.
    fn writer_state(&self) -> io::Result<WriterState> {
        Ok(WriterState::Current)
    }
    /// Says that what the storage showed when it was opened is known to be its newest state. Until then one that other machines reach keeps
    /// what only a newer state needs: it may have gone back, and be put right again.
    fn accept(&self) {}
}

/// Whether a process may still write to its storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriterState {
    /// It may.
    Current,
    /// Another process has begun to write. Nothing that this one writes will ever be durable.
    Overtaken(String),
    /// Something failed, after which nothing is written until the storage is opened again.
    Failed(String),
}

/// A lock that is held until this is dropped.
pub trait LockGuard: Send + Sync + Debug {}

impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        (**self).open(path, mode)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (**self).rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        (**self).remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        (**self).list(dir)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        (**self).create_dir(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        (**self).sync_dir(dir)
    }
    fn space(&self) -> io::Result<Space> {
        (**self).space()
    }
    fn space_at(&self, path: &str) -> io::Result<Space> {
        (**self).space_at(path)
    }
    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        (**self).lock(path, note)
    }
    fn writer_state(&self) -> io::Result<WriterState> {
        (**self).writer_state()
    }
    fn accept(&self) {
        (**self).accept();
    }
}

/// An open file. All offsets and lengths are bytes.
pub trait StorageFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`; `UnexpectedEof` where the file is shorter, with no word on what `buf` then holds.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` at `offset`, lengthening the file where needed; a gap reads as zeros. A failed write may
    /// have written a part.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// The file's length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Bytes the file can ever hold; `None` where only the storage's space limits it. A file with such a limit never gets
    /// longer than it was when it was made, but shorter with [`set_len`](Self::set_len).
    fn capacity(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Bytes of the storage's space that the file takes: less than its length where it has holes, more where space was
    /// set aside. `None` where the storage does not say.
    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Cuts or extends the file; an extension reads as zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes data and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Writes as [`write_at`](Self::write_at), and syncs what is written here as [`sync`](Self::sync): less for the host to do than both
    /// calls, where place and length are multiples of 4 KiB and within the file. No other call is made on this handle meanwhile. That
    /// there is no space ([`is_full`]) is an error of the write only: after a sync that failed nothing is known.
    fn write_durable(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_and_sync(self, buf, offset)
    }
    /// Gives the space of a range back; the range then reads as zeros. `Unsupported` where the storage cannot.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Sets space aside for a range, without a change to length or contents: a write there then finds space.
    /// `StorageFull` where there is none, `Unsupported` where the storage cannot.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Says that a range will be read soon. A hint: never fails.
    fn prefetch(&self, offset: u64, len: u64);
}

/// Space of the file system that holds a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes not in use.
    pub free: u64,
    /// Bytes not in use that the caller may take.
    pub available: u64,
}

/// Replaces `path` by a file holding `bytes`, so that a crash leaves the old or the new contents, and returns when the
/// new ones are durable. The temporary name is `path` with `.new` behind it.
pub fn replace(storage: &dyn Storage, path: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{path}.new");
    write_new(storage, &temporary, bytes)?;
    storage.rename(&temporary, path)?;
    storage.sync_dir(parent(path))
}

/// Creates a file with `bytes`; a file of that name that a crash left is removed first. The contents are durable when it
/// returns; the name is not.
pub fn write_new(storage: &dyn Storage, path: &str, bytes: &[u8]) -> io::Result<()> {
    remove_if_there(storage, path)?;
    let file = storage.open(path, OpenMode::CreateNew)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

/// Removes a file's name; it need not be there.
pub fn remove_if_there(storage: &dyn Storage, path: &str) -> io::Result<()> {
    match storage.remove(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Names in a directory; none, where it is not there.
pub fn list_if_there(storage: &dyn Storage, dir: &str) -> io::Result<Vec<String>> {
    match storage.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Creates a directory; it may be there.
pub fn create_dir_if_missing(storage: &dyn Storage, path: &str) -> io::Result<()> {
    match storage.create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The directory that holds a path; `""` is the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// [`StorageFile::write_durable`] by two calls.
fn write_and_sync(file: &(impl StorageFile + ?Sized), buf: &[u8], offset: u64) -> io::Result<()> {
    file.write_at(buf, offset)?;
    file.sync().map_err(io::Error::other)
}

/// Whether a storage failed because it has no space left, or none for this user.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Reads a whole file, refusing one longer than `limit` bytes (`FileTooLarge`).
pub fn read_limited(storage: &dyn Storage, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{path} has {len} bytes, more than the {limit} it may have"),
        ));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}
