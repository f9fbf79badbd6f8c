//! The requests that only a shared file system sees: opening, closing, locks. An unshared one answers the first of a kind
//! with ENOSYS, and it never comes again; but where a file of the room has flags, opens are answered, and judged by them.

use fuser::{
    FileHandle, FopenFlags, LockOwner, OpenAccMode, OpenFlags, ReplyCreate, ReplyEmpty, ReplyLock,
    ReplyOpen, Request,
};
use model::{Access, Inode, InodeNo, Lock, LockKind, LockTable};

use crate::errno::Errno;
use crate::locker::Asked;
use crate::server::{Opened, Wanted};

use super::convert::file_attr;
use super::{GENERATION, Handler, Ttl, caller, empty};

/// What the kernel passes in the flags of an open of a program that is to be run (`__FMODE_EXEC`): it reads.
fn access(flags: OpenFlags) -> Access {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Access::READ,
        OpenAccMode::O_WRONLY => Access::WRITE,
        OpenAccMode::O_RDWR => Access::READ_WRITE,
    }
}

pub(super) fn appends(flags: OpenFlags) -> bool {
    flags.0 & libc::O_APPEND != 0
}

fn lock(start: u64, end: u64, typ: i32, pid: u32) -> Result<Lock, Errno> {
    let kind = match typ {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    // What the kernel calls OFFSET_MAX is whatever comes.
    let end = if end >= i64::MAX as u64 {
        u64::MAX
    } else {
        end
    };
    Ok(Lock {
        kind,
        start,
        end,
        pid,
    })
}

/// Answers with a file that was made and opened. Its attributes live as long as those of a lookup: a first write then asks for
/// none.
fn is_open(ttl: Ttl, opened: Result<(Inode, u64), Errno>, reply: ReplyCreate) {
    match opened {
        Ok((inode, handle)) => reply.created_with_ttls(
            &ttl.attr,
            &ttl.entry,
            &file_attr(&inode),
            GENERATION,
            FileHandle(handle),
            FopenFlags::empty(),
        ),
        Err(e) => reply.error(e.into()),
    }
}

impl Handler {
    pub(super) fn opened(&self, req: &Request, no: InodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.serve(req, || self.server.open(no, access(flags), appends(flags))) {
            Ok(Opened { handle, current }) => {
                let keep = match current {
                    true => FopenFlags::FOPEN_KEEP_CACHE,
                    false => {
                        // The length may be old too.
                        self.kernel.attributes_changed(no);
                        FopenFlags::empty()
                    }
                };
                reply.opened(FileHandle(handle), keep);
            }
            Err(e) => reply.error(e.into()),
        }
    }

    /// Makes and opens a file.
    pub(super) fn create_open(
        &self,
        req: &Request,
        parent: InodeNo,
        name: &[u8],
        wanted: Wanted,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let answer = self.serve(req, || {
            let open = (access(OpenFlags(flags)), appends(OpenFlags(flags)));
            let created = self.server.create(caller(req), parent, name, wanted, open);
            match created {
                // Somebody else made it since the kernel looked: it looks again, checks permissions, and opens it.
                Err(Errno(libc::EEXIST)) if flags & libc::O_EXCL == 0 => Err(Errno(libc::ESTALE)),
                created => created,
            }
        });
        is_open(self.ttl, answer, reply);
    }

    /// Opens what was just made.
    pub(super) fn created(
        &self,
        req: &Request,
        made: Result<Inode, Errno>,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let opened = made.and_then(|inode| {
            let open = self.serve(req, || {
                let flags = OpenFlags(flags);
                self.server.open(inode.no, access(flags), appends(flags))
            });
            match open {
                Ok(opened) => Ok((inode, opened.handle)),
                Err(e) => {
                    // It was counted as handed out, and is not.
                    self.server.forget(inode.no, 1);
                    Err(e)
                }
            }
        });
        is_open(self.ttl, opened, reply);
    }

    pub(super) fn released(
        &self,
        req: &Request,
        (no, handle): (InodeNo, FileHandle),
        flags: OpenFlags,
        flock: bool,
        reply: ReplyEmpty,
    ) {
        let answer = self.serve(req, || {
            self.server.close(no, handle.0, access(flags), flock);
            Ok(())
        });
        empty(reply, answer);
    }

    pub(super) fn test_lock(
        &self,
        req: &Request,
        no: InodeNo,
        owner: LockOwner,
        wanted: (u64, u64, i32, u32),
        reply: ReplyLock,
    ) {
        let (start, end, typ, pid) = wanted;
        let answer = self.serve(req, || {
            self.server
                .test_lock(no, owner.0, lock(start, end, typ, pid)?)
        });
        match answer {
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Ok(Some(held)) => {
                let typ = match held.kind {
                    LockKind::Shared => libc::F_RDLCK,
                    LockKind::Exclusive => libc::F_WRLCK,
                    LockKind::Unlock => libc::F_UNLCK,
                };
                reply.locked(held.start, held.end.min(i64::MAX as u64), typ, held.pid);
            }
            Err(e) => reply.error(e.into()),
        }
    }

    pub(super) fn set_lock(
        &self,
        req: &Request,
        (no, handle): (InodeNo, FileHandle),
        owner: LockOwner,
        wanted: (u64, u64, i32, u32),
        (wait, flock): (bool, bool),
        reply: ReplyEmpty,
    ) {
        self.server.begin(req.pid());
        let (start, end, typ, pid) = wanted;
        let lock = match lock(start, end, typ, pid) {
            Ok(lock) => lock,
            Err(e) => return reply.error(e.into()),
        };
        let (table, owner) = match flock {
            // Such locks are the open's. The kernel's number for it may be another one's as soon as it is closed.
            true => (LockTable::Flock, handle.0),
            false => (LockTable::Posix, owner.0),
        };
        let asked = Asked {
            request: req.unique().0,
            no,
            handle: handle.0,
            table,
            owner,
            lock,
            wait,
        };
        if lock.kind == LockKind::Unlock {
            return empty(reply, self.serve(req, || self.server.unlock_range(&asked)));
        }
        self.locker
            .take(&self.server, &self.kernel, asked, move |taken| {
                empty(reply, taken);
            });
    }
}
