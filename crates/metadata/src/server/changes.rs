//! Changes of names and attributes: checked, done, made durable, and the rights they take away revoked.
//!
//! 1. What is checked is still so when the change is done: names and rights change one at a time.
//! 2. A change is durable when it is answered, and whoever lost a right by it has lost it on the disks.

use std::collections::BTreeSet;
use std::time::Instant;

use room::acl;
use room::{Error, FileKind, Inode, InodeNo, LoanId, NewFile, RenameMode, SetAttr, SetTime};

use super::calls::{Here, refusal, sync};
use super::data::drop_privileges;
use super::files::Found;
use super::life::Life;
use crate::authority::REVOCATION_WAIT;
use crate::policy::Subject;
use crate::rpc::{Change, Changed, Reply, SessionId};
use crate::sessions::Session;

/// Who lost what by a change.
#[derive(Debug, Default)]
struct Losses {
    /// A file, and the sessions that may not read it any more.
    readers: Vec<(InodeNo, BTreeSet<SessionId>)>,
    /// Files of which nobody's capability is good any more.
    everybody: Vec<InodeNo>,
    /// Loans to which their sessions may not write any more.
    loans: Vec<(SessionId, LoanId)>,
}

pub(super) fn make(here: &Here, change: Change) -> Reply<Changed> {
    let (life, _) = here;
    let mut losses = Losses::default();
    let changed = apply(here, change, &mut losses).map_err(refusal)?;
    sync(life)?;
    losses.revoke(life)?;
    Ok(changed)
}

/// Longest copy in one call, in bytes: a thread is bound for as long.
const COPY_MAX: u64 = 1 << 30;

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

