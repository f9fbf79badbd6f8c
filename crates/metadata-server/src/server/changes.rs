//! Changes of names and attributes: checked, done, made durable, and the rights they remove revoked.
//!
//! 1. What is checked is still so when the change is done: names and rights change one at a time.
//! 2. A change is durable when it is answered, and a right that it removes is revoked on the disks.
//! 3. The commit that contains a change contains its answer. A refusal changes nothing and is not kept; it is given when
//!    everything is durable that it may show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use metadata_proto::rpc::{Change, Changed, Delay, Refusal, Reply, SessionId};
use room::acl;
use room::{
    Error, FileKind, FileSystem as _, Inode, InodeNo, NewFile, OperationId, RenameMode, SetAttr,
    SetTime, WriteGrantId,
};

use super::caller::Here;
use super::data::drop_privileges;
use super::files::Found;
use super::incarnation::Incarnation;
use super::leases;
use super::reads::ask_disks;
use super::refusals::{refusal, sync, sync_names};
use super::replies::{self, Outcome};
use super::sources::COPY_MAX;
use super::testing::Point;
use crate::policy::Subject;
use crate::sessions::Session;

/// Who lost what by a change.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A file, and the sessions that may not read it any more.
    readers: Vec<(InodeNo, BTreeSet<SessionId>)>,
    /// Files of which nobody's capability is good any more.
    everybody: Vec<InodeNo>,
    /// Grants to which their sessions may not write any more.
    grants: Vec<(SessionId, WriteGrantId)>,
}

pub(super) fn make(here: &Here, id: &OperationId, change: Change) -> Outcome {
    let (incarnation, _) = here;
    if incarnation.fails_at(Point::Received) {
        return Outcome::Void(Delay::Reopening);
    }
    let mut losses = Losses::default();
    let durable = durability(&change);
    // Until it is made: the change itself may have to wait for disks afterwards.
    let leases = leases::hold(here, &change);
    let applied = apply(here, id, change, leases.is_some(), &mut losses);
    drop(leases);
    if incarnation.fails_at(Point::Applied) {
        return Outcome::Void(Delay::Reopening);
    }
    let applied = match applied.map_err(refusal) {
        // Nothing is shown, so nothing has to be durable.
        Err(Refusal::NotNow(why)) => return Outcome::Void(why),
        applied => applied,
    };
    match (applied, durable(incarnation)) {
        // What it shows may be gone with the storage that failed.
        (_, Err(Refusal::NotNow(why))) => Outcome::Void(why),
        (Err(refused), _) => Outcome::Answered(Err(refused)),
        // It stays pending, and is made durable when there is space.
        (Ok(_), Err(refused)) => Outcome::Answered(Err(refused)),
        (Ok(changed), Ok(())) => {
            if incarnation.fails_at(Point::Committed) {
                return Outcome::Void(Delay::Reopening);
            }
            match losses.revoke(incarnation) {
                Ok(()) => Outcome::Answered(Ok(changed)),
                Err(_) => Outcome::Revoking(changed, Arc::new(losses)),
            }
        }
    }
}

/// What makes a change durable. A new file needs nothing of what others wrote to theirs; a name that is moved or removed comes
/// after the data that was committed before it.
fn durability(change: &Change) -> fn(&Incarnation) -> Reply<()> {
    match change {
        Change::Make { .. } | Change::Create { .. } => sync_names,
        _ => sync,
    }
}

/// Whether the answer to a change of an earlier incarnation may be sent: every disk has a fresh group of capabilities
/// then, so the removed rights are gone.
pub(super) fn is_settled(incarnation: &Incarnation, change: &Change) -> bool {
    match change {
        Change::Make { .. }
        | Change::Create { .. }
        | Change::CreateTmpfile { .. }
        | Change::Link { .. }
        | Change::Rmdir { .. }
        | Change::CopyRange { .. } => true,
        Change::Unlink { .. }
        | Change::Rename { .. }
        | Change::SetAttributes { .. }
        | Change::SetXattr { .. }
        | Change::RemoveXattr { .. }
        | Change::Fallocate { .. } => incarnation.authority.is_ready(),
    }
}

