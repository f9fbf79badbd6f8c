//! A directory of the host as a tree; a mounted room is one, confined to its mountpoint, and so is each of its snapshots.
//!
//! Invariant: confined, no path and no symbolic link leads out: every path is opened by `openat2` with
//! `RESOLVE_IN_ROOT`, and the last name is used only relative to the directory opened so.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use room::{FileFlags, FileKind, RenameMode, Timestamp};
use rustix::fs::{
    self as fs, AtFlags, CWD, Mode, OFlags, ResolveFlags, SeekFrom, Timespec, Timestamps,
};
use rustix::io::Errno;

use crate::mounts::Mount;
use mount::is_in_snapshots;

use super::{Attrs, Fault, FileId, Meta, OpenFile, ReadFile, Result, Source, Tree};

/// A host directory.
#[derive(Debug)]
pub(crate) struct HostTree {
    /// The mountpoint of a mounted room; `None`: paths are the host's own.
    root: Option<OwnedFd>,
    /// A directory of the host that was named. Below it no symbolic link is followed: others may put them there while the tree is walked.
    top: Option<(PathBuf, OwnedFd)>,
}

impl HostTree {
    /// The host's whole tree, paths as the user types them; of these `top` is going to be walked, or filled.
    pub(crate) fn with_top(top: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Where it is no directory there is nothing below it.
        let opened = fs::open(top, flags, Mode::empty()).ok();
        Self {
            root: None,
            top: opened.map(|fd| (top.to_owned(), fd)),
        }
    }

    /// A mounted room.
    pub(crate) fn mounted(mount: &Mount) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(&mount.mountpoint, flags, Mode::empty())?;
        // What was opened is that mount, and nothing that took its place since the table was read.
        if fs::fstat(&root)?.st_dev != mount.device {
            return Err(io::Error::other("another file system is there"));
        }
        Ok(Self {
            root: Some(root),
            top: None,
        })
    }

    /// The snapshot of a mounted room, below the directory `snapshots` of its mount. `NotFound` where there is none;
    /// `AlreadyExists` where a file of the room itself has that directory's name.
    pub(crate) fn of_snapshot(mount: &Mount, snapshots: &Path, name: &str) -> io::Result<Self> {
        let HostTree { root, .. } = Self::mounted(mount)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let open =
            |root: &OwnedFd, path: &Path| fs::openat2(root, path, flags, Mode::empty(), within);
        let root = root.map(|root| {
            let all = open(&root, snapshots)?;
            match is_in_snapshots(fs::fstat(&all)?.st_ino) {
                true => open(&all, Path::new(name)),
                false => Err(Errno::EXIST),
            }
        });
        Ok(Self {
            root: root.transpose()?,
            top: None,
        })
    }

    fn fault(&self, error: Errno) -> Fault {
        self.io_fault(error.into())
    }

    fn io_fault(&self, error: io::Error) -> Fault {
        if self.root.is_some() {
            Fault::Mounted(error)
        } else {
            Fault::Host(error)
        }
    }

    fn open_fd(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let below = |(top, fd): &'_ (PathBuf, OwnedFd)| {
            let below = path.strip_prefix(top).ok()?;
            let path = match below.as_os_str().is_empty() {
                true => Path::new("."),
                false => below,
            };
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            Some(fs::openat2(fd, path, flags, Mode::empty(), within))
        };
        let opened = match &self.root {
            None => match self.top.as_ref().and_then(below) {
                Some(opened) => opened,
                None => fs::openat(CWD, path, flags, Mode::empty()),
            },
            Some(root) => fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT),
        };
        opened.map_err(|e| self.fault(e))
    }

    /// Opens without the reading counting as an access, where the file is this user's own.
    fn open_quietly(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        self.open_fd(path, flags | OFlags::NOATIME)
            .or_else(|fault| match fault {
                // Not this user's.
                Fault::Host(e) | Fault::Mounted(e)
                    if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
                {
                    self.open_fd(path, flags)
                }
                other => Err(other),
            })
    }

    /// The directory of a path's last name, and that name; `.` for what has no name, such as the root.
    fn parent(&self, path: &Path) -> Result<(OwnedFd, OsString)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                Ok((self.open_fd(parent, flags)?, name.to_owned()))
            }
            _ => Ok((self.open_fd(path, flags)?, ".".into())),
        }
    }

    /// A path by which calls that take no directory descriptor reach the file itself. Lives as long as the descriptor.
    fn beside(dir: &OwnedFd, name: &OsStr) -> PathBuf {
        Path::new("/proc/self/fd")
            .join(dir.as_raw_fd().to_string())
            .join(name)
    }
}

