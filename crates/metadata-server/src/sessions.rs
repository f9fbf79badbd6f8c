//! Sessions: what a client holds open and borrowed.
//!
//! 1. A session belongs to one key of one user, and nobody else goes on with it.
//! 2. What is added to a session after it ended is refused, so its end sees everything it held.
//!
//! It deliberately does not know what must be released when a session ends, or in which order.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use metadata_proto::rpc::GRANTS_MAX;
use metadata_proto::rpc::{Once, Opening, Posix, Refusal, Reply, SLOTS_MAX, SessionId};
use netdisk::{BlockExtent, DiskId};
use parking_lot::{Mutex, MutexGuard};
use room::{ClientKey, InodeNo, SegmentNo, WriteGrantId};

use crate::enrol::User;
use crate::policy::Subject;

/// Most sessions at once.
pub const SESSIONS_MAX: usize = 4096;
/// Most sessions of one user.
pub const SESSIONS_PER_USER: usize = 512;
/// Most files one session has open.
pub const OPENS_MAX: usize = 65536;

/// A grant of a session.
#[derive(Debug, Clone)]
pub struct Borrowed {
    /// The segment.
    pub segment: SegmentNo,
    /// The disk.
    pub disk: DiskId,
    /// The blocks of the disk.
    pub extent: BlockExtent,
    /// Files that hold blocks of it.
    pub files: BTreeSet<InodeNo>,
}

#[derive(Debug, Default)]
struct SessionState {
    over: bool,
    opens: HashMap<InodeNo, u64>,
    grants: HashMap<WriteGrantId, Borrowed>,
    /// The newest call of each slot that was done.
    done: Vec<u64>,
}

impl SessionState {
    fn open(&mut self, no: InodeNo, before: impl FnOnce()) -> Reply<()> {
        if self.opens.len() >= OPENS_MAX && !self.opens.contains_key(&no) {
            return Err(Refusal::Posix(Posix::NoSpace));
        }
        before();
        *self.opens.entry(no).or_insert(0) += 1;
        Ok(())
    }

    /// The newest call that was done of the slot.
    fn newest(&mut self, once: Once) -> Reply<&mut u64> {
        self.done.resize(SLOTS_MAX as usize, 0);
        let slot = usize::try_from(once.slot).ok();
        let newest = slot.and_then(|slot| self.done.get_mut(slot));
        newest.ok_or(Refusal::Posix(Posix::InvalidArgument))
    }

    /// Whether an open counts.
    fn counts(&mut self, no: InodeNo, opening: Opening) -> Reply<bool> {
        Ok(match opening {
            Opening::New(once) => *self.newest(once)? < once.sequence,
            Opening::Again => !self.opens.contains_key(&no),
        })
    }
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Whose it is.
    pub user: Arc<User>,
    /// The serial number of the key that began it.
    pub serial: [u8; 16],
    /// The user, as far as permissions go.
    pub subject: Subject,
    deadline: Mutex<Instant>,
    held: Mutex<SessionState>,
    client: OnceLock<ClientKey>,
    searched: Mutex<Searched>,
    past_opens: Mutex<HashSet<(u64, InodeNo)>>,
}

/// Directories of which the user was found to be allowed to search every one on the path from the root.
#[derive(Debug, Default)]
struct Searched {
    /// Of how many changes of directories this is true.
    changes: u64,
    directories: HashSet<InodeNo>,
}

/// Most directories that a session remembers to be searchable.
const SEARCHED_MAX: usize = 4096;

