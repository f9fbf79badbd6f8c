//! What clients read of snapshots.
//!
//! 1. Allowed is what the rights of then allow, and those of now: of a file that still exists, and of each directory on its path in the snapshot
//!    that does. A file or directory that was removed has the rights of then.
//! 2. A directory knows its parent in the snapshot. Another file is named by its client with a directory and a name, which are looked up: nothing
//!    is remembered, and so every server answers the same.
//! 3. There are no open files in snapshots: rights count at each call. Capabilities to read are given for the live file's number, and go with the
//!    right to read that, and with the blocks. That a session opened a file is remembered for the audit log alone.

use metadata_proto::rpc::{Past, PastAnswer, PastFile, Posix, Refusal, Reply};
use room::{Access, Error, FileKind, FileSystem, Inode, InodeNo, SeekTo};

use super::caller::Here;
use super::data::{CHUNKS_MAX, described};
use super::files::{Found, LIST_MAX, listing, with_list};
use super::incarnation::Incarnation;
use super::refusals::refusal;
use crate::audit::{About, Seen};
use crate::policy::{Object, Verdict};
use crate::sessions::Session;

/// A file of a snapshot with its rights.
struct Both {
    then: Found,
    /// `None`: it was removed.
    now: Option<Found>,
}

impl Both {
    /// Whether both allow something.
    fn allow(&self, verdict: impl Fn(Object<'_>) -> Verdict) -> room::Result<()> {
        verdict(self.then.object())?;
        self.now.iter().try_for_each(|now| verdict(now.object()))
    }
}

/// A snapshot, as a session may read it.
struct Moment<'a> {
    server: &'a Incarnation,
    session: &'a Session,
    number: u64,
    files: &'a dyn FileSystem,
}

impl Moment<'_> {
    fn both(&self, then: Inode) -> room::Result<Both> {
        let now = match self.server.find(then.no) {
            Ok(now) => Some(now),
            Err(Error::NotFound) => None,
            Err(e) => return Err(e),
        };
        let then = with_list(self.files, then)?;
        Ok(Both { then, now })
    }

    /// A directory by its number, which the session may reach.
    fn directory(&self, no: InodeNo) -> room::Result<Both> {
        let both = self.both(self.files.attributes(no)?)?;
        if both.then.inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if no != InodeNo::ROOT {
            self.searchable(both.then.inode.parent)?;
        }
        Ok(both)
    }

    /// A file that the session may reach.
    fn file(&self, file: &PastFile) -> room::Result<Both> {
        let inode = self.files.attributes(file.no)?;
        if inode.kind == FileKind::Directory {
            return self.directory(file.no);
        }
        if !self.session.subject.is_root() {
            let (parent, name) = file.named.as_ref().ok_or(Error::Stale)?;
            self.searchable(*parent)?;
            if self.files.lookup(*parent, name)?.no != file.no {
                return Err(Error::Stale);
            }
        }
        self.both(inode)
    }

    /// Whether the session's user may search a directory and every one above it: those of then, and those that are above it now.
    fn searchable(&self, no: InodeNo) -> room::Result<()> {
        let subject = &self.session.subject;
        if subject.is_root() {
            return Ok(());
        }
        let mut at = no;
        loop {
            let then = with_list(self.files, self.files.attributes(at)?)?;
            subject.search(then.object())?;
            match self.server.searchable(self.session, at) {
                // It was removed.
                Err(Error::NotFound) => {}
                now => now?,
            }
            if at == InodeNo::ROOT {
                return Ok(());
            }
            at = then.inode.parent;
        }
    }

    fn lookup(&self, parent: InodeNo, name: &[u8]) -> room::Result<Inode> {
        self.searchable(parent)?;
        self.files.lookup(parent, name)
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: u32) -> room::Result<PastAnswer> {
        let subject = &self.session.subject;
        let directory = self.directory(no)?;
        directory.allow(|directory| subject.list(directory))?;
        let after = after.min(i64::MAX as u64);
        let limit = usize::try_from(limit).unwrap_or(LIST_MAX).min(LIST_MAX);
        let read = self.files.begin_read_dir(no, after, limit)?;
        let is_veiled = directory
            .allow(|directory| subject.search(directory))
            .is_err();
        let listing = listing(&self.server.handles, read, is_veiled, |_| {});
        Ok(PastAnswer::Listing(listing))
    }

    fn readable(&self, file: &PastFile) -> room::Result<Both> {
        let both = self.file(file)?;
        let subject = &self.session.subject;
        match both.then.inode.kind {
            FileKind::Directory => both.allow(|directory| subject.list(directory))?,
            _ => both.allow(|file| subject.read(file))?,
        }
        Ok(both)
    }
}

