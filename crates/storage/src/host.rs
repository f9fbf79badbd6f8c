//! A directory of the host's file system as [`Storage`].
//!
//! Everything is resolved below one directory descriptor, so a room whose directory is renamed keeps working and one
//! whose directory is removed gets errors, not a hang.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::direct::Direct;
use crate::{LockGuard, OpenMode, Space, Storage, StorageFile, spans};

/// Files below one directory of the host.
#[derive(Debug)]
pub struct HostStorage {
    root: File,
    path: PathBuf,
}

impl HostStorage {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(
            path,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            root: File::from(root),
            path: path.to_owned(),
        })
    }

    /// The path the directory was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens or creates one file, for a process that may not reach the directory itself: see [`host_file`].
    pub fn open_file(&self, path: &str, mode: OpenMode) -> io::Result<File> {
        let flags = OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | match mode {
                OpenMode::Read => OFlags::RDONLY,
                OpenMode::ReadWrite => OFlags::RDWR,
                OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let fd = rustix::fs::openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(fd))
    }

    /// Locks the file at `path` as [`Storage::lock`] does, for such a process: see [`host_lock`].
    pub fn lock_file(&self, path: &str, note: &str) -> io::Result<File> {
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CREATE;
        let fd = rustix::fs::openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(fd);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        file.write_all_at(note.as_bytes(), 0)?;
        Ok(file)
    }

    fn open_dir(&self, dir: &str) -> io::Result<File> {
        let dir = if dir.is_empty() { "." } else { dir };
        let fd = rustix::fs::openat(
            &self.root,
            dir,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(File::from(fd))
    }
}

impl Storage for HostStorage {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(host_file(self.open_file(path, mode)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.open_dir(dir)?)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(String::from_utf8_lossy(name).into_owned()),
            }
        }
        Ok(names)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(rustix::fs::mkdirat(&self.root, path, Mode::RWXU)?)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_SYNC).entered();
        self.open_dir(dir)?.sync_all()
    }

    fn space(&self) -> io::Result<Space> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        let s = rustix::fs::fstatvfs(&self.root)?;
        Ok(Space {
            total: s.f_blocks * s.f_frsize,
            free: s.f_bfree * s.f_frsize,
            available: s.f_bavail * s.f_frsize,
        })
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(host_lock(self.lock_file(path, note)?))
    }
}

/// An open file of the host, from wherever it came.
pub fn host_file(file: File) -> Arc<dyn StorageFile> {
    Arc::new(HostFile {
        file,
        direct: Direct::default(),
    })
}

/// A lock that is held on an open file of the host.
pub fn host_lock(file: File) -> Box<dyn LockGuard> {
    Box::new(HeldFile(file))
}

#[derive(Debug)]
struct HeldFile(File);

impl LockGuard for HeldFile {}

impl Drop for HeldFile {
    /// Lets the lock go, not only our descriptor of it: a child process that another thread is just starting has a
    /// copy until it becomes another program, and would keep the lock for that long.
    fn drop(&mut self) {
        // It fails for no lock that is held.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[derive(Debug)]
struct HostFile {
    file: File,
    direct: Direct,
}

impl StorageFile for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_READ).entered();
        self.direct.end(&self.file)?;
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_WRITE).entered();
        self.direct.end(&self.file)?;
        self.file.write_all_at(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_SYNC).entered();
        if self.direct.write(&self.file, buf, offset)? {
            return Ok(());
        }
        drop(span);
        crate::write_and_sync(self, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        Ok(self.file.metadata()?.len())
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_NAMES).entered();
        // Of 512 bytes, whatever the file system's own blocks (stat(3type)).
        Ok(Some(self.file.metadata()?.blocks() * 512))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_WRITE).entered();
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_SYNC).entered();
        self.file.sync_data()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_RELEASE).entered();
        Ok(rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        )?)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_WRITE).entered();
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            other => Ok(other?),
        }
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_READ).entered();
        let _ = rustix::fs::fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(len),
            Advice::WillNeed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times, contract};

    fn host() -> (Arc<dyn Storage>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Arc::new(HostStorage::open(dir.path()).unwrap()), dir)
    }

    #[test]
    fn a_directory_of_the_host_keeps_the_contract() {
        contract::run(host);
    }

    #[test]
    fn a_storage_in_memory_keeps_the_contract() {
        contract::run(|| (Arc::new(MemoryStorage::new()) as Arc<dyn Storage>, ()));
    }

    #[test]
    fn a_faulty_storage_without_orders_keeps_the_contract() {
        contract::run(|| {
            let (inner, dir) = host();
            (Arc::new(FaultyStorage::new(inner)) as Arc<dyn Storage>, dir)
        });
    }

    #[test]
    fn a_sync_that_finds_no_space_is_not_a_write_that_found_none() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        for (op, is_full) in [(Op::Write, true), (Op::Sync, false)] {
            storage.refuse(op, 1, Fault::NoSpace, Times::Once);
            let failed = file.write_durable(&[1; 4096], 0).unwrap_err();
            assert_eq!(crate::is_full(&failed), is_full, "{op:?}: {failed}");
        }
    }

    #[test]
    fn files_are_the_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (storage, dir) = host();
        storage.open("f", OpenMode::CreateNew).unwrap();
        storage.create_dir("d").unwrap();
        let others = |name: &str| {
            dir.path()
                .join(name)
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o077
        };
        assert_eq!((others("f"), others("d")), (0, 0));
    }

    #[test]
    fn a_symbolic_link_is_not_followed_to_a_file() {
        let (storage, dir) = host();
        storage.open("f", OpenMode::CreateNew).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        assert!(storage.open("link", OpenMode::Read).is_err());
    }

    #[test]
    fn a_renamed_directory_goes_on_and_a_removed_one_gives_errors() {
        let parent = tempfile::tempdir().unwrap();
        let (old, new) = (parent.path().join("old"), parent.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let storage = HostStorage::open(&old).unwrap();
        assert_eq!(storage.path(), old);
        std::fs::rename(&old, &new).unwrap();
        storage.open("f", OpenMode::CreateNew).unwrap();
        assert!(new.join("f").exists());
        std::fs::remove_dir_all(&new).unwrap();
        assert!(storage.open("g", OpenMode::CreateNew).is_err());
    }
}