impl Session {
    fn alive(&self) -> Reply<MutexGuard<'_, SessionState>> {
        let held = self.held.lock();
        if held.over {
            return Err(Refusal::NoSession);
        }
        Ok(held)
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.held.lock().over
    }

    /// Notes that a file was opened once more. `before` runs first, where nothing can end the session.
    pub fn open(&self, no: InodeNo, before: impl FnOnce()) -> Reply<()> {
        self.alive()?.open(no, before)
    }

    /// [`open`](Self::open), where this `opening` does not count already; whether it did so.
    pub fn open_once(&self, no: InodeNo, opening: Opening, before: impl FnOnce()) -> Reply<bool> {
        let mut held = self.alive()?;
        if !held.counts(no, opening)? {
            return Ok(false);
        }
        held.open(no, before)?;
        if let Opening::New(once) = opening {
            *held.newest(once)? = once.sequence;
        }
        Ok(true)
    }

    /// An open that counted failed: it does not count, and may be asked for again. How many opens are over.
    pub fn undo_open(&self, no: InodeNo, opening: Opening) -> Reply<u64> {
        let (closed, _) = self.close(no, 1)?;
        if let Opening::New(once) = opening {
            *self.alive()?.newest(once)? = once.sequence.saturating_sub(1);
        }
        Ok(closed)
    }

    /// Whether this call was not done yet; it is from now on.
    pub fn begins(&self, once: Once) -> Reply<bool> {
        let mut held = self.alive()?;
        let newest = held.newest(once)?;
        let begins = *newest < once.sequence;
        *newest = once.sequence.max(*newest);
        Ok(begins)
    }

    /// Notes that `count` opens are over; how many there really were, and whether none is left.
    pub fn close(&self, no: InodeNo, count: u64) -> Reply<(u64, bool)> {
        let mut held = self.alive()?;
        let Some(open) = held.opens.get_mut(&no) else {
            return Ok((0, false));
        };
        let closed = count.min(*open);
        *open -= closed;
        let last = *open == 0;
        if last {
            held.opens.remove(&no);
        }
        Ok((closed, last))
    }

    /// Whether the file is open.
    pub fn has_open(&self, no: InodeNo) -> bool {
        self.held.lock().opens.contains_key(&no)
    }

    /// Notes that a file of a snapshot was opened. When there are too many, all are forgotten.
    pub fn opened_past(&self, snapshot: u64, no: InodeNo) {
        let mut opens = self.past_opens.lock();
        if opens.len() >= OPENS_MAX {
            opens.clear();
        }
        opens.insert((snapshot, no));
    }

    /// Whether a file of a snapshot [was opened](Self::opened_past).
    pub fn has_opened_past(&self, snapshot: u64, no: InodeNo) -> bool {
        self.past_opens.lock().contains(&(snapshot, no))
    }

    /// Whether the path to a directory was [found searchable](Self::searched) after `changes` changes of directories.
    pub fn has_searched(&self, changes: u64, no: InodeNo) -> bool {
        let searched = self.searched.lock();
        searched.changes == changes && searched.directories.contains(&no)
    }

    /// Notes that.
    pub fn searched(&self, changes: u64, directories: &[InodeNo]) {
        let mut searched = self.searched.lock();
        if searched.changes != changes || searched.directories.len() >= SEARCHED_MAX {
            searched.directories.clear();
            searched.changes = changes;
        }
        searched.directories.extend(directories);
    }

    /// The numbers of open files and of grants.
    pub fn counts(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.opens.len(), held.grants.len())
    }

    /// Whether one more grant is allowed.
    pub fn may_borrow(&self) -> Reply<()> {
        if self.alive()?.grants.len() >= GRANTS_MAX {
            return Err(Refusal::Posix(Posix::NoSpace));
        }
        Ok(())
    }

    /// Notes a grant.
    pub fn borrow(&self, grant: WriteGrantId, borrowed: Borrowed) -> Reply<()> {
        self.alive()?.grants.insert(grant, borrowed);
        Ok(())
    }

    /// The grant, if it is this session's; from now on `no` holds blocks of it.
    pub fn place(&self, grant: WriteGrantId, no: InodeNo) -> Reply<Borrowed> {
        let mut held = self.alive()?;
        let Some(borrowed) = held.grants.get_mut(&grant) else {
            return Err(Refusal::GrantOver(grant));
        };
        borrowed.files.insert(no);
        Ok(borrowed.clone())
    }

    /// The segment and the disk of a grant, if it is this session's.
    pub fn place_of(&self, grant: WriteGrantId) -> Option<(SegmentNo, DiskId)> {
        let held = self.held.lock();
        let borrowed = held.grants.get(&grant);
        borrowed.map(|borrowed| (borrowed.segment, borrowed.disk))
    }

    /// Whether the grant is this session's.
    pub fn has_grant(&self, grant: WriteGrantId) -> bool {
        self.held.lock().grants.contains_key(&grant)
    }

    /// A grant is over.
    pub fn release_grant(&self, grant: WriteGrantId) -> Option<Borrowed> {
        self.held.lock().grants.remove(&grant)
    }

    /// The grants that hold blocks of a file.
    pub fn grants_of(&self, no: InodeNo) -> Vec<WriteGrantId> {
        let held = self.held.lock();
        held.grants
            .iter()
            .filter(|(_, borrowed)| borrowed.files.contains(&no))
            .map(|(grant, _)| *grant)
            .collect()
    }

    /// The grants that hold blocks of some file.
    pub fn used_grants(&self) -> Vec<WriteGrantId> {
        let held = self.held.lock();
        let used = held.grants.iter().filter(|(_, g)| !g.files.is_empty());
        used.map(|(grant, _)| *grant).collect()
    }

    /// The grants on a disk.
    pub fn grants_on(&self, disk: DiskId) -> Vec<WriteGrantId> {
        let held = self.held.lock();
        let on_it = held
            .grants
            .iter()
            .filter(|(_, granted)| granted.disk == disk);
        on_it.map(|(grant, _)| *grant).collect()
    }

    /// Which client it is: set once.
    pub fn set_client(&self, client: ClientKey) -> Reply<()> {
        if *self.client.get_or_init(|| client) == client {
            return Ok(());
        }
        Err(Refusal::Posix(Posix::InvalidArgument))
    }

    /// Which client it is, where it said so.
    pub fn client(&self) -> Option<ClientKey> {
        self.client.get().copied()
    }

    /// Ends it: nothing is added from now on.
    fn end(&self) -> bool {
        !std::mem::replace(&mut self.held.lock().over, true)
    }

    /// Everything an ended session held.
    pub fn take_held(&self) -> (HashMap<InodeNo, u64>, HashMap<WriteGrantId, Borrowed>) {
        let mut held = self.held.lock();
        (
            std::mem::take(&mut held.opens),
            std::mem::take(&mut held.grants),
        )
    }
}

