//! What a copy or a stream of a room is written to, when it fails: it is named then, and not the room.
//!
//! It deliberately does not know what is written.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use storage::{LockGuard, OpenMode, Space, Storage, StorageFile};

use crate::error::{Error, Result};

/// The last failure of a target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blame(Arc<Mutex<Option<io::Error>>>);

impl Blame {
    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if let Err(e) = &done
            && !is_answer(e)
        {
            let number = e.raw_os_error().map(io::Error::from_raw_os_error);
            let why = number.unwrap_or_else(|| e.kind().into());
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        done
    }

    /// The failure of the target `name`, if there was one.
    pub(crate) fn error(&self, name: &Path) -> Option<Error> {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map(|e| Error::host(name, e))
    }
}

/// Whether it is what a caller asked for, or of the way to the target, and no failure of that.
fn is_answer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::WouldBlock
            | ErrorKind::UnexpectedEof
            | ErrorKind::Unsupported
            | ErrorKind::NotConnected
            | ErrorKind::Interrupted
    )
}

/// Passes a stream on.
pub(crate) struct BlamedWriter<W> {
    out: W,
    blame: Blame,
}

impl<W: Write> BlamedWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        let blame = Blame::default();
        Self { out, blame }
    }

    /// What came of writing to the target `name`; then all of it was passed on.
    pub(crate) fn end<T>(mut self, written: Result<T>, name: &Path) -> Result<T> {
        let written = written.and_then(|value| {
            let flushed = self.flush();
            flushed.map_err(|e| Error::host(name, e))?;
            Ok(value)
        });
        written.map_err(|e| self.blame.error(name).unwrap_or(e))
    }
}

impl<W: Write> Write for BlamedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blame.noted(self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blame.noted(self.out.flush())
    }
}

/// A directory whose failures are noted, and where.
pub(crate) fn blamed(below: impl Storage + 'static) -> (Arc<dyn Storage>, Blame) {
    let blame = Blame::default();
    let noting = blame.clone();
    let blamed = BlamedStorage {
        below,
        blame: noting,
    };
    (Arc::new(blamed), blame)
}

#[derive(Debug)]
struct BlamedStorage<S> {
    below: S,
    blame: Blame,
}

impl<S: Storage> Storage for BlamedStorage<S> {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let below = self.blame.noted(self.below.open(path, mode))?;
        let blame = self.blame.clone();
        Ok(Arc::new(BlamedFile { below, blame }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.blame.noted(self.below.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.blame.noted(self.below.remove(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.blame.noted(self.below.list(dir))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.blame.noted(self.below.create_dir(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.blame.noted(self.below.sync_dir(dir))
    }

    fn space(&self) -> io::Result<Space> {
        self.blame.noted(self.below.space())
    }

    fn space_at(&self, path: &str) -> io::Result<Space> {
        self.blame.noted(self.below.space_at(path))
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.blame.noted(self.below.lock(path, note))
    }
}

#[derive(Debug)]
struct BlamedFile {
    below: Arc<dyn StorageFile>,
    blame: Blame,
}

impl StorageFile for BlamedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.blame.noted(self.below.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.blame.noted(self.below.write_at(buf, offset))
    }

    fn len(&self) -> io::Result<u64> {
        self.blame.noted(self.below.len())
    }

    fn capacity(&self) -> io::Result<Option<u64>> {
        self.blame.noted(self.below.capacity())
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        self.blame.noted(self.below.allocated())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.blame.noted(self.below.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.blame.noted(self.below.sync())
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.blame.noted(self.below.write_durable(buf, offset))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.blame.noted(self.below.punch(offset, len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.blame.noted(self.below.allocate(offset, len))
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.below.prefetch(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_watched_keeps_the_contract() {
        storage::testing::contract::run(|| {
            let dir = tempfile::tempdir().unwrap();
            let below = storage::HostStorage::open(dir.path()).unwrap();
            (blamed(below).0, dir)
        });
    }
}
