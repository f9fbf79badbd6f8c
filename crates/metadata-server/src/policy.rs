//! Who may do what: mode, owner, groups, access lists, sticky directories, and the rules of changing them.
//!
//! 1. The answers are those of the Linux kernel for the same user on a local file system with POSIX access lists; user 0 has the
//!    capabilities of root. Two things are looser, as in NFS servers: an owner may always read and write his own file (he
//!    may have opened it before its mode changed), and execute permission implies read permission (running is reading).
//! 2. Pure: what is asked about is passed in, nothing is looked up.
//!
//! It deliberately does not know sessions, capabilities of disks, or how an operation is done.
//! Sources: `generic_permission`, `posix_acl_permission`, `may_delete`, `may_linkat`, `setattr_prepare`, `xattr_permission`.

use room::acl::{self, Acl, Who};
use room::{Error, FileKind, Inode, NewFile, SetAttr, SetTime};

/// Wanted: to read.
pub const READ: u16 = 4;
/// Wanted: to write.
pub const WRITE: u16 = 2;
/// Wanted: to run, or to search a directory.
pub const EXECUTE: u16 = 1;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;

/// A user, as far as permissions go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The number; 0 may do everything.
    pub uid: u32,
    /// The groups, at least one; the first is that of new files.
    pub gids: Vec<u32>,
}

/// An inode with its access list, where it has one.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// The inode.
    pub inode: &'a Inode,
    /// The list.
    pub list: Option<&'a Acl>,
}

/// What POSIX calls EACCES and EPERM.
pub type Verdict = Result<(), Error>;

const DENIED: Error = Error::AccessDenied;

fn not_permitted(why: &'static str) -> Verdict {
    Err(Error::NotPermitted(why))
}

fn allowed(yes: bool) -> Verdict {
    if yes { Ok(()) } else { Err(DENIED) }
}

impl Subject {
    /// Whether this is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn in_group(&self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }

    /// Whether all of `want` ([`READ`], [`WRITE`], [`EXECUTE`], or several of them) is allowed.
    pub fn may(&self, what: Object<'_>, want: u16) -> bool {
        let inode = what.inode;
        self.permits(what, want)
            || self.is_root()
                && (want & EXECUTE == 0
                    || inode.kind == FileKind::Directory
                    || inode.mode & 0o111 != 0)
    }

    fn permits(&self, what: Object<'_>, want: u16) -> bool {
        let mode = what.inode.mode;
        if self.uid == what.inode.uid {
            return mode >> 6 & want == want;
        }
        // As in the kernel: without any right of the group class, the list is not asked.
        if let Some(list) = what.list
            && mode & 0o070 != 0
        {
            return self.permits_by_list(what.inode, list, want);
        }
        let class = if self.in_group(what.inode.gid) { 3 } else { 0 };
        mode >> class & want == want
    }

    fn permits_by_list(&self, inode: &Inode, list: &Acl, want: u16) -> bool {
        let mask = list
            .entries()
            .find_map(|(who, bits)| (who == Who::Mask).then_some(bits))
            .unwrap_or(7);
        let mut in_some_group = false;
        for (who, bits) in list.entries() {
            match who {
                Who::User(uid) if uid == self.uid => return bits & mask & want == want,
                Who::OwningGroup if self.in_group(inode.gid) => in_some_group = true,
                Who::Group(gid) if self.in_group(gid) => in_some_group = true,
                Who::Other => return !in_some_group && bits & want == want,
                _ => continue,
            }
            // Only a group's entry gets here: the first one that grants all of it decides.
            if bits & want == want {
                return bits & mask & want == want;
            }
        }
        false
    }

    /// Opening, reading, mapping.
    pub fn read(&self, what: Object<'_>) -> Verdict {
        let runs = what.inode.kind == FileKind::Regular && self.may(what, EXECUTE);
        allowed(self.owns(what.inode) || self.may(what, READ) || runs)
    }

    /// Opening, writing, truncating, allocating.
    pub fn write(&self, what: Object<'_>) -> Verdict {
        allowed(self.owns(what.inode) || self.may(what, WRITE))
    }

