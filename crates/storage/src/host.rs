//! A directory of the host's file system as [`Storage`].
//!
//! Everything is resolved below one directory descriptor, so a room whose directory is renamed keeps working and one
//! whose directory is removed gets errors, not a hang.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags};

use crate::{OpenMode, Space, Storage, StorageFile};

/// Files below one directory of the host.
#[derive(Debug)]
pub struct HostStorage {
    root: File,
    path: PathBuf,
}

impl HostStorage {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root: File::from(root), path: path.to_owned() })
    }

    /// The path the directory was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_dir(&self, dir: &str) -> io::Result<File> {
        let dir = if dir.is_empty() { "." } else { dir };
        let fd =
            rustix::fs::openat(&self.root, dir, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(File::from(fd))
    }
}

impl Storage for HostStorage {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let flags = OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | match mode {
                OpenMode::Read => OFlags::RDONLY,
                OpenMode::ReadWrite => OFlags::RDWR,
                OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let fd = rustix::fs::openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(HostFile(File::from(fd))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
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
        Ok(rustix::fs::mkdirat(&self.root, path, Mode::RWXU)?)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.open_dir(dir)?.sync_all()
    }

    fn space(&self) -> io::Result<Space> {
        let s = rustix::fs::fstatvfs(&self.root)?;
        Ok(Space {
            total: s.f_blocks * s.f_frsize,
            free: s.f_bfree * s.f_frsize,
            available: s.f_bavail * s.f_frsize,
        })
    }
}

#[derive(Debug)]
struct HostFile(File);

impl StorageFile for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.0, offset, std::num::NonZeroU64::new(len), Advice::WillNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replace;

    #[test]
    fn a_replaced_file_holds_the_new_bytes_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let storage = HostStorage::open(dir.path()).unwrap();
        replace(&storage, "header.json", b"one").unwrap();
        replace(&storage, "header.json", b"second").unwrap();
        assert_eq!(crate::read_limited(&storage, "header.json", 100).unwrap(), b"second");
        assert_eq!(storage.list("").unwrap(), ["header.json"]);
        assert!(crate::read_limited(&storage, "header.json", 3).is_err());
    }

    #[test]
    fn a_punched_range_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let storage = HostStorage::open(dir.path()).unwrap();
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        file.write_at(&[7; 12288], 0).unwrap();
        match file.punch(4096, 4096) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => return,
            other => other.unwrap(),
        }
        let mut buf = [1; 8192];
        file.read_at(&mut buf, 0).unwrap();
        assert_eq!((buf[4095], buf[4096]), (7, 0));
        assert_eq!(file.len().unwrap(), 12288);
    }
}
