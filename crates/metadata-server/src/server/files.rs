//! Finding, listing and opening files.

use metadata_proto::rpc::{self, Listing, Opening, Posix, Refusal, Reply};
use room::acl::{self, Acl};
use room::{Access, DirEntry, Error, FileKind, FileSystem, Inode, InodeNo, RoomSpace, Timestamp};

use super::caller::Here;
use super::handles::Handles;
use super::incarnation::Incarnation;
use super::refusals::refusal;
use crate::policy::{EXECUTE, Object};

/// Most names of one listing.
pub(super) const LIST_MAX: usize = 1024;

/// An inode with its access list.
pub(super) struct Found {
    pub(super) inode: Inode,
    list: Option<Acl>,
}

impl Found {
    pub(super) fn object(&self) -> Object<'_> {
        Object {
            inode: &self.inode,
            list: self.list.as_ref(),
        }
    }
}

impl Incarnation {
    pub(super) fn find(&self, no: InodeNo) -> room::Result<Found> {
        let inode = self.room.attributes(no)?;
        self.with_list(inode)
    }

    pub(super) fn with_list(&self, inode: Inode) -> room::Result<Found> {
        with_list(&self.room, inode)
    }
}

/// An inode of these files with its access list.
pub(super) fn with_list(files: &dyn FileSystem, inode: Inode) -> room::Result<Found> {
    let list = match inode.has_xattrs {
        false => None,
        true => match files.xattr(inode.no, acl::ACCESS) {
            Ok(value) => Acl::parse(&value)?,
            Err(Error::NoXattr) => None,
            Err(e) => return Err(e),
        },
    };
    Ok(Found { inode, list })
}

/// The space of the room, as much of it as the user's quota leaves.
pub(super) fn space((server, session): &Here) -> room::Result<RoomSpace> {
    let mut space = server.room.space()?;
    if let Some((used, quota)) = server.room.used_by(session.user.uid)
        && let Some(bytes) = quota.bytes
    {
        let left = bytes.saturating_sub(used.bytes);
        space.total = space.total.min(bytes);
        space.free = space.free.min(left);
        space.available = space.available.min(left);
    }
    Ok(space)
}

pub(super) fn lookup((server, session): &Here, parent: InodeNo, name: &[u8]) -> Reply<rpc::Found> {
    let _rights = server.rights.read();
    let directory = server.reach(session, parent).map_err(refusal)?;
    session
        .subject
        .search(directory.object())
        .map_err(refusal)?;
    let inode = server.room.lookup(parent, name).map_err(refusal)?;
    server.paths.seen(&inode, parent);
    let leased = inode.kind == FileKind::Directory && server.leases.grant(session.id);
    Ok(rpc::Found { inode, leased })
}

pub(super) fn read_dir(
    (server, session): &Here,
    no: InodeNo,
    after: u64,
    limit: u32,
) -> Reply<Listing> {
    let _rights = server.rights.read();
    let directory = server.reach(session, no).map_err(refusal)?;
    session.subject.list(directory.object()).map_err(refusal)?;
    let after = after.min(i64::MAX as u64);
    let limit = usize::try_from(limit).unwrap_or(LIST_MAX).min(LIST_MAX);
    let read = server.room.begin_read_dir(no, after, limit);
    let read = read.map_err(refusal)?;
    let is_veiled = !session.subject.may(directory.object(), EXECUTE);
    let seen = |inode: &Inode| server.paths.seen(inode, no);
    Ok(listing(&server.handles, read, is_veiled, seen))
}

/// A part of a directory as clients get it. `is_veiled`: for who may only list, and learns the names and kinds. Otherwise each inode is `seen`.
pub(super) fn listing(
    handles: &Handles,
    (entries, next): (Vec<(DirEntry, Inode)>, u64),
    is_veiled: bool,
    seen: impl Fn(&Inode),
) -> Listing {
    let reported = entries.into_iter().map(|(entry, inode)| {
        let inode = match is_veiled {
            true => veiled(&inode),
            false => {
                seen(&inode);
                inode
            }
        };
        handles.entry((entry, inode), is_veiled)
    });
    Listing {
        next,
        entries: reported.collect(),
    }
}

fn veiled(inode: &Inode) -> Inode {
    let never = Timestamp::default();
    Inode::new(inode.no, inode.kind, never)
}

pub(super) fn xattr((server, session): &Here, no: InodeNo, name: &[u8]) -> Reply<Vec<u8>> {
    let _rights = server.rights.read();
    let found = server.reach(session, no).map_err(refusal)?;
    session
        .subject
        .read_xattr(found.object(), name)
        .map_err(refusal)?;
    server.room.xattr(no, name).map_err(refusal)
}

pub(super) fn open(here: &Here, opening: Opening, no: InodeNo, access: Access) -> Reply<Inode> {
    let (server, session) = here;
    let _rights = server.rights.read();
    may_open(here, no, access)?;
    let counts = session.open_once(no, opening, || server.room.hold(no))?;
    // It may have lost its last name before it was held.
    server.room.attributes(no).map_err(|e| {
        if counts && let Ok(closed) = session.undo_open(no, opening) {
            server.room.release(no, closed);
        }
        match e {
            Error::NotFound => Refusal::Posix(Posix::NotFound),
            other => refusal(other),
        }
    })
}

/// Opens a file that its creator has made just now. The caller holds the rights exclusively.
pub(super) fn open_new(here: &Here, no: InodeNo, access: Access) -> Reply<()> {
    let (server, session) = here;
    may_open(here, no, access)?;
    session.open(no, || server.room.hold(no))
}

/// The caller holds the rights.
fn may_open((server, session): &Here, no: InodeNo, access: Access) -> Reply<()> {
    let found = server.reach(session, no).map_err(refusal)?;
    if access.read && found.inode.kind == FileKind::Directory {
        session.subject.list(found.object()).map_err(refusal)?;
    } else if access.read {
        session.subject.read(found.object()).map_err(refusal)?;
    }
    if access.write {
        session.subject.write(found.object()).map_err(refusal)?;
        if found.inode.flags.immutable() {
            return Err(Refusal::Posix(Posix::NotPermitted));
        }
    }
    Ok(())
}
