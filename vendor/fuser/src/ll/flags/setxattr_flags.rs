use bitflags::bitflags;

bitflags! {
    /// Setxattr flags of the kernel's own (not `XATTR_CREATE` and `XATTR_REPLACE`), sent when
    /// `FUSE_SETXATTR_EXT` was negotiated.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// Clear the set-group-ID bit: `system.posix_acl_access` is being set by someone who is
        /// neither in the file's group nor privileged.
        const FUSE_SETXATTR_ACL_KILL_SGID = 1 << 0;
    }
}