/// All sessions of one incarnation of the server.
#[derive(Debug)]
pub struct Sessions {
    lease: Duration,
    all: Mutex<HashMap<SessionId, Arc<Session>>>,
}

impl Sessions {
    /// None yet; each ends `lease` after its last heartbeat.
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            all: Mutex::new(HashMap::new()),
        }
    }

    /// Begins a session. Its number is random, so it is not one of an earlier incarnation.
    pub fn begin(&self, user: &Arc<User>, serial: [u8; 16]) -> Reply<Arc<Session>> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|e| Refusal::Failed(format!("random numbers: {e}")))?;
        // 0 is the metadata server itself, as a client of the disks.
        let id = SessionId(u64::from_le_bytes(bytes).max(1));
        let session = Arc::new(Session {
            id,
            user: user.clone(),
            serial,
            subject: Subject {
                uid: user.uid,
                gids: user.gids.clone(),
            },
            deadline: Mutex::new(Instant::now() + self.lease),
            held: Mutex::default(),
            client: OnceLock::new(),
            searched: Mutex::default(),
            past_opens: Mutex::default(),
        });
        let mut all = self.all.lock();
        if all.len() >= SESSIONS_MAX {
            return Err(Refusal::Failed(format!(
                "{SESSIONS_MAX} clients are here already: try again later"
            )));
        }
        if all.values().filter(|s| s.user.name == user.name).count() >= SESSIONS_PER_USER {
            return Err(Refusal::Failed(format!(
                "{} has {SESSIONS_PER_USER} sessions already: try again later",
                user.name
            )));
        }
        all.insert(id, session.clone());
        Ok(session)
    }

    /// The session, if it is alive and of this very key; its lease starts again.
    pub fn find(&self, id: SessionId, serial: &[u8; 16]) -> Reply<Arc<Session>> {
        let session = self.all.lock().get(&id).cloned();
        match session {
            Some(session) if session.serial == *serial && !session.is_over() => {
                *session.deadline.lock() = Instant::now() + self.lease;
                Ok(session)
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Ends every session that `ends` says, and returns those it was not said of before. They stay in the list until
    /// [`forget`](Self::forget), because what they held is still to be released.
    pub fn end_where(&self, ends: impl Fn(&Session, Instant) -> bool) -> Vec<Arc<Session>> {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        all.into_iter()
            .filter(|session| ends(session, *session.deadline.lock()) && session.end())
            .collect()
    }

    /// What an ended session held was released.
    pub fn forget(&self, id: SessionId) {
        self.all.lock().remove(&id);
    }

    /// A session by number, ended ones included.
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.all.lock().get(&id).cloned()
    }

    /// All that are alive, and ended ones whose rights may not be revoked yet.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.all.lock().values().cloned().collect()
    }

    /// All that are alive.
    pub fn alive(&self) -> Vec<Arc<Session>> {
        let all = self.all();
        all.into_iter().filter(|s| !s.is_over()).collect()
    }

    /// The lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> Arc<User> {
        Arc::new(User {
            name: "a".into(),
            uid: 1,
            gids: vec![1],
            serials: Vec::new(),
            ends: Vec::new(),
            quota: Default::default(),
        })
    }

    #[test]
    fn a_user_has_a_share_of_the_sessions() {
        let sessions = Sessions::new(Duration::from_secs(20));
        for _ in 0..SESSIONS_PER_USER {
            sessions.begin(&user(), [1; 16]).unwrap();
        }
        assert!(sessions.begin(&user(), [2; 16]).is_err());
        let other = User {
            name: "b".into(),
            ..User::clone(&user())
        };
        sessions.begin(&Arc::new(other), [3; 16]).unwrap();
    }

    #[test]
    fn an_open_counts_once_however_often_it_is_asked_for() {
        let sessions = Sessions::new(Duration::from_secs(20));
        let session = sessions.begin(&user(), [1; 16]).unwrap();
        let (no, new) = (InodeNo(5), |slot, sequence| Once { slot, sequence });
        let open = |opening| session.open_once(no, opening, || {});
        for (opening, counts) in [
            (Opening::Again, true),
            (Opening::Again, false),
            (Opening::New(new(3, 1)), true),
            (Opening::New(new(3, 1)), false),
            (Opening::New(new(3, 2)), true),
            // Late.
            (Opening::New(new(3, 1)), false),
        ] {
            assert_eq!(open(opening), Ok(counts), "{opening:?}");
        }
        let failed = Opening::New(new(0, 7));
        assert_eq!(open(failed), Ok(true));
        assert_eq!(session.undo_open(no, failed), Ok(1));
        assert_eq!(open(failed), Ok(true));
        assert_eq!(session.close(no, 3), Ok((3, false)));
        assert_eq!(session.close(no, 3), Ok((1, true)));
        assert_eq!(session.begins(new(1, 1)), Ok(true));
        assert_eq!(session.begins(new(1, 1)), Ok(false));
        for slot in [SLOTS_MAX, u32::MAX] {
            assert!(open(Opening::New(new(slot, 1))).is_err());
            assert!(session.begins(new(slot, 1)).is_err());
        }
    }

    #[test]
    fn another_key_does_not_go_on_with_a_session_and_an_ended_one_takes_nothing() {
        let sessions = Sessions::new(Duration::from_secs(20));
        let session = sessions.begin(&user(), [1; 16]).unwrap();
        assert!(sessions.find(session.id, &[2; 16]).is_err());
        assert!(sessions.find(session.id, &[1; 16]).is_ok());
        session.open(InodeNo(5), || {}).unwrap();
        assert_eq!(sessions.end_where(|_, _| true).len(), 1);
        assert!(sessions.end_where(|_, _| true).is_empty());
        assert!(session.open(InodeNo(6), || {}).is_err());
        assert!(sessions.find(session.id, &[1; 16]).is_err());
        assert_eq!(session.take_held().0.len(), 1);
    }
}