/// The file that a call names first.
pub(super) fn about(what: &Past) -> About {
    About::of(match what {
        Past::Lookup { parent: no, .. } | Past::ReadDir { no, .. } => *no,
        Past::Attributes(file)
        | Past::Open(file)
        | Past::Xattr(file, _)
        | Past::XattrNames(file)
        | Past::Map { file, .. }
        | Past::Seek { file, .. } => file.no,
    })
}

pub(super) fn read(here: &Here, number: u64, what: Past) -> Reply<PastAnswer> {
    let (server, session) = here;
    let files = server.room.snapshot_of_number(number).map_err(refusal)?;
    let _rights = server.rights.read();
    let moment = Moment {
        server,
        session,
        number,
        files: &*files,
    };
    let of_room = |no: InodeNo| server.handles.room_number(no);
    let file_of_room = |file: PastFile| PastFile {
        no: of_room(file.no),
        named: file.named.map(|(parent, name)| (of_room(parent), name)),
    };
    let inode = |inode| PastAnswer::Inode(Box::new(server.handles.inode(inode)));
    let answer = match what {
        Past::Lookup { parent, name } => moment.lookup(of_room(parent), &name).map(inode),
        Past::Attributes(file) => moment
            .file(&file_of_room(file))
            .map(|found| inode(found.then.inode)),
        Past::Open(file) => {
            server.audit.ready()?;
            let (seen, file) = (file.no, file_of_room(file));
            moment.readable(&file).map(|found| {
                session.opened_past(number, file.no);
                server.audit.opened(session, seen, Access::READ);
                inode(found.then.inode)
            })
        }
        Past::ReadDir { no, after, limit } => moment.read_dir(of_room(no), after, limit),
        Past::Xattr(file, name) => {
            let file = file_of_room(file);
            moment.file(&file).and_then(|found| {
                found.allow(|file| session.subject.read_xattr(file, &name))?;
                files.xattr(file.no, &name).map(PastAnswer::Value)
            })
        }
        Past::XattrNames(file) => {
            let file = file_of_room(file);
            moment.file(&file).and_then(|_| {
                let mut names = files.xattr_names(file.no)?;
                names.retain(|name| session.subject.sees_xattr(name));
                Ok(PastAnswer::Names(names))
            })
        }
        Past::Map { file, first, count } => {
            let (client, file) = (file.no, file_of_room(file));
            if !session.has_opened_past(number, file.no) {
                let room = file.no;
                server.audit.reaches(session, Seen { room, client }, "r")?;
            }
            return map(&moment, &file, first, count);
        }
        Past::Seek { file, offset, hole } => {
            let (file, to) = (
                file_of_room(file),
                if hole { SeekTo::Hole } else { SeekTo::Data },
            );
            moment
                .readable(&file)
                .and_then(|_| files.seek(file.no, offset, to).map(PastAnswer::Offset))
        }
    };
    answer.map_err(refusal)
}

fn map(moment: &Moment<'_>, file: &PastFile, first: u64, count: u32) -> Reply<PastAnswer> {
    if !(1..=CHUNKS_MAX).contains(&count) {
        return Err(Refusal::Posix(Posix::InvalidArgument));
    }
    let (server, session) = (moment.server, moment.session);
    let _reporting = server.authority.reporting();
    let found = moment.readable(file).map_err(refusal)?;
    let maps = server
        .room
        .past_maps(moment.number, file.no, first, count as usize);
    let inode = server.handles.inode(found.then.inode);
    let map = described(server, session, file.no, inode, maps.map_err(refusal)?)?;
    Ok(PastAnswer::Map(Box::new(map)))
}
