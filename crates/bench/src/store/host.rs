//! Files and names of the host: what directories, devices and mounts are made of.
//!
//! 1. A file is created only where there was none, and opened for writing only below a work directory of ours; links are not followed.
//! 2. Direct means `O_DIRECT` (open(2)): buffers, offsets and lengths are then multiples of the device's block.
//! 3. Names on a mount are synced down to the device, as those of the kernel's own file systems are: syncfs(2) of the mount is not enough.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, Mode as Bits, OFlags};
use rustix::io::Errno;

use super::{Mode, Names, Object};
use crate::{Error, Result};

/// A file or device of the host.
#[derive(Debug)]
pub(crate) struct HostFile {
    file: File,
}

impl HostFile {
    /// Opens `path`. Where it is made it must not exist.
    pub(crate) fn open(path: &Path, mode: Mode) -> Result<Arc<dyn Object>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode.writes()).mode(0o600);
        options.create_new(mode.makes());
        let mut flags = libc::O_CLOEXEC;
        if mode.writes() {
            flags |= libc::O_NOFOLLOW;
        }
        if mode.is_direct() {
            flags |= libc::O_DIRECT;
        }
        options.custom_flags(flags);
        let file = options.open(path).map_err(|e| {
            let what = match (mode.makes(), mode.is_direct()) {
                (true, false) => "making",
                (true, true) => "making for direct calls",
                (false, false) => "opening",
                (false, true) => "opening for direct calls",
            };
            Error::io(path, what, e)
        })?;
        Ok(Arc::new(HostFile { file }))
    }
}

/// Whether files in `dir`, a directory of ours, can be opened for direct calls: some file systems refuse (open(2), EINVAL).
pub(crate) fn takes_direct(dir: &Path) -> Result<bool> {
    let path = dir.join("direct");
    HostFile::open(&path, Mode::Make)?;
    let takes = HostFile::open(&path, Mode::WriteDirect).is_ok();
    super::remove_host(&path)?;
    Ok(takes)
}

impl Object for HostFile {
    fn len(&self) -> io::Result<u64> {
        let meta = self.file.metadata()?;
        if meta.is_file() {
            return Ok(meta.len());
        }
        // The length of a device is where its end is.
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// What is beneath a directory of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Beneath<T> {
    /// The kernel's own file system.
    Kernel,
    /// A process that keeps everything in this directory of the host.
    Served(T),
    /// A process that keeps everything in memory.
    Memory,
    /// A process of which nothing is known.
    Unknown,
}

/// Names below a directory of the host.
#[derive(Debug)]
pub(crate) struct HostNames {
    root: OwnedFd,
    beneath: Beneath<OwnedFd>,
}

impl HostNames {
    pub(crate) fn open(root: &Path, beneath: Beneath<&Path>) -> Result<Arc<dyn Names>> {
        let open = |path: &Path| {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
            rustix::fs::open(path, flags, Bits::empty())
                .map_err(|e| Error::io(path, "opening the directory", e.into()))
        };
        Ok(Arc::new(HostNames {
            root: open(root)?,
            beneath: match beneath {
                Beneath::Kernel => Beneath::Kernel,
                Beneath::Served(backing) => Beneath::Served(open(backing)?),
                Beneath::Memory => Beneath::Memory,
                Beneath::Unknown => Beneath::Unknown,
            },
        }))
    }

    fn file(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.root, path, flags, Bits::from_raw_mode(0o644))?;
        Ok(File::from(fd))
    }
}

impl Names for HostNames {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(
            &self.root,
            path,
            Bits::from_raw_mode(0o755),
        )?)
    }

    fn create(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        let file = self.file(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all_at(content, 0)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn open(&self, path: &str) -> io::Result<()> {
        self.file(path, OFlags::RDONLY).map(drop)
    }

    fn read(&self, path: &str, buf: &mut [u8]) -> io::Result<usize> {
        let file = self.file(path, OFlags::RDONLY)?;
        let mut have = 0;
        while have < buf.len() {
            match file.read_at(&mut buf[have..], have as u64)? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    }

    fn write(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        let file = self.file(path, OFlags::WRONLY)?;
        file.write_all_at(content, 0)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn stat(&self, path: &str) -> io::Result<u64> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(stat.st_size as u64)
    }

    fn list(&self, path: &str) -> io::Result<u64> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(&self.root, path, flags, Bits::empty())?;
        let mut count = 0;
        let dots: [&CStr; 2] = [c".", c".."];
        for entry in rustix::fs::Dir::new(dir)? {
            if !dots.contains(&entry?.file_name()) {
                count += 1;
            }
        }
        Ok(count)
    }

    fn chmod(&self, path: &str, mode: u32) -> io::Result<()> {
        let bits = Bits::from_raw_mode(mode);
        Ok(rustix::fs::chmodat(
            &self.root,
            path,
            bits,
            AtFlags::empty(),
        )?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.file(path, OFlags::RDONLY | OFlags::DIRECTORY)?
            .sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.root)?;
        if matches!(self.beneath, Beneath::Kernel) {
            return Ok(());
        }
        // The kernel does not notify the process of that, but passes on an fsync of a directory, where the process takes one: a room
        // commits, others hold nothing back.
        match rustix::fs::fsync(&self.root) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            done => done?,
        }
        match &self.beneath {
            Beneath::Kernel | Beneath::Memory => {}
            Beneath::Served(backing) => rustix::fs::syncfs(backing)?,
            Beneath::Unknown => rustix::fs::sync(),
        }
        Ok(())
    }
}

