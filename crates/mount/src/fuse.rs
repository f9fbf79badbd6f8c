//! The seam to the FUSE library: its trait on one side, [`Server`] on the other.
//!
//! 1. Beside [`kernel`](crate::kernel), no other module names the library. What another transport would need is here and in the files beside it.
//! 2. Every request is answered exactly once; a panic while serving one is logged and answered with EIO.
//! 3. Times to live are endless where this mount is the only one that changes the room: the kernel sees every change. Of a
//!    shared file system, names live for no time, and attributes for [`SHARED`]: every path is looked up again, and an open
//!    has the kernel throw away what is old.
//!
//! Where the room is not shared OPEN and CREATE are answered with ENOSYS once, and never come again: nothing here belongs to an open file, and the
//! kernel then opens files without a round trip (it makes new ones with MKNOD, and truncates with SETATTR). Directories are
//! opened all the same: without that the kernel would keep listings itself, and lose its place in one that it had to throw
//! away while somebody was reading it. Files with flags (append-only, immutable) change this: see [`flagged`].

mod convert;
mod data;
mod flagged;
mod listing;
mod requests;
mod session;
mod shared;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyWrite, ReplyXattr, Request};
use model::{DIRECTORY_AGE, FileKind, Inode, InodeNo, spans};

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::locker::Locker;
use crate::options::Transport;
use crate::seeker::Seeker;
use crate::server::{Caller, SHARED, Server};

use convert::file_attr;
pub(crate) use session::{Session, start};

/// The kernel turns what does not fit its clock into "for ever".
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Inode numbers are never used twice.
const GENERATION: Generation = Generation(0);

/// The library's view of a [`Server`].
struct Handler {
    server: Arc<Server>,
    seeker: Seeker,
    kernel: Arc<Kernel>,
    locker: Arc<Locker>,
    ttl: Ttl,
    transport: Transport,
    threads: usize,
    /// Before every change of data the kernel itself asks for what such a change takes from a file.
    strips_first: bool,
}

/// For how long the kernel may cache replies.
#[derive(Debug, Clone, Copy)]
struct Ttl {
    entry: Duration,
    attr: Duration,
}

impl Ttl {
    fn new(shared: bool) -> Self {
        let (entry, attr) = match shared {
            true => (Duration::ZERO, SHARED),
            false => (FOR_EVER, FOR_EVER),
        };
        Self { entry, attr }
    }
}

impl From<Errno> for fuser::Errno {
    fn from(e: Errno) -> Self {
        Self::from_i32(e.0)
    }
}

impl Handler {
    /// Serves one request: counts it as activity, and keeps a panic from ending the thread.
    fn serve<T>(
        &self,
        request: &Request,
        f: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::REQUEST).entered();
        self.server.begin(request.pid());
        std::panic::catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            let what = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("a panic");
            tracing::error!("a request failed by a bug in this program, and is answered with an I/O error: {what}");
            Err(Errno::EIO)
        })
    }

    fn entry(&self, reply: ReplyEntry, answer: Result<Inode, Errno>) {
        match answer {
            Ok(inode) => {
                let attr = file_attr(&inode);
                reply.entry_with_ttls(&self.ttl.attr, &self.ttl.entry, &attr, GENERATION);
            }
            Err(e) => reply.error(e.into()),
        }
    }

    /// Answers with what a name leads to, which the kernel may keep for `ttl`. The attributes of a shared directory may be of before.
    fn found(&self, reply: ReplyEntry, inode: &Inode, ttl: &Duration) {
        let attr_ttl = match self.server.shared && inode.kind == FileKind::Directory {
            true => SHARED.saturating_sub(DIRECTORY_AGE),
            false => self.ttl.attr,
        };
        reply.entry_with_ttls(&attr_ttl, ttl, &file_attr(inode), GENERATION);
    }

    /// For how long the kernel may keep what a name leads to.
    fn name_ttl(&self, parent: InodeNo, name: &[u8]) -> &Duration {
        match self.server.room.is_fleeting(parent, name) {
            true => &Duration::ZERO,
            false => &self.ttl.entry,
        }
    }

    fn attr(&self, reply: ReplyAttr, answer: Result<Inode, Errno>) {
        match answer {
            Ok(inode) => {
                if self.server.pressure.is_tight() && inode.kind == FileKind::Regular {
                    // Before the answer, or after: the kernel takes attributes that were asked for before this for old.
                    self.kernel.attributes_changed(inode.no);
                }
                reply.attr(&self.ttl.attr, &file_attr(&inode));
            }
            Err(e) => reply.error(e.into()),
        }
    }

    /// Before a request in which the kernel does not say whether the caller may keep set-ID bits and file capabilities.
    fn drop_privileges_of(&self, req: &Request, no: InodeNo) -> Result<(), Errno> {
        if !self.strips_first && self.server.drop_privileges_of(caller(req), no)? {
            self.kernel.attributes_changed(no);
        }
        Ok(())
    }

    fn forgotten(&self, no: InodeNo, count: u64) {
        // No activity: the kernel forgets when it needs memory.
        let forget = || self.server.forget(no, count);
        if std::panic::catch_unwind(AssertUnwindSafe(forget)).is_err() {
            tracing::error!(
                inode = no.0,
                "forgetting an inode failed by a bug in this program"
            );
        }
    }
}

fn empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

fn written(reply: ReplyWrite, answer: Result<u32, Errno>) {
    match answer {
        Ok(bytes) => reply.written(bytes),
        Err(e) => reply.error(e.into()),
    }
}

/// Values are asked for with the room there is for them; none asks for the length.
fn sized(reply: ReplyXattr, answer: Result<Vec<u8>, Errno>, size: u32) {
    match answer {
        // The kernel allows 64 KiB at most.
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE.into()),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(e.into()),
    }
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}
