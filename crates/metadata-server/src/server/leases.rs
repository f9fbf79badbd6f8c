//! Leases of directories: for [`DIRECTORY_AGE`] after a client asked for a name that leads to a directory, it may take it that the name still does,
//! and that its user may search the way there.
//!
//! 1. What moves or removes a directory, or changes the rights of one, waits for the end of the leases of all other sessions. The client
//!    whose session does it ends its own before it asks.
//! 2. While one waits or is made, no lease is granted, and for [`PAUSE`] after one had to wait: of many, the first waits.
//! 3. A server takes it that the one before it granted leases until it ended.
//!
//! A client counts from before it asks and this server from later on, each by its own clock: no clocks are compared.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Change, DIRECTORY_AGE, SessionId};
use parking_lot::Mutex;
use room::{FileKind, FileSystem as _, InodeNo, acl};

use super::caller::Here;
use super::changes::changes_rights;

/// For how long no lease is granted after a change had to wait for one.
const PAUSE: Duration = Duration::from_secs(1);
/// Sessions noted, more than there can be at once, at which those without a lease are forgotten.
const SWEPT_AT: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Leases(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When the last lease of a session ends.
    ends: HashMap<SessionId, Instant>,
    /// When those of the server before have ended.
    former_end: Instant,
    /// Changes that wait or are being made.
    held: usize,
    not_before: Instant,
}

impl State {
    fn grant(&mut self, session: SessionId, now: Instant) -> bool {
        let grants = self.held == 0 && now >= self.not_before;
        if grants {
            if self.ends.len() >= SWEPT_AT {
                self.ends.retain(|_, end| *end > now);
            }
            self.ends.insert(session, now + DIRECTORY_AGE);
        }
        grants
    }

    /// For how long the caller has to wait; none is granted until then and beyond.
    fn hold(&mut self, own: Option<SessionId>, now: Instant) -> Duration {
        self.held += 1;
        self.ends.retain(|_, end| *end > now);
        let others = self.ends.iter().filter(|(of, _)| Some(**of) != own);
        let end = others
            .map(|(_, end)| *end)
            .fold(self.former_end, Instant::max);
        end.saturating_duration_since(now)
    }

    fn let_go(&mut self, has_waited: bool, now: Instant) {
        self.held -= 1;
        if has_waited {
            self.not_before = now + PAUSE;
        }
    }
}

/// No lease but those of one session is good, and none is granted, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'l> {
    leases: &'l Leases,
    has_waited: bool,
}

impl Leases {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(State {
            ends: HashMap::new(),
            former_end: now + DIRECTORY_AGE,
            held: 0,
            not_before: now,
        }))
    }

    /// Grants one, if it can be. The caller holds the rights shared since before it looked at what the lease is for.
    pub(super) fn grant(&self, session: SessionId) -> bool {
        self.0.lock().grant(session, Instant::now())
    }

    /// Waits until no session but `own` has a lease. Nothing may be locked that others wait for.
    pub(super) fn hold(&self, own: Option<SessionId>) -> Held<'_> {
        let now = Instant::now();
        let left = self.0.lock().hold(own, now);
        std::thread::sleep(left);
        Held {
            leases: self,
            has_waited: !left.is_zero(),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.leases.0.lock();
        state.let_go(self.has_waited, Instant::now());
    }
}

/// Waits for the end of the leases that a change contradicts: it moves or removes a directory, or changes the rights of one.
pub(super) fn hold<'i>(here: &'i Here, change: &Change) -> Option<Held<'i>> {
    let (server, session) = here;
    // Of an inode that never changes.
    let is_directory = |no: InodeNo| {
        let inode = server.room.attributes(no);
        inode.is_ok_and(|inode| inode.kind == FileKind::Directory)
    };
    // Nobody finds out by a wait what is behind a name that only others may look up. What it leads to when the change is made is looked at again.
    let leads_to_directory = |parent: InodeNo, name: &[u8]| {
        let parent = server.reach(session, parent);
        parent.is_ok_and(|parent| {
            session.subject.search(parent.object()).is_ok()
                && server
                    .room
                    .lookup(parent.inode.no, name)
                    .is_ok_and(|inode| inode.kind == FileKind::Directory)
        })
    };
    let rights = server.rights.read();
    let contradicts = match change {
        Change::Rmdir { .. } => true,
        Change::Rename {
            parent,
            name,
            new_parent,
            new_name,
            ..
        } => leads_to_directory(*parent, name) || leads_to_directory(*new_parent, new_name),
        Change::SetAttributes { no, set } => changes_rights(set) && is_directory(*no),
        Change::SetXattr { no, name, .. } | Change::RemoveXattr { no, name } => {
            *name == acl::ACCESS && is_directory(*no)
        }
        Change::Make { .. }
        | Change::Create { .. }
        | Change::CreateTmpfile { .. }
        | Change::Link { .. }
        | Change::Unlink { .. }
        | Change::Fallocate { .. }
        | Change::CopyRange { .. } => false,
    };
    drop(rights);
    contradicts.then(|| server.leases.hold(Some(session.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    #[test]
    fn a_change_waits_for_the_leases_of_others_and_the_next_one_does_not() {
        let leases = Leases::new();
        let mut state = leases.0.lock();
        let start = state.former_end;
        let at = |ms| start + Duration::from_millis(ms);
        assert!(state.grant(ONE, start));
        assert_eq!(state.hold(Some(ONE), at(10)), Duration::ZERO);
        assert!(!state.grant(OTHER, at(10)), "while a change is made");
        let left = state.hold(Some(OTHER), at(20));
        assert_eq!(left, DIRECTORY_AGE - Duration::from_millis(20));
        state.let_go(false, at(30));
        assert!(!state.grant(OTHER, at(30)), "while another waits");
        state.let_go(true, at(60));
        assert!(!state.grant(ONE, at(60) + PAUSE / 2));
        assert_eq!(state.hold(None, at(60) + PAUSE / 2), Duration::ZERO);
        state.let_go(false, at(60) + PAUSE / 2);
        assert!(state.grant(ONE, at(60) + PAUSE), "once in a while only");
    }

    #[test]
    fn a_server_waits_for_the_leases_of_the_one_before() {
        let begun = Instant::now();
        drop(Leases::new().hold(Some(ONE)));
        assert!(begun.elapsed() >= DIRECTORY_AGE);
    }
}