fn stat_fd(fd: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Meta> {
    let flags = AtFlags::SYMLINK_NOFOLLOW
        | if name.is_empty() {
            AtFlags::EMPTY_PATH
        } else {
            AtFlags::empty()
        };
    let x = fs::statx(
        fd,
        name,
        flags,
        fs::StatxFlags::BASIC_STATS | fs::StatxFlags::BTIME,
    )?;
    let time = |t: fs::StatxTimestamp| Timestamp::new(t.tv_sec, t.tv_nsec);
    let has_birth = x.stx_mask & fs::StatxFlags::BTIME.bits() != 0;
    Ok(Meta {
        id: FileId(fs::makedev(x.stx_dev_major, x.stx_dev_minor), x.stx_ino),
        kind: kind(fs::FileType::from_raw_mode(x.stx_mode.into())),
        mode: x.stx_mode & 0o7777,
        uid: x.stx_uid,
        gid: x.stx_gid,
        nlink: x.stx_nlink.into(),
        size: x.stx_size,
        allocated: x.stx_blocks * 512,
        rdev: fs::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
        btime: has_birth.then(|| time(x.stx_btime)),
    })
}

fn kind(file_type: fs::FileType) -> FileKind {
    match file_type {
        fs::FileType::Directory => FileKind::Directory,
        fs::FileType::Symlink => FileKind::Symlink,
        fs::FileType::Fifo => FileKind::Fifo,
        fs::FileType::Socket => FileKind::Socket,
        fs::FileType::CharacterDevice => FileKind::CharDevice,
        fs::FileType::BlockDevice => FileKind::BlockDevice,
        fs::FileType::RegularFile | fs::FileType::Unknown => FileKind::Regular,
    }
}

impl Source for HostTree {
    fn stat(&self, path: &Path, follow: bool) -> Result<Meta> {
        if follow {
            let fd = self.open_fd(path, OFlags::PATH)?;
            return stat_fd(fd.as_fd(), OsStr::new("")).map_err(|e| self.fault(e));
        }
        let (dir, name) = self.parent(path)?;
        stat_fd(dir.as_fd(), &name).map_err(|e| self.fault(e))
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Meta)>> {
        let fd = self.open_quietly(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let is_live = match &self.root {
            Some(root) => !is_in_snapshots(fs::fstat(root).map_err(|e| self.fault(e))?.st_ino),
            None => false,
        };
        let mut found = Vec::new();
        for entry in fs::Dir::read_from(&fd).map_err(|e| self.fault(e))? {
            let entry = entry.map_err(|e| self.fault(e))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match stat_fd(fd.as_fd(), name) {
                // A mount may list its directory of snapshots, which is no file of the room.
                Ok(meta) if is_live && is_in_snapshots(meta.id.1) => {}
                Ok(meta) => found.push((name.to_owned(), meta)),
                // Removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(self.fault(e)),
            }
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    fn read_link(&self, path: &Path) -> Result<OsString> {
        let (dir, name) = self.parent(path)?;
        let target = fs::readlinkat(&dir, &name, Vec::new()).map_err(|e| self.fault(e))?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn open<'a>(&'a self, path: &Path) -> Result<Box<dyn ReadFile + 'a>> {
        // NONBLOCK, so that a FIFO without a writer is refused below instead of waited for.
        let fd = self.open_quietly(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        match stat_fd(fd.as_fd(), OsStr::new(""))
            .map_err(|e| self.fault(e))?
            .kind
        {
            FileKind::Regular => Ok(Box::new(HostFile {
                tree: self,
                file: fd.into(),
            })),
            FileKind::Directory => Err(self.fault(Errno::ISDIR)),
            _ => Err(Fault::Refused("not a regular file".into())),
        }
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        let (dir, name) = self.parent(path)?;
        let file = Self::beside(&dir, &name);
        let names = match grown(|buf| fs::llistxattr(&file, buf)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(e) => return Err(self.fault(e)),
        };
        let mut found = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            match grown(|buf| fs::lgetxattr(&file, name, buf)) {
                Ok(value) => found.push((name.to_owned(), value)),
                // Removed meanwhile, or one that this user may list but not read.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                Err(e) => return Err(self.fault(e)),
            }
        }
        Ok(found)
    }

    fn flags(&self, path: &Path) -> Result<FileFlags> {
        // Of a file that this user may not read they cannot be seen.
        let Ok(fd) = self.open_quietly(path, OFlags::RDONLY | OFlags::NONBLOCK) else {
            return Ok(FileFlags::NONE);
        };
        let set = fs::ioctl_getflags(&fd).unwrap_or(fs::IFlags::empty());
        let known = [
            (fs::IFlags::APPEND, FileFlags::APPEND_ONLY),
            (fs::IFlags::IMMUTABLE, FileFlags::IMMUTABLE),
        ];
        let known = known.into_iter().filter(|(bit, _)| set.contains(*bit));
        Ok(known.fold(FileFlags::NONE, |all, (_, flag)| all.and(flag)))
    }
}

impl Tree for HostTree {
    fn create<'a>(&'a self, path: &Path) -> Result<Box<dyn OpenFile + 'a>> {
        let (dir, name) = self.parent(path)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            fs::openat(&dir, &name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| self.fault(e))?;
        Ok(Box::new(HostFile {
            tree: self,
            file: fd.into(),
        }))
    }

    fn make_dir(&self, path: &Path, mode: u16) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        fs::mkdirat(&dir, &name, Mode::from_raw_mode(mode.into())).map_err(|e| self.fault(e))
    }

    fn symlink(&self, target: &OsString, path: &Path) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        fs::symlinkat(target, &dir, &name).map_err(|e| self.fault(e))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        fs::linkat(&from_dir, &from_name, &to_dir, &to_name, AtFlags::empty())
            .map_err(|e| self.fault(e))
    }

    fn make_node(&self, path: &Path, kind: FileKind, mode: u16, rdev: u64) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let file_type = match kind {
            FileKind::Fifo => fs::FileType::Fifo,
            FileKind::Socket => fs::FileType::Socket,
            FileKind::CharDevice => fs::FileType::CharacterDevice,
            FileKind::BlockDevice => fs::FileType::BlockDevice,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                return Err(Fault::Refused("not a node".into()));
            }
        };
        fs::mknodat(
            &dir,
            &name,
            file_type,
            Mode::from_raw_mode(mode.into()),
            rdev,
        )
        .map_err(|e| self.fault(e))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        fs::unlinkat(&dir, &name, AtFlags::empty()).map_err(|e| self.fault(e))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        fs::unlinkat(&dir, &name, AtFlags::REMOVEDIR).map_err(|e| self.fault(e))
    }

    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let flags = match mode {
            RenameMode::Replace => fs::RenameFlags::empty(),
            RenameMode::NoReplace => fs::RenameFlags::NOREPLACE,
            RenameMode::Exchange => fs::RenameFlags::EXCHANGE,
        };
        fs::renameat_with(&from_dir, &from_name, &to_dir, &to_name, flags)
            .map_err(|e| self.fault(e))
    }

    fn set_attrs(&self, path: &Path, attrs: &Attrs) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        if let Some((uid, gid)) = attrs.owner {
            let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
            fs::chownat(&dir, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| self.fault(e))?;
        }
        if let Some(mode) = attrs.mode {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = fs::openat(&dir, &name, flags, Mode::empty()).map_err(|e| self.fault(e))?;
            let meta = stat_fd(file.as_fd(), OsStr::new("")).map_err(|e| self.fault(e))?;
            if meta.kind != FileKind::Symlink {
                // The file that was opened, whatever has its name by now.
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                fs::chmod(path, Mode::from_raw_mode(mode.into())).map_err(|e| self.fault(e))?;
            }
        }
        if let Some((atime, mtime)) = attrs.times {
            let time = |t: Timestamp| Timespec {
                tv_sec: t.secs,
                tv_nsec: t.nanos.into(),
            };
            let times = Timestamps {
                last_access: time(atime),
                last_modification: time(mtime),
            };
            fs::utimensat(&dir, &name, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| self.fault(e))?;
        }
        Ok(())
    }

    fn set_xattr(&self, path: &Path, name: &OsString, value: &[u8]) -> Result<()> {
        let (dir, file) = self.parent(path)?;
        fs::lsetxattr(
            Self::beside(&dir, &file),
            name,
            value,
            fs::XattrFlags::empty(),
        )
        .map_err(|e| self.fault(e))
    }

    fn remove_xattr(&self, path: &Path, name: &OsString) -> Result<()> {
        let (dir, file) = self.parent(path)?;
        match fs::lremovexattr(Self::beside(&dir, &file), name) {
            Err(Errno::NODATA) => Ok(()),
            done => done.map_err(|e| self.fault(e)),
        }
    }

    fn sync(&self) -> Result<()> {
        match &self.root {
            // The host's own file systems are committed as usual; `mv` has its files and `sync_file_system`.
            None => Ok(()),
            Some(root) => {
                let dir = fs::openat(
                    root,
                    ".",
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|e| self.fault(e))?;
                // First what programs wrote comes out of the kernel's cache, then the room commits.
                fs::syncfs(&dir).map_err(|e| self.fault(e))?;
                fs::fsync(&dir).map_err(|e| self.fault(e))
            }
        }
    }
}