/// Brings every file below `path` to the disk: one by one where they are few, since the file system as a whole would wait for
/// what everybody else wrote; as a whole where they are many.
pub(crate) fn sync_below(path: &Path) -> Result<()> {
    const FEW: usize = 32;
    let failed = |e| Error::io(path, "bringing everything to the disk", e);
    let mut files = Vec::new();
    if find_files(path, FEW, &mut files).map_err(failed)? {
        for file in files {
            let synced = File::open(&file).and_then(|file| file.sync_all());
            match synced {
                // Served by a process that removes its files at will.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(failed)?,
            }
        }
        return Ok(());
    }
    let synced = File::open(path).and_then(|file| Ok(rustix::fs::syncfs(&file)?));
    synced.map_err(failed)
}

/// Collects the files below `dir`; false once there are more than `most`.
fn find_files(dir: &Path, most: usize, found: &mut Vec<std::path::PathBuf>) -> io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !find_files(&entry.path(), most, found)? {
                return Ok(false);
            }
        } else if kind.is_file() {
            found.push(entry.path());
        }
        if found.len() > most {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lets the page cache forget every file below `path` (posix_fadvise(2)); what is dirty stays, so sync first. Returns how
/// many files that were.
pub(crate) fn forget_pages(path: &Path) -> Result<u64> {
    let failed = |e| Error::io(path, "emptying the page cache", e);
    let meta = std::fs::symlink_metadata(path).map_err(failed)?;
    if meta.is_dir() {
        let mut count = 0;
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() || kind.is_file() {
                count += forget_pages(&entry.path())?;
            }
        }
        return Ok(count);
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    match options.open(path) {
        Ok(file) => forget_file(&file).map(|()| 1).map_err(failed),
        // Served by a process that removes its files at will.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(failed(e)),
    }
}

/// The same for an open file or device.
pub(crate) fn forget_file(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Lets the kernel forget all clean pages, names and attributes of the whole machine (proc_sys_vm(5)). Root only.
pub(crate) fn forget_everything() -> io::Result<()> {
    // "2" and "1" in one; what is dirty stays.
    std::fs::write("/proc/sys/vm/drop_caches", "3\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::block;
    use crate::observe::loop_disk::LoopDisk;
    use crate::run_file::Run;
    use crate::work::small_files::{MountedHere, Subject as _};

    /// Bytes and flushes of a disk's own device during `names.sync()`, after `change`.
    fn synced(disk: &LoopDisk, names: &dyn Names, change: impl FnOnce()) -> (u64, u64) {
        names.sync().unwrap();
        let device = &block::beneath(&disk.path())[0];
        let before = device.counters().unwrap();
        change();
        names.sync().unwrap();
        let did = device.counters().unwrap().since(&before);
        (did.written_bytes, did.flushes.unwrap_or(1))
    }

    /// What failed: syncfs(2) of a mount ends at the kernel, so names were "synced" of which the disk had nothing.
    #[test]
    fn names_in_a_mounted_room_are_on_the_disk_when_sync_returns() {
        let Some(disk) = LoopDisk::ext4(64) else {
            return;
        };
        let state = tempfile::tempdir().unwrap();
        let run = Run::begin(state.path()).unwrap();
        let room = MountedHere::new(&disk.path(), run).unwrap();
        let (mount, backing) = (disk.path().join("mnt"), room.backing().to_owned());
        for (at, beneath) in [Beneath::Served(&*backing), Beneath::Unknown]
            .into_iter()
            .enumerate()
        {
            let names = HostNames::open(&mount, beneath).unwrap();
            let change = || names.make_dir(&format!("made-{at}")).unwrap();
            let (bytes, flushes) = synced(&disk, &*names, change);
            assert!(bytes > 0 && flushes > 0, "{beneath:?}: {bytes}, {flushes}");
        }
        Box::new(room).close().unwrap();
    }

    #[test]
    fn what_a_process_wrote_to_its_files_is_on_the_disk_when_sync_returns() {
        let Some(disk) = LoopDisk::ext4(64) else {
            return;
        };
        // In place of the mount of a process that holds nothing back, and syncs nothing.
        let mount = tempfile::tempdir_in("/dev/shm").unwrap();
        let names = HostNames::open(mount.path(), Beneath::Served(&disk.path())).unwrap();
        let change = || std::fs::write(disk.path().join("file"), "content").unwrap();
        let (bytes, flushes) = synced(&disk, &*names, change);
        assert!(bytes > 0 && flushes > 0, "{bytes}, {flushes}");
    }
}
