//! What files with flags need of the kernel, which does not know them.
//!
//! 1. Where a file of the room has flags when a mount's first file is opened, every open is asked for, and refused with
//!    EPERM as the flags say. Where it has none, the kernel never asks again (see the module above), and:
//! 2. a file that becomes immutable refuses each write at once all the same. Before a write the kernel asks whether the file
//!    has capabilities that the write must remove, and the answer for an immutable file is yes: the kernel then has them
//!    removed, is refused that, and the write fails with EPERM.
//! 3. An append-only file takes what is added at its end. A write elsewhere is refused when the kernel passes it on:
//!    `fsync` and `close` report it, and the kernel's copy is dropped.

use fuser::{ReplyIoctl, Request};
use model::{FileFlags, FileKind, Inode, InodeNo};

use crate::errno::Errno;
use crate::seeker::Seek;

use super::Handler;

/// File capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Handler {
    /// Sets flags, after what programs wrote before was passed on.
    pub(super) fn set_flags(&self, inode: &Inode, flags: FileFlags, reply: ReplyIoctl) {
        let (server, kernel) = (self.server.clone(), self.kernel.clone());
        let (no, kind) = (inode.no, inode.kind);
        let set = move || {
            let set = std::panic::AssertUnwindSafe(|| server.set_flags((no, kind), flags));
            match std::panic::catch_unwind(set).unwrap_or(Err(Errno::EIO)) {
                Ok(()) => {
                    // The kernel asks about capabilities again once it has asked for attributes.
                    kernel.attributes_changed(no);
                    reply.ioctl(0, &[]);
                }
                Err(e) => reply.error(e.into()),
            }
        };
        // The kernel keeps nothing back of directories and shared files, and nothing was kept of a file with flags.
        match self.server.shared || inode.kind != FileKind::Regular {
            true => set(),
            false => self.seeker.ask(Seek::new(no, 0, set)),
        }
    }

    /// The answer to what the kernel asks before a write, the length of the file's capabilities, where the file's attributes
    /// are enough for it.
    pub(super) fn before_write(
        &self,
        req: &Request,
        no: InodeNo,
        name: &[u8],
    ) -> Option<Result<u32, Errno>> {
        if name != CAPABILITY {
            return None;
        }
        if self.server.opens.is_bare(no) {
            return Some(Err(Errno(libc::ENODATA)));
        }
        let inode = self.serve(req, || self.server.attributes(no)).ok()?;
        let is_immutable = inode.kind == FileKind::Regular && inode.flags.immutable();
        match (is_immutable, inode.has_xattrs) {
            (false, true) => None,
            (false, false) => Some(Err(Errno(libc::ENODATA))),
            (true, false) => Some(Ok(1)),
            // Who copies the file asks for the length too.
            (true, true) => {
                let value = self.serve(req, || self.server.xattr(no, CAPABILITY));
                Some(Ok(value.map_or(1, |value| value.len().max(1) as u32)))
            }
        }
    }

    /// A write was refused: what the kernel keeps of it is not in the file.
    pub(super) fn undo_cached(&self, no: InodeNo, offset: u64) {
        if !self.server.shared {
            self.seeker.ask(Seek::new(no, offset, || ()));
        }
    }
}
