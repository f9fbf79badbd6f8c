//! The grace period: after a start of the server, those who held locks claim them again before anybody gets a new one, as in NFSv4
//! (RFC 8881, section 8.4.2).
//!
//! 1. A session gets its first lock after the room durably lists it as a holder.
//! 2. A session that ends before the server does is off the list, durably, before its locks are free. So a session that is on the list
//!    when a server starts had its locks until the server before ended.
//! 3. Until each of these has claimed, or the period is over, nobody gets a new lock. Those who did not claim are off the list,
//!    durably, before that: they cannot claim from a later server what others had meanwhile.
//!
//! It deliberately does not know the locks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Refusal, Reply, SessionId};
use parking_lot::Mutex;
use room::{Error, Result, Room};

use super::refusals::refusal;
use crate::sessions::Session;

const NOTE: &str = "metadata.locks";
/// The longest period, also with a longer lease: clients wait for an answer for 90 seconds.
const PERIOD_MAX: Duration = Duration::from_secs(60);

/// Sessions that may hold locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Holders {
    /// Of this incarnation.
    present: BTreeSet<SessionId>,
    /// Of earlier ones, which did not claim yet.
    awaited: BTreeSet<SessionId>,
}

impl Holders {
    fn encode(&self) -> Vec<u8> {
        let all = self.present.union(&self.awaited);
        all.flat_map(|session| session.0.to_le_bytes()).collect()
    }

    /// As a later incarnation finds them.
    fn decode(note: &[u8]) -> Option<Self> {
        let (sessions, rest) = note.as_chunks();
        let awaited = sessions.iter().map(|id| SessionId(u64::from_le_bytes(*id)));
        rest.is_empty().then(|| Self {
            present: BTreeSet::new(),
            awaited: awaited.collect(),
        })
    }
}

/// Who may claim locks, and whether anybody may take new ones.
#[derive(Debug)]
pub(crate) struct Grace {
    holders: Mutex<Holders>,
    /// Held while the room's list is changed.
    writing: Mutex<()>,
    until: Instant,
}

impl Grace {
    /// Begins with those whom the room lists.
    pub(super) fn of(room: &Room, lease: Duration) -> Result<Self> {
        let holders = match room.note(NOTE)? {
            None => Holders::default(),
            Some(note) => Holders::decode(&note).ok_or_else(|| {
                Error::Damaged(format!("note `{NOTE}` is not a list of sessions"))
            })?,
        };
        let period = lease.min(PERIOD_MAX);
        if !holders.awaited.is_empty() {
            tracing::info!(
                sessions = holders.awaited.len(),
                "locks are being claimed again: nobody gets a new one until that is done, for {} s at most",
                period.as_secs()
            );
        }
        Ok(Self {
            holders: Mutex::new(holders),
            writing: Mutex::default(),
            until: Instant::now() + period,
        })
    }

    /// Whether new locks may be taken.
    pub(super) fn is_over(&self) -> bool {
        self.holders.lock().awaited.is_empty()
    }

    /// Whether a session is a holder.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.holders.lock().present.contains(&session)
    }

    /// Makes a session a holder. Waits for the room.
    pub(super) fn admit(&self, room: &Room, session: &Session) -> Reply<()> {
        let _alone = self.writing.lock();
        alive(session)?;
        let changed = self.change(room, |holders| {
            holders.present.insert(session.id);
        });
        changed.map_err(refusal)
    }

    /// A session is the client's that had the sessions `former`. Where that held locks when an earlier server ended, `take` runs, and
    /// the session is a holder in their place. Waits for the room.
    pub(super) fn claim(
        &self,
        room: &Room,
        session: &Session,
        former: &[SessionId],
        take: impl FnOnce(),
    ) -> Reply<()> {
        let _alone = self.writing.lock();
        alive(session)?;
        if !former
            .iter()
            .any(|id| self.holders.lock().awaited.contains(id))
        {
            return Ok(());
        }
        take();
        let changed = self.change(room, |holders| {
            for id in former {
                holders.awaited.remove(id);
            }
            holders.present.insert(session.id);
        });
        changed.map_err(refusal)
    }

    /// A session is over: when this returns, nobody can claim what it held. Waits for the room.
    pub(super) fn leave(&self, room: &Room, session: SessionId) -> Result<()> {
        let _alone = self.writing.lock();
        self.change(room, |holders| {
            holders.present.remove(&session);
        })
    }

    /// Ends the period when its time is over. Waits for the room.
    pub(super) fn tend(&self, room: &Room) -> Result<()> {
        if Instant::now() < self.until || self.is_over() {
            return Ok(());
        }
        let _alone = self.writing.lock();
        let left = self.holders.lock().awaited.len();
        if left == 0 {
            return Ok(());
        }
        self.change(room, |holders| holders.awaited.clear())?;
        tracing::warn!(sessions = left, "locks were not claimed again in time");
        Ok(())
    }

    /// The caller holds `writing`.
    fn change(&self, room: &Room, change: impl FnOnce(&mut Holders)) -> Result<()> {
        let before = self.holders.lock().clone();
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            room.set_note_as_name(NOTE, &after.encode())?;
            *self.holders.lock() = after;
        }
        Ok(())
    }
}

/// Its end, which waits for `writing`, has not come so far.
fn alive(session: &Session) -> Reply<()> {
    match session.is_over() {
        true => Err(Refusal::NoSession),
        false => Ok(()),
    }
}
