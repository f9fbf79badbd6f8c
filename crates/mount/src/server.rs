//! Answers requests from a room: names, attributes, directories, space. File data and extended attributes are beside it.
//!
//! 1. Permissions are not looked at here: the kernel checked them before it asked (`default_permissions`, ACLs).
//! 2. Every entry handed out is counted in [`Lookups`] before the reply is sent.
//! 3. All state is the file system's and the counts': requests name inodes, and who opened what is in [`Opens`], where that
//!    matters.
//! 4. What a synchronous mount promises is done before the answer: the change, then its commit.
//!
//! It knows neither the FUSE library nor the mount point.

use std::sync::Arc;
use std::time::Instant;

use model::{
    Access, FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, RenameMode, RoomSpace,
    SetAttr,
};

use crate::activity::{Activity, Writes};
use crate::clock;
use crate::errno::{Errno, OrErrno};
use crate::labels::Labels;
use crate::listings::Listings;
use crate::lookups::Lookups;
use crate::options::{AccessTimes, MountOptions, Synchronous};
use crate::pressure::{Orders, Pressure};
use crate::removals::Removals;
use crate::slice::Slices;

mod opens;

use opens::Opens;
pub(crate) use opens::{Opened, SHARED};

/// Longest name in bytes.
const NAME_MAX: usize = 255;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Number of the thread; 0 where it is not one that can be seen from here.
    pub(crate) pid: u32,
}

/// A new file of any kind, as the kernel asks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Bits to remove where there is no default ACL.
    pub(crate) umask: u32,
    /// Device number of a device node.
    pub(crate) rdev: u32,
}

/// One name of a directory listing.
pub(crate) struct Listed<'a> {
    pub(crate) inode: &'a Inode,
    /// Position to go on after.
    pub(crate) cookie: u64,
    pub(crate) name: &'a [u8],
}

/// Serves one file system.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) room: Arc<dyn FileSystem>,
    /// Whether others change it too.
    pub(crate) shared: bool,
    access_times: AccessTimes,
    directory_access_times: bool,
    synchronous: Synchronous,
    pub(crate) opens: Opens,
    lookups: Lookups,
    pub(crate) listings: Listings,
    pub(crate) labels: Labels,
    pub(crate) activity: Arc<Activity>,
    pub(crate) slices: Slices,
    pub(crate) writes: Arc<Writes>,
    pub(crate) pressure: Pressure,
    removals: Removals,
}

impl Server {
    /// The orders are for the thread of `relief`.
    pub(crate) fn new(room: Arc<dyn FileSystem>, options: &MountOptions) -> (Self, Orders) {
        room.stamp_by(clock::stamp);
        let (pressure, orders) = Pressure::new();
        let server = Self {
            shared: room.is_shared(),
            room,
            access_times: options.access_times,
            directory_access_times: options.directory_access_times,
            synchronous: options.synchronous,
            opens: Opens::default(),
            lookups: Lookups::new(),
            listings: Listings::default(),
            labels: Labels::new(),
            activity: Arc::default(),
            slices: Slices::default(),
            writes: Arc::default(),
            pressure,
            removals: Removals::default(),
        };
        (server, orders)
    }

    /// A request by thread `tid` begins.
    pub(crate) fn begin(&self, tid: u32) {
        let now = Instant::now();
        self.activity.touched(tid, now);
        self.slices.follow(now);
    }

    /// The inodes that the kernel knows.
    pub(crate) fn known(&self) -> Vec<InodeNo> {
        self.lookups.known()
    }

    /// Counts an entry that is about to be handed out.
    fn hand_out(&self, inode: Inode) -> Inode {
        if self.lookups.add(inode.no) {
            self.room.hold(inode.no);
        }
        inode
    }

    pub(crate) fn forget(&self, no: InodeNo, count: u64) {
        if self.lookups.forget(no, count) {
            self.opens.forget(no);
            self.pressure.length_corrected(no);
            self.room.release(no, 1);
            self.removals.forgotten();
        }
    }

    /// Makes a change. One that finds no space is tried again while a removal may yet make some.
    pub(crate) fn with_space<T>(&self, change: impl Fn() -> model::Result<T>) -> model::Result<T> {
        let lacks_space = |done: &_| matches!(done, Err(model::Error::NoSpace));
        let mut done = change();
        if lacks_space(&done) {
            self.removals.wait(|| {
                done = change();
                !lacks_space(&done)
            });
        }
        done
    }

