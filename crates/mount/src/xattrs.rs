//! Extended attributes as the kernel asks for them: values, and the list of names.

use model::{InodeNo, XattrMode};

use crate::errno::{Errno, OrErrno};
use crate::server::{Caller, Server};

impl Server {
    pub(crate) fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let found = self.room.xattr(no, name).or_errno("get xattr", no);
        self.labels.answer(name, found)
    }

    /// `flags` are those of setxattr; `drop_setgid`: see [`model::FileSystem::set_xattr`].
    pub(crate) fn set_xattr(
        &self,
        no: InodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        drop_setgid: bool,
    ) -> Result<(), Errno> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        check_change(name)?;
        let set = self.with_space(|| self.room.set_xattr(no, name, value, mode, drop_setgid));
        self.opens.changed(no);
        set.or_errno("set xattr", no)?;
        self.labels.seen(name);
        self.changed(no)
    }

    pub(crate) fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<(), Errno> {
        check_change(name)?;
        match self.room.remove_xattr(no, name) {
            // Of `system.` these are access lists: one that is not there is one with nothing in it.
            Err(model::Error::NoXattr) if name.starts_with(b"system.") => return Ok(()),
            removed => removed.or_errno("remove xattr", no)?,
        }
        self.changed(no)
    }

    /// All names, each ended by NUL. Those of `trusted.` only for root: the kernel keeps others from their values, but
    /// does not filter the list that a FUSE file system gives.
    pub(crate) fn xattr_list(&self, caller: Caller, no: InodeNo) -> Result<Vec<u8>, Errno> {
        let names = self.room.xattr_names(no).or_errno("list xattrs", no)?;
        Ok(join_names(&names, caller.uid == 0))
    }
}

/// Refuses what the kernel lets everybody change: of the attributes of `system.` it checks those of access lists only.
fn check_change(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => Ok(()),
        _ if name.starts_with(b"system.") => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

fn join_names(names: &[Vec<u8>], trusted: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names
        .iter()
        .filter(|n| trusted || !n.starts_with(b"trusted."))
    {
        list.extend_from_slice(name);
        list.push(0);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_names_are_listed_for_root_only() {
        let names = [b"trusted.a".to_vec(), b"user.b".to_vec()];
        assert_eq!(join_names(&names, true), b"trusted.a\0user.b\0");
        assert_eq!(join_names(&names, false), b"user.b\0");
    }
}