    /// Finding a name in a directory.
    pub fn search(&self, directory: Object<'_>) -> Verdict {
        if directory.inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        allowed(self.may(directory, EXECUTE))
    }

    /// Listing a directory.
    pub fn list(&self, directory: Object<'_>) -> Verdict {
        allowed(self.may(directory, READ))
    }

    fn change_names(&self, directory: Object<'_>) -> Verdict {
        if directory.inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        allowed(self.may(directory, WRITE | EXECUTE))
    }

    /// Making a file; `new` afterwards is what this user may make: its own, in one of its groups.
    pub fn make(&self, directory: Object<'_>, new: &mut NewFile) -> Verdict {
        self.change_names(directory)?;
        if self.is_root() {
            return Ok(());
        }
        if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return not_permitted("only root makes device nodes");
        }
        new.uid = self.uid;
        if !self.in_group(new.gid) {
            new.gid = self.gids.first().copied().unwrap_or(u32::MAX);
        }
        if new.kind == FileKind::Directory {
            new.mode &= !(SET_UID | SET_GID);
        }
        // `mode_strip_sgid`: nobody gets to run as a group of which he is not.
        let directory = directory.inode;
        if new.kind != FileKind::Directory
            && new.mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
            && directory.mode & SET_GID != 0
            && !self.in_group(directory.gid)
        {
            new.mode &= !SET_GID;
        }
        Ok(())
    }

    /// Giving a file another name, as `fs.protected_hardlinks` has it.
    pub fn link(&self, what: Object<'_>, directory: Object<'_>) -> Verdict {
        self.change_names(directory)?;
        let inode = what.inode;
        let harmless = inode.kind == FileKind::Regular
            && inode.mode & SET_UID == 0
            && inode.mode & (SET_GID | GROUP_EXECUTE) != SET_GID | GROUP_EXECUTE
            && self.may(what, READ | WRITE);
        if self.owns(inode) || harmless {
            return Ok(());
        }
        not_permitted("the file is another user's, who could not get rid of it then")
    }

    /// Removing a name.
    pub fn remove(&self, directory: Object<'_>, what: &Inode) -> Verdict {
        self.change_names(directory)?;
        let sticky = directory.inode.mode & STICKY != 0;
        if sticky && !self.owns(what) && !self.owns(directory.inode) {
            return not_permitted("the directory is sticky and the file another user's");
        }
        Ok(())
    }

    /// Moving a name out of a directory, or replacing it there. `moves`: whether the file comes into another directory.
    pub fn displace(&self, directory: Object<'_>, what: Object<'_>, moves: bool) -> Verdict {
        self.remove(directory, what.inode)?;
        let rewritten = moves && what.inode.kind == FileKind::Directory;
        allowed(!rewritten || self.may(what, WRITE))
    }

    /// Putting a name into a directory.
    pub fn enter(&self, directory: Object<'_>) -> Verdict {
        self.change_names(directory)
    }

    /// Changing attributes; `set` afterwards is what this user may set.
    pub fn set_attributes(&self, what: Object<'_>, set: &mut SetAttr) -> Verdict {
        let inode = what.inode;
        if self.is_root() {
            return Ok(());
        }
        if set.ctime.is_some() || set.btime.is_some() {
            return not_permitted("only root restores times");
        }
        if set.flags.is_some() {
            return not_permitted("only root changes flags");
        }
        let owner = self.uid == inode.uid;
        if set.uid.is_some_and(|uid| !owner || uid != inode.uid) {
            return not_permitted("only root gives files away");
        }
        if set
            .gid
            .is_some_and(|gid| !owner || (gid != inode.gid && !self.in_group(gid)))
        {
            return not_permitted("only the owner changes the group, and only to one of his own");
        }
        if let Some(mode) = &mut set.mode {
            if !owner {
                return not_permitted("only the owner changes the mode");
            }
            if !self.in_group(set.gid.unwrap_or(inode.gid)) {
                *mode &= !SET_GID;
            }
        }
        let given = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
        if (given(set.atime) || given(set.mtime)) && !owner {
            return not_permitted("only the owner sets times");
        }
        let touched = set.atime.is_some() || set.mtime.is_some();
        let nothing = !touched && set.mode.is_none() && set.size.is_none() && !set.drop_privileges;
        if nothing && set.uid.is_none() && set.gid.is_none() && !owner {
            return not_permitted("only the owner marks a file as changed");
        }
        if (touched || set.size.is_some() || set.drop_privileges) && !owner {
            self.write(what)?;
        }
        if set.size.is_some() {
            set.drop_privileges = true;
        }
        if set.drop_privileges && set.mode.is_none() {
            set.mode = self.mode_after_write(inode);
        }
        Ok(())
    }

    /// The mode of a file after this user changed its data, where more goes than the bits that every such change takes: the
    /// set-group-id bit that nobody can use, of a file of another's group (`setattr_should_drop_sgid`).
    pub fn mode_after_write(&self, inode: &Inode) -> Option<u16> {
        let foreign = !self.is_root() && !self.in_group(inode.gid);
        (foreign && inode.mode & (SET_GID | GROUP_EXECUTE) == SET_GID)
            .then_some(inode.mode & !(SET_UID | SET_GID))
    }

    /// Reading an extended attribute. Every user that reaches a file may read its access lists, and what the kernel has
    /// to know before it runs it.
    pub fn read_xattr(&self, what: Object<'_>, name: &[u8]) -> Verdict {
        match Namespace::of(name) {
            Namespace::User if !can_have_user_xattrs(what.inode) => Err(Error::NoXattr),
            Namespace::User => allowed(self.may(what, READ)),
            Namespace::Lists | Namespace::Security => Ok(()),
            Namespace::Trusted if self.is_root() => Ok(()),
            Namespace::Trusted => Err(Error::NoXattr),
            Namespace::Unknown => Err(Error::NotSupported("extended attributes of this kind")),
        }
    }

    /// Whether a listing shows this user the name.
    pub fn sees_xattr(&self, name: &[u8]) -> bool {
        self.is_root() || Namespace::of(name) != Namespace::Trusted
    }

    /// Setting or removing an extended attribute. Returns whether the set-group-id bit goes with a new access list.
    pub fn write_xattr(&self, what: Object<'_>, name: &[u8]) -> Result<bool, Error> {
        let inode = what.inode;
        match Namespace::of(name) {
            Namespace::User => {
                if !can_have_user_xattrs(inode) {
                    not_permitted("only files and directories have extended attributes of users")?;
                }
                let sticky = inode.kind == FileKind::Directory && inode.mode & STICKY != 0;
                if sticky && !self.owns(inode) {
                    not_permitted("the directory is sticky and another user's")?;
                }
                allowed(self.may(what, WRITE))?;
                Ok(false)
            }
            Namespace::Lists => {
                if !self.owns(inode) {
                    not_permitted("only the owner changes access lists")?;
                }
                Ok(name == acl::ACCESS && !self.is_root() && !self.in_group(inode.gid))
            }
            Namespace::Security | Namespace::Trusted if self.is_root() => Ok(false),
            Namespace::Security | Namespace::Trusted => {
                not_permitted("only root sets extended attributes of this kind")?;
                Ok(false)
            }
            Namespace::Unknown => Err(Error::NotSupported("extended attributes of this kind")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    User,
    Lists,
    Security,
    Trusted,
    Unknown,
}

impl Namespace {
    fn of(name: &[u8]) -> Self {
        match name {
            acl::ACCESS | acl::DEFAULT => Self::Lists,
            _ if name.starts_with(b"user.") => Self::User,
            _ if name.starts_with(b"security.") => Self::Security,
            _ if name.starts_with(b"trusted.") => Self::Trusted,
            _ => Self::Unknown,
        }
    }
}

fn can_have_user_xattrs(inode: &Inode) -> bool {
    matches!(inode.kind, FileKind::Regular | FileKind::Directory)
}