    /// Waits for space that a removal may yet make; whether there is some.
    pub(crate) fn finds_space(&self) -> bool {
        let has_space = || self.room.available().is_ok_and(|left| left.new > 0);
        self.removals.wait(has_space)
    }

    /// The kernel is gone, and with it everything it knew.
    pub(crate) fn forget_all(&self) {
        for no in self.lookups.drain() {
            self.room.release(no, 1);
        }
    }

    /// A name in a directory; `None` if there is none, which the kernel may remember.
    pub(crate) fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>, Errno> {
        // What the kernel asks when a file handle (open_by_handle_at, NFS) outlived its caches.
        let found = match name {
            b"." => self.room.attributes(parent),
            b".." => self
                .room
                .attributes(parent)
                .and_then(|i| self.room.attributes(i.parent)),
            _ if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
            _ => self.room.lookup(parent, name),
        };
        match found {
            Ok(inode) => Ok(Some(self.hand_out(inode))),
            Err(model::Error::NotFound) if name != b"." && name != b".." => Ok(None),
            Err(e) => Err(Errno::of(&e, "lookup", parent)),
        }
    }

    pub(crate) fn attributes(&self, no: InodeNo) -> Result<Inode, Errno> {
        self.room.attributes(no).or_errno("attributes", no)
    }

    pub(crate) fn set_attributes(
        &self,
        caller: Caller,
        no: InodeNo,
        mut set: SetAttr,
    ) -> Result<Inode, Errno> {
        if let Some(stamp) = set.ctime {
            clock::passed_on(stamp);
        }
        if self.shared && caller.uid != 0 && sets_nothing(&set) {
            // What the kernel sends before a write that takes set-ID bits away, and after which the write itself says so. Only the owner of
            // a file marks it as changed in this way.
            let inode = self.attributes(no)?;
            if inode.uid != caller.uid {
                return Ok(inode);
            }
        }
        if set.drop_privileges && !self.shared {
            let inode = self.attributes(no)?;
            // Of anything else an empty request is no announcement of a write, but anybody's `chown` of -1 and -1.
            set.drop_privileges = inode.kind == FileKind::Regular;
            let changes_owner = set.uid.is_some() || set.gid.is_some();
            let is_empty = !changes_owner && set.size.is_none();
            if set.drop_privileges && is_empty && caller.keeps_set_id() {
                // A write of one who keeps the bits is announced for file capabilities, which nobody keeps. The kernel has removed them.
                return Ok(inode);
            }
            // With a change of owner the kernel does not look at privileges.
            set.drop_setgid = caller.loses_setgid(&inode) && (caller.uid != 0 || !changes_owner);
        }
        self.change_attributes(no, &set)
    }

    pub(crate) fn change_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode, Errno> {
        let change = || self.room.set_attributes(no, set);
        // With every other change of a file's attributes the kernel sends times.
        let set_now = match set.ctime.is_none() && (set.size.is_some() || set.drop_privileges) {
            true => self.stamped_by_kernel(change),
            false => change(),
        };
        if set.mode.is_some() || set.flags.is_some() {
            self.opens.changed(no);
        }
        let inode = set_now.or_errno("set attributes", no)?;
        if set.size.is_some() {
            self.pressure.length_corrected(no);
        }
        self.changed(no)?;
        Ok(inode)
    }

    pub(crate) fn set_flags(
        &self,
        (no, kind): (InodeNo, FileKind),
        flags: FileFlags,
    ) -> Result<(), Errno> {
        let set = SetAttr {
            flags: Some(flags),
            ..SetAttr::default()
        };
        let change = || self.change_attributes(no, &set).map(drop);
        match kind {
            FileKind::Regular => self.stamped_by_kernel(change),
            _ => change(),
        }
    }

    /// Makes a change to a regular file that the kernel stamps, where it keeps the times of files.
    pub(crate) fn stamped_by_kernel<T>(&self, change: impl FnOnce() -> T) -> T {
        match self.shared {
            true => change(),
            false => clock::kept(change),
        }
    }