/// Makes durable what was written to the file system of a directory, or of a file: the kernel passes only the second
/// call to FUSE.
pub(crate) fn sync_file_system(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match path.is_dir() {
        true => path,
        false => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        },
    };
    let synced = fs::open(directory, flags, Mode::empty()).and_then(|directory| {
        fs::syncfs(&directory)?;
        fs::fsync(&directory)
    });
    synced.map_err(|e| Fault::Host(e.into()))
}

/// Calls with a buffer that grows until the answer fits.
fn grown(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; 4096];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // 64 KiB is the most the kernel hands out, for a list and for a value.
            Err(Errno::RANGE) if buf.len() < 64 << 10 => buf.resize(64 << 10, 0),
            Err(e) => return Err(e),
        }
    }
}

struct HostFile<'t> {
    tree: &'t HostTree,
    file: File,
}

impl ReadFile for HostFile<'_> {
    fn meta(&self) -> Result<Meta> {
        stat_fd(self.file.as_fd(), OsStr::new("")).map_err(|e| self.tree.fault(e))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.tree.io_fault(e)),
            }
        }
        Ok(done)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => {
                let end =
                    fs::seek(&self.file, SeekFrom::Hole(start)).map_err(|e| self.tree.fault(e))?;
                Ok(Some((start, end)))
            }
            Err(Errno::NXIO) => Ok(None),
            // A file system without holes: everything up to the end is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let len = self
                    .file
                    .metadata()
                    .map_err(|e| self.tree.io_fault(e))?
                    .len();
                Ok((offset < len).then_some((offset, len)))
            }
            Err(e) => Err(self.tree.fault(e)),
        }
    }

    fn as_host(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl OpenFile for HostFile<'_> {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(data, offset)
            .map_err(|e| self.tree.io_fault(e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.tree.io_fault(e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.tree.io_fault(e))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn below_a_top_no_symbolic_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        for dir in [&top, &outside] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(outside.join("secret"), "of others").unwrap();
        // The user's own way to the top may be one.
        let named = dir.path().join("link");
        symlink(&top, &named).unwrap();
        std::fs::create_dir(top.join("sub")).unwrap();
        std::fs::write(top.join("sub/f"), "mine").unwrap();
        let tree = HostTree::with_top(&named);
        assert_eq!(tree.list(&named.join("sub")).unwrap().len(), 1);

        // Somebody puts them there while the tree is walked.
        std::fs::rename(top.join("sub"), top.join("away")).unwrap();
        symlink(&outside, top.join("sub")).unwrap();
        symlink(outside.join("secret"), top.join("f")).unwrap();
        let sub = named.join("sub");
        assert!(tree.list(&sub).is_err());
        assert!(tree.open(&sub.join("secret")).is_err());
        assert!(tree.remove_file(&sub.join("secret")).is_err());
        assert!(tree.create(&sub.join("new")).is_err());
        assert!(tree.open(&named.join("f")).is_err());
        let mode = Attrs {
            mode: Some(0o777),
            ..Attrs::default()
        };
        tree.set_attrs(&named.join("f"), &mode).unwrap();
        let secret = std::fs::metadata(outside.join("secret")).unwrap();
        assert_ne!(secret.permissions().mode() & 0o777, 0o777);

        // Nor is the top another one by then.
        std::fs::remove_file(&named).unwrap();
        symlink(&outside, &named).unwrap();
        assert!(tree.open(&named.join("secret")).is_err());
        assert_eq!(tree.list(&named.join("away")).unwrap().len(), 1);
    }
}