fn apply(here: &Here, change: Change, losses: &mut Losses) -> room::Result<Changed> {
    let (life, session) = here;
    let (room, subject) = (&life.room, &session.subject);
    match change {
        Change::Make {
            parent,
            name,
            mut new,
        } => {
            check_new(&new)?;
            let _rights = life.rights.write();
            subject.make(life.find(parent)?.object(), &mut new)?;
            room.make(parent, &name, &new).map(inode)
        }
        Change::MakeUnnamed { parent, mut new } => {
            check_new(&new)?;
            let _rights = life.rights.write();
            subject.make(life.find(parent)?.object(), &mut new)?;
            let made = room.make_unnamed(parent, &new)?;
            if session.open(made.no, || {}).is_err() {
                room.release(made.no, 1);
                return Err(Error::Stale);
            }
            Ok(inode(made))
        }
        Change::Link { no, parent, name } => {
            let _rights = life.rights.write();
            subject.link(life.find(no)?.object(), life.find(parent)?.object())?;
            room.link(no, parent, &name).map(inode)
        }
        Change::Unlink { parent, name } => {
            let _rights = life.rights.write();
            let directory = life.find(parent)?;
            subject.search(directory.object())?;
            let gone = room.lookup(parent, &name)?;
            subject.remove(directory.object(), &gone)?;
            room.unlink(parent, &name)?;
            losses.name_gone(life, &gone);
            Ok(Changed::Done)
        }
        Change::Rmdir { parent, name } => {
            let _rights = life.rights.write();
            let directory = life.find(parent)?;
            subject.search(directory.object())?;
            let gone = room.lookup(parent, &name)?;
            subject.remove(directory.object(), &gone)?;
            room.rmdir(parent, &name)?;
            Ok(Changed::Done)
        }
        Change::Rename {
            parent,
            name,
            new_parent,
            new_name,
            mode,
        } => {
            let _rights = life.rights.write();
            let (from, to) = (life.find(parent)?, life.find(new_parent)?);
            subject.search(from.object())?;
            subject.search(to.object())?;
            let moved = life.with_list(room.lookup(parent, &name)?)?;
            let target = match room.lookup(new_parent, &new_name) {
                Ok(target) => Some(life.with_list(target)?),
                Err(Error::NotFound) => None,
                Err(e) => return Err(e),
            };
            let same = |target: &Found| target.inode.no == moved.inode.no;
            if mode != RenameMode::NoReplace && target.as_ref().is_some_and(same) {
                // Nothing to do, and so nothing to forbid.
                return Ok(Changed::Done);
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
            room.rename(parent, &name, new_parent, &new_name, mode)?;
            if let Some(target) = target
                && mode == RenameMode::Replace
            {
                losses.name_gone(life, &target.inode);
            }
            Ok(Changed::Done)
        }
        Change::SetAttributes { no, set } => set_attributes(here, no, set, losses).map(inode),
        Change::SetXattr {
            no,
            name,
            value,
            mode,
            drop_setgid,
        } => {
            let _rights = life.rights.write();
            let found = life.find(no)?;
            let drop_setgid = subject.write_xattr(found.object(), &name)? || drop_setgid;
            room.set_xattr(no, &name, &value, mode, drop_setgid)?;
            if name == acl::ACCESS {
                losses.rights_changed(life, &life.find(no)?);
            }
            Ok(Changed::Done)
        }
        Change::RemoveXattr { no, name } => {
            let _rights = life.rights.write();
            let found = life.find(no)?;
            subject.write_xattr(found.object(), &name)?;
            room.remove_xattr(no, &name)?;
            if name == acl::ACCESS {
                losses.rights_changed(life, &life.find(no)?);
            }
            Ok(Changed::Done)
        }
        Change::Fallocate {
            no,
            what,
            offset,
            len,
        } => {
            let _rights = life.rights.read();
            let found = life.find(no)?;
            subject.write(found.object())?;
            drop_privileges(life, subject, &found)?;
            room.fallocate(no, what, offset, len)?;
            if !matches!(what, room::Fallocate::Allocate { .. }) {
                losses.everybody.push(no);
            }
            Ok(Changed::Done)
        }
        Change::CopyRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => {
            let _rights = life.rights.read();
            subject.read(life.find(from)?.object())?;
            let target = life.find(to)?;
            subject.write(target.object())?;
            drop_privileges(life, subject, &target)?;
            room.copy_range(from, from_offset, to, to_offset, len.min(COPY_MAX))
                .map(Changed::Copied)
        }
    }
}

fn set_attributes(
    (life, session): &Here,
    no: InodeNo,
    mut set: SetAttr,
    losses: &mut Losses,
) -> room::Result<Inode> {
    check_set(&set)?;
    let changes_rights = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    let mut done = |losses: &mut Losses| -> room::Result<Inode> {
        let found = life.find(no)?;
        session.subject.set_attributes(found.object(), &mut set)?;
        let after = life.room.set_attributes(no, &set)?;
        if after.size < found.inode.size {
            losses.everybody.push(no);
        }
        if changes_rights {
            losses.rights_changed(life, &life.find(no)?);
        }
        Ok(after)
    };
    // Cutting a file may read from its disk: nobody else's names wait for that.
    if changes_rights {
        let _rights = life.rights.write();
        done(losses)
    } else {
        let _rights = life.rights.read();
        done(losses)
    }
}

impl Losses {
    /// A name of this inode is gone. Where it was the last one, those who have the file open keep what they have.
    fn name_gone(&mut self, life: &Life, inode: &Inode) {
        let left = match life.room.attributes(inode.no) {
            Ok(after) => after.nlink > 0,
            Err(_) => false,
        };
        if inode.kind != FileKind::Regular || left {
            return;
        }
        let alive = life.sessions.alive();
        let lost = alive.iter().filter(|s| !s.has_open(inode.no));
        let lost = lost.map(|s| s.id).collect();
        self.readers.push((inode.no, lost));
    }

    /// Who may read or write has changed to what `found` says.
    fn rights_changed(&mut self, life: &Life, found: &Found) {
        if found.inode.kind != FileKind::Regular {
            return;
        }
        let no = found.inode.no;
        let denied = |subject: &Subject| subject.read(found.object()).is_err();
        let alive = life.sessions.alive();
        let readers: BTreeSet<SessionId> = alive
            .iter()
            .filter(|s| denied(&s.subject))
            .map(|s| s.id)
            .collect();
        if !readers.is_empty() {
            self.readers.push((no, readers));
        }
        let writers = alive
            .iter()
            .filter(|s| s.subject.write(found.object()).is_err());
        for session in writers {
            let loans = session.loans_of(no).into_iter();
            self.loans.extend(loans.map(|loan| (session.id, loan)));
        }
    }

    fn revoke(self, life: &Life) -> Reply<()> {
        let deadline = Instant::now() + REVOCATION_WAIT;
        let mut outcome = Ok(());
        for no in self.everybody {
            outcome = outcome.and(life.authority.revoke_file(no, |_| true, deadline));
        }
        for (no, sessions) in self.readers {
            let loses = |session| sessions.contains(&session);
            outcome = outcome.and(life.authority.revoke_file(no, loses, deadline));
        }
        if self.loans.is_empty() {
            return outcome;
        }
        let loans: Vec<LoanId> = self.loans.iter().map(|(_, loan)| *loan).collect();
        let revoked = life.authority.revoke_loans(&loans, deadline);
        if revoked.is_ok() {
            for (session, loan) in self.loans {
                let session = life.sessions.get(session);
                if session.is_some_and(|s: std::sync::Arc<Session>| s.give_back(loan).is_some()) {
                    life.room.settle_loan(loan);
                }
            }
        }
        outcome.and(revoked)
    }
}