    /// A file or symbolic link was read.
    pub(crate) fn touch_atime(&self, no: InodeNo) {
        match self.access_times {
            AccessTimes::Relative => self.room.touch_atime(no),
            AccessTimes::Strict => self.room.accessed_always(no),
            AccessTimes::Never => {}
        }
    }

    /// A directory was read.
    fn directory_accessed(&self, no: InodeNo) {
        if self.directory_access_times {
            self.touch_atime(no);
        }
    }

    /// A file changed otherwise than by its names: durable now, where the mount is synchronous.
    pub(crate) fn changed(&self, no: InodeNo) -> Result<(), Errno> {
        match self.synchronous {
            Synchronous::All => self.make_durable("synchronous change", no),
            Synchronous::Off | Synchronous::Names => Ok(()),
        }
    }

    /// Names changed in the directory `no`: durable now, where the mount says so. In a shared file system they always are.
    fn names_changed(&self, no: InodeNo) -> Result<(), Errno> {
        if self.shared {
            self.slices.shorten();
            return Ok(());
        }
        match self.synchronous {
            Synchronous::Names | Synchronous::All => self.make_durable("synchronous change", no),
            Synchronous::Off => Ok(()),
        }
    }

    /// All that is known of an inode is durable then.
    pub(crate) fn make_durable(&self, what: &'static str, no: InodeNo) -> Result<(), Errno> {
        self.slices.shorten();
        self.room.fsync(no).or_errno(what, no)
    }

    pub(crate) fn read_link(&self, no: InodeNo) -> Result<Vec<u8>, Errno> {
        let target = self.room.read_link(no).or_errno("read link", no)?;
        self.touch_atime(no);
        Ok(target)
    }

    /// Makes a file of the kind that `wanted.mode` names; no kind is a regular file.
    pub(crate) fn make(
        &self,
        caller: Caller,
        parent: InodeNo,
        name: &[u8],
        wanted: Wanted,
    ) -> Result<Inode, Errno> {
        let new = new_file(caller, wanted)?;
        let inode = self
            .with_space(|| self.room.make(parent, name, &new))
            .or_errno("make", parent)?;
        self.names_changed(parent)?;
        Ok(self.hand_out(inode))
    }

    /// Makes a regular file and opens it; `append`: what is written through it goes to its end. Also its handle.
    pub(crate) fn create(
        &self,
        caller: Caller,
        parent: InodeNo,
        name: &[u8],
        wanted: Wanted,
        (access, append): (Access, bool),
    ) -> Result<(Inode, u64), Errno> {
        let new = new_file(caller, wanted)?;
        let changes = self.opens.changes();
        let inode = self
            .with_space(|| self.room.create(parent, name, &new, access))
            .or_errno("create", parent)?;
        self.names_changed(parent)?;
        let opened = self.admit(&inode, changes, access, append)?;
        Ok((self.hand_out(inode), opened.handle))
    }

    pub(crate) fn symlink(
        &self,
        caller: Caller,
        parent: InodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Inode, Errno> {
        let new = NewFile {
            kind: FileKind::Symlink,
            mode: 0o777,
            umask: 0,
            uid: caller.uid,
            gid: caller.gid,
            rdev: 0,
            target: target.to_vec(),
        };
        let inode = self
            .with_space(|| self.room.make(parent, name, &new))
            .or_errno("symlink", parent)?;
        self.names_changed(parent)?;
        Ok(self.hand_out(inode))
    }

    pub(crate) fn create_tmpfile(
        &self,
        caller: Caller,
        parent: InodeNo,
        wanted: Wanted,
    ) -> Result<Inode, Errno> {
        let new = new_file(caller, wanted)?;
        let inode = self
            .with_space(|| self.room.create_tmpfile(parent, &new))
            .or_errno("make unnamed", parent)?;
        // It came held, so that it does not vanish before this line.
        if !self.lookups.add(inode.no) {
            self.room.release(inode.no, 1);
        }
        Ok(inode)
    }

    pub(crate) fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode, Errno> {
        let inode = self
            .with_space(|| self.room.link(no, parent, name))
            .or_errno("link", no)?;
        self.names_changed(parent)?;
        Ok(self.hand_out(inode))
    }

    pub(crate) fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.room.unlink(parent, name).or_errno("unlink", parent)?;
        self.removals.note();
        self.names_changed(parent)
    }