/// Whether it can change who may do what to an inode.
pub(super) fn changes_rights(set: &SetAttr) -> bool {
    set.mode.is_some() || set.uid.is_some() || set.gid.is_some()
}

/// Refuses what no kernel sends and no catalog may hold.
fn check_new(new: &NewFile) -> room::Result<()> {
    let is_link = new.kind == FileKind::Symlink;
    if is_link == new.target.is_empty() || new.target.contains(&0) {
        return Err(Error::InvalidArgument(
            "a link has a target, and nothing else has",
        ));
    }
    check_owner(Some(new.uid), Some(new.gid))
}

fn check_owner(uid: Option<u32>, gid: Option<u32>) -> room::Result<()> {
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Error::InvalidArgument("not a number of a user or group"));
    }
    Ok(())
}

fn check_set(set: &SetAttr) -> room::Result<()> {
    let given = |time: Option<SetTime>| match time {
        Some(SetTime::At(at)) => Some(at),
        _ => None,
    };
    let times = [given(set.atime), given(set.mtime), set.ctime, set.btime];
    if times.into_iter().flatten().any(|t| t.nanos > 999_999_999) {
        return Err(Error::InvalidArgument("a second has 999999999 nanoseconds"));
    }
    check_owner(set.uid, set.gid)
}

fn inode(inode: Inode) -> Changed {
    Changed::Inode(Box::new(inode))
}

/// Notes where a file has a name.
fn see(incarnation: &Incarnation, changed: &Changed, directory: InodeNo) {
    if let Changed::Inode(inode) = changed {
        incarnation.paths.seen(inode, directory);
    }
}

/// Does a short change and keeps its answer.
fn answering(
    incarnation: &Incarnation,
    id: &OperationId,
    change: impl Fn() -> room::Result<Changed>,
) -> room::Result<Changed> {
    incarnation.room.answering(id, change, replies::encode)
}

