//! The library's trait, request by request: takes each apart for [`Server`](crate::server::Server), and sends its answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyStatx,
    ReplyWrite, ReplyXattr, Request, RequestId, SetxattrFlags, TimeOrNow, WriteFlags,
};
use model::SetAttr;

use crate::errno::Errno;
use crate::flags::{self, Ioctl};
use crate::server::Wanted;

use super::convert::{self, file_attr, no, set_time, timestamp};
use super::{GENERATION, Handler, caller, empty, session, sized, written};

fn wanted(mode: u32, umask: u32, rdev: u32) -> Wanted {
    Wanted { mode, umask, rdev }
}

impl Filesystem for Handler {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.strips_first = !self.server.shared && config.kernel_abi() >= session::STRIPS_FIRST;
        let kind = (self.server.shared, self.server.room.has_locks());
        session::negotiate(config, kind, self.transport, self.threads)
    }

    fn destroy(&mut self) {
        self.locker.end_all();
        self.server.forget_all();
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ttl = self.name_ttl(no(parent), name.as_bytes());
        match self.serve(req, || self.server.lookup(no(parent), name.as_bytes())) {
            Ok(Some(inode)) => {
                self.found(reply, &inode, ttl);
            }
            // Inode 0: there is none, and this may be remembered.
            Ok(None) => reply.entry(ttl, &convert::nothing(), GENERATION),
            Err(e) => reply.error(e.into()),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.forgotten(no(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let answer = self.serve(req, || {
            // With a handle the kernel asks on behalf of `write`.
            if fh.is_some() && !self.server.shared {
                self.server.before_write(no(ino))?;
            }
            self.server.attributes(no(ino))
        });
        self.attr(reply, answer);
    }

    fn statx(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: Option<FileHandle>,
        _flags: u32,
        _mask: u32,
        reply: ReplyStatx,
    ) {
        match self.serve(req, || self.server.attributes(no(ino))) {
            Ok(inode) => reply.statx(&self.ttl.attr, &file_attr(&inode)),
            Err(e) => reply.error(e.into()),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        kill_suidgid: bool,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode: mode.map(|m| (m & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            // With the write-back cache the kernel keeps the times of regular files, and sends them here.
            ctime: ctime.map(timestamp),
            btime: None,
            flags: None,
            drop_privileges: kill_suidgid,
            drop_setgid: false,
        };
        let set = || self.server.set_attributes(caller(req), no(ino), set);
        self.attr(reply, self.serve(req, set));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.serve(req, || self.server.read_link(no(ino))) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e.into()),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let wanted = wanted(mode, umask, rdev);
        self.entry(
            reply,
            self.serve(req, || {
                self.server
                    .make(caller(req), no(parent), name.as_bytes(), wanted)
            }),
        );
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let wanted = wanted((mode & 0o7777) | libc::S_IFDIR, umask, 0);
        self.entry(
            reply,
            self.serve(req, || {
                self.server
                    .make(caller(req), no(parent), name.as_bytes(), wanted)
            }),
        );
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let unlink = || self.server.unlink(no(parent), name.as_bytes());
        empty(reply, self.serve(req, unlink));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let rmdir = || self.server.rmdir(no(parent), name.as_bytes());
        empty(reply, self.serve(req, rmdir));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        self.entry(
            reply,
            self.serve(req, || {
                self.server
                    .symlink(caller(req), no(parent), link_name.as_bytes(), target)
            }),
        );
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (no(parent), name.as_bytes());
        let to = (no(newparent), newname.as_bytes());
        let rename = || self.server.rename(from, to, flags.bits());
        empty(reply, self.serve(req, rename));
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let to = (no(newparent), newname.as_bytes());
        let link = || self.server.link(no(ino), to.0, to.1);
        self.entry(reply, self.serve(req, link));
    }

    fn open(
        &self,
        req: &Request,
        ino: INodeNo,
        flags: OpenFlags,
        _kill_suidgid: bool,
        reply: ReplyOpen,
    ) {
        // The first answer of a mount decides for all that follow.
        match self.server.shared || self.server.room.has_flags() {
            true => self.opened(req, no(ino), flags, reply),
            false => reply.error(Errno::ENOSYS.into()),
        }
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match self.server.shared {
            true => self.released(req, (no(ino), fh), flags, lock_owner.is_some(), reply),
            // A file without a name was reported as open.
            false => reply.ok(),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        _kill_suidgid: bool,
        reply: ReplyCreate,
    ) {
        let wanted = wanted(mode, umask, 0);
        match self.server.shared {
            true => self.create_open(req, no(parent), name.as_bytes(), wanted, flags, reply),
            false => reply.error(Errno::ENOSYS.into()),
        }
    }

    fn getlk(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        self.test_lock(req, no(ino), owner, (start, end, typ, pid), reply);
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        flock: bool,
        reply: ReplyEmpty,
    ) {
        let wanted = (start, end, typ, pid);
        self.set_lock(req, (no(ino), fh), owner, wanted, (sleep, flock), reply);
    }

    fn interrupt(&self, unique: RequestId) -> bool {
        if self.server.shared {
            self.locker.interrupt(unique.0);
        }
        self.server.shared
    }

    fn tmpfile(
        &self,
        req: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let wanted = wanted(mode, umask, 0);
        let made = self.serve(req, || {
            self.server.create_tmpfile(caller(req), no(parent), wanted)
        });
        match made {
            made if self.server.shared => self.created(req, made, flags, reply),
            Ok(inode) => reply.created(
                &self.ttl.entry,
                &file_attr(&inode),
                GENERATION,
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(e) => reply.error(e.into()),
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.answer_read(req, no(ino), offset, size as usize, reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.answer_write(req, no(ino), offset, data, (write_flags, flags), reply);
    }

    /// A file that is not shared has nothing to flush. After one answer the kernel does not ask again; it writes its cache back and
    /// reports errors at close by itself.
    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let flush = || self.server.flush(no(ino), fh.0, lock_owner.0);
        match self.server.shared {
            true => empty(reply, self.serve(req, flush)),
            false => reply.error(Errno::ENOSYS.into()),
        }
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fsync = || self.server.fsync_open(no(ino), fh.0);
        empty(reply, self.serve(req, fsync));
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = FileHandle(self.server.listings.open());
        reply.opened(handle, FopenFlags::empty());
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.server.listings.close(fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.answer_names(req, no(ino), fh.0, offset, reply);
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.answer_names_with_attributes(req, no(ino), fh.0, offset, reply);
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.serve(req, || self.server.fsync(no(ino))));
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.serve(req, || self.server.space()) {
            Ok(space) => convert::answer_statfs(&space, reply),
            Err(e) => reply.error(e.into()),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        setxattr_flags: SetxattrFlags,
        reply: ReplyEmpty,
    ) {
        let drop_setgid = setxattr_flags.contains(SetxattrFlags::FUSE_SETXATTR_ACL_KILL_SGID);
        empty(
            reply,
            self.serve(req, || {
                self.server
                    .set_xattr(no(ino), name.as_bytes(), value, flags, drop_setgid)
            }),
        );
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if size == 0
            && let Some(answer) = self.before_write(req, no(ino), name.as_bytes())
        {
            return match answer {
                Ok(size) => reply.size(size),
                Err(e) => reply.error(e.into()),
            };
        }
        sized(
            reply,
            self.serve(req, || self.server.xattr(no(ino), name.as_bytes())),
            size,
        );
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        sized(
            reply,
            self.serve(req, || self.server.xattr_list(caller(req), no(ino))),
            size,
        );
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.serve(req, || self.server.remove_xattr(no(ino), name.as_bytes())),
        );
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS.into());
    }

    fn syncfs(&self, req: &Request, _ino: INodeNo, reply: ReplyEmpty) {
        empty(reply, self.serve(req, || self.server.sync()));
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let answer = self.serve(req, || {
            self.drop_privileges_of(req, no(ino))?;
            self.server.allocate(no(ino), offset, length, mode)
        });
        empty(reply, answer);
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.seek(req, no(ino), offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let answer = self.serve(req, || {
            self.drop_privileges_of(req, no(ino_out))?;
            self.server
                .copy((no(ino_in), offset_in), (no(ino_out), offset_out), len)
        });
        written(reply, answer);
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let asked = match flags::parse(cmd, in_data) {
            Ok(asked) => asked,
            Err(e) => return reply.error(e.into()),
        };
        let found = || self.server.attributes(no(ino));
        match (asked, self.serve(req, found)) {
            (_, Err(e)) => reply.error(e.into()),
            (Ioctl::Get, Ok(inode)) => reply.ioctl(0, &flags::plain(inode.flags)),
            (Ioctl::GetExtended, Ok(inode)) => reply.ioctl(0, &flags::extended(inode.flags)),
            (Ioctl::Set(flags), Ok(inode)) => self.set_flags(&inode, flags, reply),
        }
    }

    /// Files are always ready; after one answer the kernel does not ask again.
    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS.into());
    }
}
