//! The storage of a room that is measured: a directory of the host that may be bounded like a disk, and that notes how full the
//! room's log is.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::{HostStorage, LockGuard, OpenMode, Space, Storage, StorageFile};

/// What the catalog's log is called, as docs/format.md has it.
const LOG: &str = "catalog.db-log";
/// Directories with files of a room.
const DIRECTORIES: [&str; 2] = ["", "segments"];

/// A directory of the host.
#[derive(Debug)]
pub(super) struct Seam {
    inner: HostStorage,
    /// Bytes of the disk that it pretends to be on; `None`: those of the host's.
    disk: Option<u64>,
    log: Arc<LogEnd>,
}

/// Where the last record of the log begins and ends.
#[derive(Debug, Default)]
pub(super) struct LogEnd {
    begins: AtomicU64,
    ends: AtomicU64,
}

impl LogEnd {
    /// Whether one more record of twice the last one's length would go beyond `len` bytes.
    pub(super) fn is_full(&self, len: u64) -> bool {
        let (begins, ends) = (
            self.begins.load(Ordering::Relaxed),
            self.ends.load(Ordering::Relaxed),
        );
        ends + 2 * (ends - begins) > len
    }
}

impl Seam {
    pub(super) fn open(dir: &Path, disk: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            inner: HostStorage::open(dir)?,
            disk,
            log: Arc::default(),
        })
    }

    pub(super) fn log(&self) -> Arc<LogEnd> {
        self.log.clone()
    }

    /// Bytes that the room's files take.
    fn used(&self) -> io::Result<u64> {
        let mut used = 0;
        for dir in DIRECTORIES {
            for name in self.inner.list(dir)? {
                let path = match dir {
                    "" => name,
                    _ => format!("{dir}/{name}"),
                };
                // A directory, or a file that is gone meanwhile.
                let Ok(file) = self.inner.open(&path, OpenMode::Read) else {
                    continue;
                };
                used += file.allocated().ok().flatten().unwrap_or(0);
            }
        }
        Ok(used)
    }
}

impl Storage for Seam {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(path, mode)?;
        if path != LOG {
            return Ok(inner);
        }
        let end = self.log.clone();
        Ok(Arc::new(LogFile { inner, end }))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.inner.create_dir(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn space(&self) -> io::Result<Space> {
        let Some(total) = self.disk else {
            return self.inner.space();
        };
        let free = total.saturating_sub(self.used()?);
        Ok(Space {
            total,
            free,
            available: free,
        })
    }
    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path, note)
    }
}

/// The log.
#[derive(Debug)]
struct LogFile {
    inner: Arc<dyn StorageFile>,
    end: Arc<LogEnd>,
}

impl StorageFile for LogFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.end.begins.store(offset, Ordering::Relaxed);
        self.end
            .ends
            .store(offset + buf.len() as u64, Ordering::Relaxed);
        self.inner.write_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn capacity(&self) -> io::Result<Option<u64>> {
        self.inner.capacity()
    }
    fn allocated(&self) -> io::Result<Option<u64>> {
        self.inner.allocated()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }
    fn prefetch(&self, offset: u64, len: u64) {
        self.inner.prefetch(offset, len);
    }
}