fn apply(
    here: &Here,
    id: &OperationId,
    change: Change,
    leases_held: bool,
    losses: &mut Losses,
) -> room::Result<Changed> {
    let (incarnation, session) = here;
    let (room, subject) = (&incarnation.room, &session.subject);
    let done = |()| Changed::Done;
    ask_disks(incarnation, &change)?;
    match change {
        Change::Make { parent, name, new } => {
            let _rights = incarnation.rights.write();
            make_file(here, id, parent, &name, new)
        }
        Change::Create {
            parent,
            name,
            new,
            access,
        } => {
            if new.kind != FileKind::Regular {
                return Err(Error::InvalidArgument("a file that is created is regular"));
            }
            let _rights = incarnation.rights.write();
            let made = make_file(here, id, parent, &name, new)?;
            // The answer that is kept is that of its creation: opens end with their session.
            Ok(match made {
                Changed::Inode(inode) if super::files::open_new(here, inode.no, access).is_ok() => {
                    let seen = incarnation.handles.out(inode.no);
                    incarnation.audit.opened(session, seen, access);
                    let directory = room.attributes(parent);
                    let changed = directory.map_or(inode.ctime, |directory| directory.ctime);
                    Changed::Opened(inode, session.id, changed)
                }
                made => made,
            })
        }
        Change::CreateTmpfile { parent, mut new } => {
            check_new(&new)?;
            let _rights = incarnation.rights.write();
            subject.make(incarnation.reach(session, parent)?.object(), &mut new)?;
            // Its answer is not kept: it goes with the session that holds it, and nobody can find it.
            let made = room.create_tmpfile(parent, &new)?;
            if session.open(made.no, || {}).is_err() {
                room.release(made.no, 1);
                return Err(Error::Stale);
            }
            let access = room::Access::READ_WRITE;
            let seen = incarnation.handles.out(made.no);
            incarnation.audit.opened(session, seen, access);
            Ok(inode(made))
        }
        Change::Link { no, parent, name } => {
            let _rights = incarnation.rights.write();
            let (file, directory) = (
                incarnation.reach(session, no)?,
                incarnation.reach(session, parent)?,
            );
            subject.link(file.object(), directory.object())?;
            let changed = answering(incarnation, id, || room.link(no, parent, &name).map(inode))?;
            see(incarnation, &changed, parent);
            Ok(changed)
        }
        Change::Unlink { parent, name } => {
            let _rights = incarnation.rights.write();
            let directory = incarnation.reach(session, parent)?;
            subject.search(directory.object())?;
            let gone = room.lookup(parent, &name)?;
            subject.remove(directory.object(), &gone)?;
            let changed = answering(incarnation, id, || room.unlink(parent, &name).map(done))?;
            incarnation.removed(session, &gone, parent);
            incarnation.paths.name_gone(&gone, parent);
            losses.name_gone(incarnation, &gone);
            Ok(changed)
        }
        Change::Rmdir { parent, name } => {
            let _rights = incarnation.rights.write();
            let directory = incarnation.reach(session, parent)?;
            subject.search(directory.object())?;
            let gone = room.lookup(parent, &name)?;
            subject.remove(directory.object(), &gone)?;
            let changed = answering(incarnation, id, || room.rmdir(parent, &name).map(done))?;
            incarnation.removed(session, &gone, parent);
            Ok(changed)
        }
        Change::Rename {
            parent,
            name,
            new_parent,
            new_name,
            mode,
        } => {
            let _rights = incarnation.rights.write();
            let (from, to) = (
                incarnation.reach(session, parent)?,
                incarnation.reach(session, new_parent)?,
            );
            subject.search(from.object())?;
            subject.search(to.object())?;
            let moved = incarnation.with_list(room.lookup(parent, &name)?)?;
            let target = match room.lookup(new_parent, &new_name) {
                Ok(target) => Some(incarnation.with_list(target)?),
                Err(Error::NotFound) => None,
                Err(e) => return Err(e),
            };
            let same = |target: &Found| target.inode.no == moved.inode.no;
            if mode != RenameMode::NoReplace && target.as_ref().is_some_and(same) {
                // Nothing to do, and so nothing to forbid.
                return Ok(Changed::Done);
            }
            let moves_directory = [Some(&moved), target.as_ref()]
                .into_iter()
                .flatten()
                .any(|found| found.inode.kind == FileKind::Directory);
            if moves_directory && !leases_held {
                // Another took the place of a file just now: the client asks again.
                return Err(Error::Io(std::io::ErrorKind::NotConnected.into()));
            }
            let elsewhere = parent != new_parent;
            subject.displace(from.object(), moved.object(), elsewhere)?;
            match &target {
                None => subject.enter(to.object())?,
                Some(target) => {
                    let swapped = elsewhere && mode == RenameMode::Exchange;
                    subject.displace(to.object(), target.object(), swapped)?;
                }
            }
            let rename = || room.rename(parent, &name, new_parent, &new_name, mode);
            let changed = answering(incarnation, id, || rename().map(done))?;
            if elsewhere {
                incarnation.moved(session, &moved.inode, parent, new_parent);
            }
            incarnation.paths.name_gone(&moved.inode, parent);
            incarnation.paths.seen(&moved.inode, new_parent);
            if let Some(target) = &target {
                incarnation.paths.name_gone(&target.inode, new_parent);
                match mode {
                    RenameMode::Exchange => {
                        if elsewhere {
                            incarnation.moved(session, &target.inode, new_parent, parent);
                        }
                        incarnation.paths.seen(&target.inode, parent);
                    }
                    _ => incarnation.removed(session, &target.inode, new_parent),
                }
            }
            if let Some(target) = target
                && mode == RenameMode::Replace
            {
                losses.name_gone(incarnation, &target.inode);
            }
            Ok(changed)
        }
        Change::SetAttributes { no, set } => set_attributes(here, id, no, set, losses),
        Change::SetXattr {
            no,
            name,
            value,
            mode,
            drop_setgid,
        } => {
            let _rights = incarnation.rights.write();
            let found = incarnation.reach(session, no)?;
            let drop_setgid = subject.write_xattr(found.object(), &name)? || drop_setgid;
            let set = || room.set_xattr(no, &name, &value, mode, drop_setgid);
            let changed = answering(incarnation, id, || set().map(done))?;
            incarnation.list_changed(session, no, &name);
            if name == acl::ACCESS {
                losses.rights_changed(incarnation, &incarnation.find(no)?);
            }
            Ok(changed)
        }
        Change::RemoveXattr { no, name } => {
            let _rights = incarnation.rights.write();
            let found = incarnation.reach(session, no)?;
            subject.write_xattr(found.object(), &name)?;
            let changed = answering(incarnation, id, || room.remove_xattr(no, &name).map(done))?;
            incarnation.list_changed(session, no, &name);
            if name == acl::ACCESS {
                losses.rights_changed(incarnation, &incarnation.find(no)?);
            }
            Ok(changed)
        }
        Change::Fallocate {
            no,
            what,
            offset,
            len,
        } => {
            let _rights = incarnation.rights.read();
            let found = incarnation.reach(session, no)?;
            subject.write(found.object())?;
            drop_privileges(incarnation, subject, &found)?;
            let changed = answering(incarnation, id, || {
                room.fallocate(no, what, offset, len).map(done)
            })?;
            if !matches!(what, room::Fallocate::Allocate { .. }) {
                losses.everybody.push(no);
            }
            Ok(changed)
        }
        Change::CopyRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => {
            let allowed = || {
                subject.read(incarnation.reach(session, from)?.object())?;
                let target = incarnation.reach(session, to)?;
                subject.write(target.object())?;
                Ok::<_, Error>(target)
            };
            {
                let _rights = incarnation.rights.read();
                allowed()?;
            }
            // Units that were written under a grant are about to be shared: nobody may write there any more.
            let _source = incarnation.sources.begin(from);
            // Too long for one commit. A copy that a crash cut off is made once more.
            let len = match from_offset < room.attributes(from)?.size {
                true => len.min(COPY_MAX),
                false => 0,
            };
            // Waits for disks: nobody's names wait for that.
            if len > 0 {
                let all = incarnation.sessions.all();
                let grants = all.iter().flat_map(|session| {
                    let of_file = session.grants_of(from).into_iter();
                    of_file.map(|grant| (session.id, grant))
                });
                let grants: Vec<_> = grants.collect();
                let deadline = incarnation.authority.revocation_deadline();
                let earlier = match incarnation.authority.is_new(from) {
                    // Blocks that it shares with an older file were settled when they were shared.
                    true => Ok(()),
                    false => incarnation.authority.outlast_earlier(deadline),
                };
                let ended = earlier.and_then(|()| end_grants(incarnation, &grants, deadline));
                ended.map_err(|_| Error::Io(std::io::ErrorKind::NotConnected.into()))?;
            }
            let _rights = incarnation.rights.read();
            let target = allowed()?;
            drop_privileges(incarnation, subject, &target)?;
            let copied = room.copy_range(from, from_offset, to, to_offset, len)?;
            let changed = Changed::Copied(copied);
            room.keep_answer(id, replies::encode(&changed))?;
            Ok(changed)
        }
    }
}

