//! The seam to the FUSE library: its trait on one side, [`Server`] on the other.
//!
//! 1. No other module names the library. What another transport would need is here and in the files beside it.
//! 2. Every request is answered exactly once; a panic while serving one is logged and answered with EIO.
//! 3. Times to live are endless: this mount is the only one that changes the room, and the kernel sees every change.
//!
//! OPEN and CREATE are answered with ENOSYS once, and never come again: nothing here belongs to an open file, and the
//! kernel then opens files without a round trip (it makes new ones with MKNOD, and truncates with SETATTR). Directories are
//! opened all the same: without that the kernel would keep listings itself, and lose its place in one that it had to throw
//! away while somebody was reading it.

mod convert;
mod requests;
mod session;

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use room::{Inode, spans};

use crate::errno::Errno;
use crate::seeker::Seeker;
use crate::server::{Caller, Server};

use convert::file_attr;
pub(crate) use session::{Kernel, Session, start};

/// The kernel turns what does not fit its clock into "for ever".
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Inode numbers are never used twice.
const GENERATION: Generation = Generation(0);

/// The library's view of a [`Server`].
struct Handler {
    server: Arc<Server>,
    seeker: Seeker,
    kernel: Arc<Kernel>,
}

impl From<Errno> for fuser::Errno {
    fn from(e: Errno) -> Self {
        Self::from_i32(e.0)
    }
}

thread_local! {
    /// Where this thread reads file data, so that not every request pays for fresh zeroed memory.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Handler {
    /// Serves one request: counts it as activity, and keeps a panic from ending the thread.
    fn serve<T>(
        &self,
        request: &Request,
        f: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _span = tracing::trace_span!(target: spans::TARGET, spans::REQUEST).entered();
        self.server.activity.touched(request.pid());
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
            Ok(inode) => reply.entry(&FOR_EVER, &file_attr(&inode), GENERATION),
            Err(e) => reply.error(e.into()),
        }
    }
}

fn attr(reply: ReplyAttr, answer: Result<Inode, Errno>) {
    match answer {
        Ok(inode) => reply.attr(&FOR_EVER, &file_attr(&inode)),
        Err(e) => reply.error(e.into()),
    }
}

fn empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
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
    }
}
