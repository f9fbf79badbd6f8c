//! Notifications to the kernel. Apart from the session they go through, so that what notifies does not depend on what serves.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use fuser::{INodeNo, Notifier};
use model::InodeNo;

/// The kernel's side, to be notified of changes made elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Kernel(OnceLock<Notifier>);

impl Kernel {
    /// From now on it is notified through the session with this notifier. To be called once.
    pub(crate) fn connect(&self, notifier: Notifier) {
        let _ = self.0.set(notifier);
    }

    /// The attributes and ACLs the kernel keeps of an inode are old. Takes no lock and writes nothing back.
    pub(crate) fn attributes_changed(&self, no: InodeNo) {
        self.notify(|n| n.inval_inode(INodeNo(no.0), -1, 0));
    }

    /// The data and attributes the kernel keeps of an inode are old. What programs wrote and the kernel has not yet
    /// passed on is passed on first: not to be called from a thread that serves requests.
    pub(crate) fn inode_changed(&self, no: InodeNo) {
        self.drop_cache(no, 0);
    }

    /// As [`inode_changed`](Self::inode_changed), for the data from `offset` on.
    pub(crate) fn drop_cache(&self, no: InodeNo, offset: u64) {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        self.notify(|n| n.inval_inode(INodeNo(no.0), offset, 0));
    }

    /// A name came, went, or leads elsewhere. Waits for requests on the directory: not to be called from a thread that
    /// serves requests.
    pub(crate) fn entry_changed(&self, parent: InodeNo, name: &[u8]) {
        self.notify(|n| n.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)));
    }

    /// Inodes are to be forgotten by the kernel, as far as nothing uses them: it looks them up again. `false` where it cannot
    /// (before Linux 6.18). Waits for what it has under way of them: not to be called from a thread that serves requests.
    pub(crate) fn forget_unused(&self, inodes: &[InodeNo]) -> bool {
        let inodes: Vec<_> = inodes.iter().map(|no| INodeNo(no.0)).collect();
        let mut can = true;
        self.notify(|n| {
            let answer = n.prune(&inodes);
            can = !matches!(&answer, Err(e) if e.kind() == io::ErrorKind::InvalidInput);
            answer
        });
        can
    }

    fn notify(&self, f: impl FnOnce(&Notifier) -> io::Result<()>) {
        if let Some(notifier) = self.0.get()
            && let Err(e) = f(notifier)
        {
            // It fails when the kernel does not know the inode, or when the mount is gone.
            tracing::debug!("notifying the kernel of a change: {e}");
        }
    }
}