/// Makes a file of any kind. The caller holds the rights exclusively.
fn make_file(
    (incarnation, session): &Here,
    id: &OperationId,
    parent: InodeNo,
    name: &[u8],
    mut new: NewFile,
) -> room::Result<Changed> {
    check_new(&new)?;
    let directory = incarnation.reach(session, parent)?;
    session.subject.make(directory.object(), &mut new)?;
    let changed = answering(incarnation, id, || {
        incarnation.room.make(parent, name, &new).map(inode)
    })?;
    see(incarnation, &changed, parent);
    Ok(changed)
}

fn set_attributes(
    (incarnation, session): &Here,
    id: &OperationId,
    no: InodeNo,
    mut set: SetAttr,
    losses: &mut Losses,
) -> room::Result<Changed> {
    check_set(&set)?;
    let changes_rights = changes_rights(&set);
    let mut done = |losses: &mut Losses| -> room::Result<Changed> {
        let found = incarnation.reach(session, no)?;
        session.subject.set_attributes(found.object(), &mut set)?;
        let changed = answering(incarnation, id, || {
            incarnation.room.set_attributes(no, &set).map(inode)
        })?;
        if let Changed::Inode(after) = &changed
            && after.size < found.inode.size
        {
            losses.everybody.push(no);
        }
        if changes_rights {
            if let Changed::Inode(after) = &changed {
                incarnation.rights_changed(session, &found.inode, after);
            }
            losses.rights_changed(incarnation, &incarnation.find(no)?);
        }
        Ok(changed)
    };
    // Cutting a file may read from its disk, which was asked before: nobody else's names wait for one that is away.
    if changes_rights {
        let _rights = incarnation.rights.write();
        done(losses)
    } else {
        let _rights = incarnation.rights.read();
        done(losses)
    }
}