    pub(crate) fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.room.rmdir(parent, name).or_errno("rmdir", parent)?;
        self.names_changed(parent)
    }

    /// `flags` are those of renameat2.
    pub(crate) fn rename(
        &self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            // Whiteouts are for file systems under an overlay that let users make device nodes.
            _ => return Err(Errno::EINVAL),
        };
        self.with_space(|| self.room.rename(from.0, from.1, to.0, to.1, mode))
            .or_errno("rename", from.0)?;
        if mode == RenameMode::Replace {
            self.removals.note();
        }
        self.names_changed(from.0)
    }

    /// Lists a directory, opened as `handle`, after `cookie`, handing each name to `put` until that returns false (it found
    /// no place), which is after `most` names at the latest. `count`: what is put is an entry the kernel keeps.
    pub(crate) fn list(
        &self,
        no: InodeNo,
        (handle, cookie): (u64, u64),
        most: usize,
        count: bool,
        mut put: impl FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), Errno> {
        /// Names fetched at once.
        const BATCH: usize = 512;
        /// Positions of `.` and `..`; the room's own start at 16.
        const DOT: u64 = 1;
        const DOT_DOT: u64 = 2;

        let mut end = self.listings.end(handle, cookie);
        if cookie >= DOT_DOT && end.is_some_and(|end| cookie.saturating_add(1) >= end) {
            return Ok(());
        }
        if cookie < DOT_DOT {
            let own = self.attributes(no)?;
            if own.kind != FileKind::Directory {
                return Err(Errno(libc::ENOTDIR));
            }
            if cookie < DOT {
                self.directory_accessed(no);
                // These two are not entries the kernel keeps, so they are not counted.
                if !put(&Listed {
                    inode: &own,
                    cookie: DOT,
                    name: b".",
                }) {
                    return Ok(());
                }
            }
            // A directory that was removed while open has no parent any more: show itself, as others do.
            let parent = self.room.attributes(own.parent).unwrap_or(own);
            if !put(&Listed {
                inode: &parent,
                cookie: DOT_DOT,
                name: b"..",
            }) {
                return Ok(());
            }
        }
        let mut after = if cookie <= DOT_DOT { 0 } else { cookie };
        let limit = most.min(BATCH);
        loop {
            let read = match end {
                Some(end) => self.room.read_dir(no, after, limit).map(|read| (read, end)),
                None => self.room.begin_read_dir(no, after, limit),
            };
            let (batch, until) = read.or_errno("read directory", no)?;
            if end.is_none() {
                self.listings.begin(handle, until);
                end = Some(until);
            }
            let last = batch.len() < limit;
            for (entry, inode) in batch {
                if entry.cookie >= until {
                    return Ok(());
                }
                after = entry.cookie;
                // Counted first: once put, the entry is in the reply.
                let first = count && self.lookups.add(inode.no);
                if first {
                    self.room.hold(inode.no);
                }
                if !put(&Listed {
                    inode: &inode,
                    cookie: entry.cookie,
                    name: &entry.name,
                }) {
                    if count {
                        self.forget(inode.no, 1);
                    }
                    return Ok(());
                }
            }
            if last {
                self.listings.complete(handle, after);
                return Ok(());
            }
        }
    }

    pub(crate) fn space(&self) -> Result<RoomSpace, Errno> {
        self.room.space().or_errno("space", InodeNo::ROOT)
    }
}

fn sets_nothing(set: &SetAttr) -> bool {
    matches!(
        set,
        SetAttr {
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: None,
            mtime: None,
            ctime: None,
            btime: None,
            flags: None,
            drop_privileges: false,
            drop_setgid: false,
        }
    )
}

/// What the room is to make.
fn new_file(caller: Caller, wanted: Wanted) -> Result<NewFile, Errno> {
    let kind = match wanted.mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileKind::Regular,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return Err(Errno::EINVAL),
    };
    Ok(NewFile {
        kind,
        mode: (wanted.mode & 0o7777) as u16,
        umask: (wanted.umask & 0o777) as u16,
        uid: caller.uid,
        gid: caller.gid,
        // The kernel's 32-bit form has the same layout as makedev's, for as long as both fit.
        rdev: u64::from(wanted.rdev),
        target: Vec::new(),
    })
}
