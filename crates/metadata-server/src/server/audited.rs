//! What the audit log records of changes. A change is recorded when it is done, before it is made durable.

use room::{Inode, InodeNo, acl};

use super::incarnation::Incarnation;
use crate::audit::event::{Event, Number, Rights};
use crate::sessions::Session;

impl Incarnation {
    fn number(&self, no: InodeNo) -> Number {
        Number(self.handles.out(no))
    }

    /// A name of an inode, as it was before, is gone.
    pub(super) fn removed(&self, session: &Session, gone: &Inode, directory: InodeNo) {
        self.audit.record(session, |who| Event::Removed {
            who,
            inode: self.number(gone.no),
            directory: self.number(directory),
            last: gone.kind == room::FileKind::Directory || gone.nlink <= 1,
        });
    }

    pub(super) fn moved(&self, session: &Session, inode: &Inode, from: InodeNo, to: InodeNo) {
        self.audit.record(session, |who| Event::Moved {
            who,
            inode: self.number(inode.no),
            from: self.number(from),
            to: self.number(to),
        });
    }

    pub(super) fn rights_changed(&self, session: &Session, before: &Inode, after: &Inode) {
        let (before_rights, after_rights) = (Rights::of(before), Rights::of(after));
        if before_rights == after_rights {
            return;
        }
        self.audit.record(session, |who| Event::RightsChanged {
            who,
            inode: self.number(after.no),
            before: before_rights,
            after: after_rights,
        });
    }

    /// An extended attribute changed: recorded where it is an access list.
    pub(super) fn list_changed(&self, session: &Session, no: InodeNo, name: &[u8]) {
        let list = match name {
            acl::ACCESS => "access",
            acl::DEFAULT => "default",
            _ => return,
        };
        self.audit.record(session, |who| Event::ListChanged {
            who,
            inode: self.number(no),
            list,
        });
    }
}