impl Losses {
    /// How many files lost readers.
    pub(super) fn files(&self) -> usize {
        self.readers.len()
    }

    /// A name of this inode is gone. Where it was the last one, sessions with the file open keep their rights until they end.
    pub(super) fn name_gone(&mut self, incarnation: &Incarnation, inode: &Inode) {
        let left = match incarnation.room.attributes(inode.no) {
            Ok(after) => after.nlink > 0,
            Err(_) => false,
        };
        if inode.kind != FileKind::Regular || left {
            return;
        }
        let all = incarnation.sessions.all();
        let lost = all.iter().filter(|s| s.is_over() || !s.has_open(inode.no));
        let lost = lost.map(|s| s.id).collect();
        self.readers.push((inode.no, lost));
    }

    /// Who may read or write has changed to what `found` says.
    fn rights_changed(&mut self, incarnation: &Incarnation, found: &Found) {
        incarnation.paths.rights_changed(&found.inode);
        if found.inode.kind != FileKind::Regular {
            return;
        }
        let no = found.inode.no;
        let denied = |subject: &Subject| subject.read(found.object()).is_err();
        let all = incarnation.sessions.all();
        let readers: BTreeSet<SessionId> = all
            .iter()
            .filter(|s| denied(&s.subject))
            .map(|s| s.id)
            .collect();
        // Also with nobody: one who had a session at an earlier server may have lost it.
        self.readers.push((no, readers));
        let writers = all
            .iter()
            .filter(|s| s.subject.write(found.object()).is_err());
        for session in writers {
            let grants = session.grants_of(no).into_iter();
            self.grants.extend(grants.map(|grant| (session.id, grant)));
        }
    }

    /// Revokes what was lost, waiting for the disks; where one does not answer, to be called again.
    pub(super) fn revoke(&self, incarnation: &Incarnation) -> Reply<()> {
        self.revoke_by(incarnation, incarnation.authority.revocation_deadline())
    }

    /// The same until a moment.
    pub(super) fn revoke_by(&self, incarnation: &Incarnation, deadline: Instant) -> Reply<()> {
        let mut outcome = Ok(());
        for no in &self.everybody {
            outcome = outcome.and(incarnation.authority.revoke_file(*no, |_| true, deadline));
        }
        for (no, sessions) in &self.readers {
            let loses = |session| sessions.contains(&session);
            outcome = outcome.and(incarnation.authority.revoke_file(*no, loses, deadline));
        }
        outcome.and(end_grants(incarnation, &self.grants, deadline))
    }
}

/// Revokes grants of sessions on the disks; then nothing of them is taken any more.
pub(super) fn end_grants(
    incarnation: &Incarnation,
    grants: &[(SessionId, WriteGrantId)],
    deadline: Instant,
) -> Reply<()> {
    if grants.is_empty() {
        return Ok(());
    }
    let all: Vec<WriteGrantId> = grants.iter().map(|(_, grant)| *grant).collect();
    incarnation.authority.revoke_grants(&all, deadline)?;
    for (session, grant) in grants {
        let session = incarnation.sessions.get(*session);
        if session.is_some_and(|s: Arc<Session>| s.release_grant(*grant).is_some()) {
            incarnation.room.settle_grant(*grant);
        }
    }
    Ok(())
}
