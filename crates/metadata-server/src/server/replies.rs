//! The reply cache: which operation each client asked for last in each of its slots, and what it was answered.
//!
//! 1. An operation is done once, however often it is asked for, in this incarnation of the server and in later ones: its answer
//!    is in the commit that contains it ([`room::Room::answering`]).
//! 2. Answers belong to the key of the user that asked. Nobody else gets or replaces them.
//! 3. A client has [`SLOTS_MAX`] slots, and a slot keeps one answer: that of its newest operation.
//! 4. A client that said goodbye is forgotten at once, another one after [`RETENTION`] without contact; of one key at most
//!    [`AWAY_MAX`] clients without a session are kept.
//!
//! It deliberately does not know how an operation is done.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata_proto::rpc::{Changed, ClientId, Delay, Posix, Refusal, Reply, SLOTS_MAX};
use parking_lot::Mutex;
use room::{
    CachedReply, ClientKey, Error, FileFlags, FileKind, Inode, InodeNo, OperationId, Room,
    Timestamp,
};
use tokio::sync::Notify;

use super::changes::Losses;

/// For how long a client without contact is remembered: far longer than a client asks for one answer.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Most clients without a session that are remembered for one key of a user.
const AWAY_MAX: usize = 256;

/// The name under which a client's answers are kept: its user's key, and what it calls itself.
pub(super) fn client_key(serial: &[u8; 16], client: ClientId) -> ClientKey {
    let mut key = [0; 32];
    key[..16].copy_from_slice(serial);
    key[16..].copy_from_slice(&client.0);
    ClientKey(key)
}

fn serial_of(key: &ClientKey) -> &[u8] {
    &key.0[..16]
}

/// What is known of the newest operation of a slot.
#[derive(Debug)]
enum State {
    UnderWay,
    Answered(Reply<Changed>),
    /// The same, in an earlier incarnation of the server.
    Kept(Reply<Changed>),
    /// It is done and durable; rights that it removes are still to be revoked on a disk.
    Revoking(Changed, Arc<Losses>),
    /// It was not done, and will not be.
    Void,
}

#[derive(Debug)]
struct Slot {
    sequence: u64,
    state: State,
}

/// What to do about an operation that was asked for.
#[derive(Debug)]
pub(super) enum Asked {
    /// Do it, and say so with [`Client::answer`].
    New,
    /// It was done; inodes have the room's numbers.
    Answered(Reply<Changed>),
    /// It was done in an earlier incarnation of the server.
    Kept(Reply<Changed>),
    /// It was done. Revoke these, and say so with [`Client::answer`].
    Revoke(Changed, Arc<Losses>),
    /// Somebody does it, or the one before it in its slot: wait for [`Client::answered`], and ask again.
    UnderWay,
}

/// How an operation ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Answered(Reply<Changed>),
    /// Done, but for rights that could not be revoked yet.
    Revoking(Changed, Arc<Losses>),
    /// Not done, for something that ends: it may be asked for again.
    Void(Delay),
}

/// One client's slots.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) key: ClientKey,
    slots: Mutex<BTreeMap<u32, Slot>>,
    answered: Notify,
}

impl Client {
    fn load(key: ClientKey, kept: Vec<CachedReply>) -> Self {
        let slots = kept.into_iter().map(|reply| {
            let answer = decode(&reply.answer).ok_or_else(|| {
                Refusal::Failed("the answer was kept by another version of the server".into())
            });
            let slot = Slot {
                sequence: reply.sequence,
                state: State::Kept(answer),
            };
            (reply.slot, slot)
        });
        Self {
            key,
            slots: Mutex::new(slots.collect()),
            answered: Notify::new(),
        }
    }

    /// The operation's name in the room.
    pub(super) fn operation(&self, slot: u32, sequence: u64) -> OperationId {
        OperationId {
            client: self.key,
            slot,
            sequence,
        }
    }

    /// An operation is asked for.
    pub(super) fn ask(&self, slot: u32, sequence: u64) -> Reply<Asked> {
        if slot >= SLOTS_MAX || !(1..=i64::MAX as u64).contains(&sequence) {
            return Err(Refusal::Posix(Posix::InvalidArgument));
        }
        let mut slots = self.slots.lock();
        let known = slots.entry(slot).or_insert(Slot {
            sequence: 0,
            state: State::Void,
        });
        if matches!(known.state, State::UnderWay) {
            return Ok(Asked::UnderWay);
        }
        if sequence < known.sequence {
            return Err(superseded(sequence));
        }
        if sequence == known.sequence {
            match &known.state {
                State::Answered(answer) => return Ok(Asked::Answered(answer.clone())),
                State::Kept(answer) => return Ok(Asked::Kept(answer.clone())),
                State::Revoking(changed, losses) => {
                    let asked = Asked::Revoke(changed.clone(), losses.clone());
                    known.state = State::UnderWay;
                    return Ok(asked);
                }
                State::UnderWay => return Ok(Asked::UnderWay),
                State::Void => return Err(superseded(sequence)),
            }
        }
        *known = Slot {
            sequence,
            state: State::UnderWay,
        };
        Ok(Asked::New)
    }

    /// What became of an operation that was asked for before; `None`: it was not done, and from now on it is refused.
    pub(super) fn recall(&self, slot: u32, sequence: u64) -> Reply<Option<Asked>> {
        let asked = self.ask(slot, sequence)?;
        if matches!(asked, Asked::New) {
            let mut slots = self.slots.lock();
            if let Some(known) = slots.get_mut(&slot) {
                known.state = State::Void;
            }
            drop(slots);
            self.answered.notify_waiters();
            return Ok(None);
        }
        Ok(Some(asked))
    }

    /// An operation that was new, or had rights to revoke, has ended.
    pub(super) fn answer(&self, slot: u32, sequence: u64, outcome: Outcome) {
        let mut slots = self.slots.lock();
        if let Some(known) = slots.get_mut(&slot) {
            match outcome {
                Outcome::Answered(answer) => known.state = State::Answered(answer),
                Outcome::Revoking(changed, losses) => {
                    known.state = State::Revoking(changed, losses);
                }
                Outcome::Void(_) => {
                    known.state = State::Void;
                    known.sequence = sequence - 1;
                }
            }
        }
        drop(slots);
        self.answered.notify_waiters();
    }

    /// What was answered is gone: the operation may be asked for again.
    pub(super) fn forget(&self, slot: u32, sequence: u64) {
        let mut slots = self.slots.lock();
        if let Some(known) = slots.get_mut(&slot)
            && known.sequence == sequence
            && matches!(known.state, State::Answered(_))
        {
            *known = Slot {
                sequence: sequence - 1,
                state: State::Void,
            };
        }
    }

    /// Notified when some operation ended; to be enabled before asking.
    pub(super) fn answered(&self) -> &Notify {
        &self.answered
    }

    fn is_idle(&self) -> bool {
        let slots = self.slots.lock();
        !slots.values().any(|s| matches!(s.state, State::UnderWay))
    }
}

fn superseded(sequence: u64) -> Refusal {
    Refusal::Failed(format!("operation {sequence} was asked for too late"))
}

#[derive(Debug)]
struct Known {
    /// Read from the catalog when the client comes.
    client: Option<Arc<Client>>,
    contact: Instant,
}

/// All clients of one incarnation of the server.
#[derive(Debug)]
pub(super) struct Replies {
    clients: Mutex<HashMap<ClientKey, Known>>,
}

impl Replies {
    /// The clients whose answers the room keeps.
    pub(super) fn of(room: &Room) -> room::Result<Self> {
        let contact = Instant::now();
        let known = room.answered_clients()?.into_iter().map(|key| {
            let client = None;
            (key, Known { client, contact })
        });
        Ok(Self {
            clients: Mutex::new(known.collect()),
        })
    }

    /// A client that asks for something. Waits for the room.
    pub(super) fn attach(&self, room: &Room, key: ClientKey) -> room::Result<Arc<Client>> {
        let mut clients = self.clients.lock();
        if let Some(client) = asks(&mut clients, &key) {
            return Ok(client);
        }
        let client = Arc::new(Client::load(key, room.answers(key)?));
        let known = Known {
            client: Some(client.clone()),
            contact: Instant::now(),
        };
        clients.insert(key, known);
        Ok(client)
    }

    /// The same without waiting; `None` where that is not possible.
    pub(super) fn attached(&self, key: &ClientKey) -> Option<Arc<Client>> {
        let mut clients = self.clients.try_lock()?;
        asks(&mut clients, key)
    }

    /// A client said goodbye: it asks for nothing again.
    pub(super) fn forget(&self, room: &Room, key: &ClientKey) {
        self.forget_where(room, |known, _| known == key);
    }

    /// The user of these keys is gone.
    pub(super) fn forget_keys(&self, room: &Room, serials: &[[u8; 16]]) {
        let of_them = |key: &ClientKey| serials.iter().any(|s| s[..] == *serial_of(key));
        self.forget_where(room, |key, _| of_them(key));
    }

    fn forget_where(&self, room: &Room, which: impl Fn(&ClientKey, Instant) -> bool) {
        // Forgotten in the room under the same lock: one that comes back in between would miss its answers.
        let mut clients = self.clients.lock();
        clients.retain(|key, known| {
            if !which(key, known.contact) || known.client.as_ref().is_some_and(|c| !c.is_idle()) {
                return true;
            }
            match room.forget_answers(*key) {
                Ok(()) => false,
                Err(Error::Poisoned) => true,
                Err(e) => {
                    tracing::warn!("answers to a client are not forgotten: {e}");
                    true
                }
            }
        });
    }

    /// Forgets clients that were away for too long, and the oldest of those of which there are too many. `connected` have
    /// sessions.
    pub(super) fn tend(&self, room: &Room, connected: &HashSet<ClientKey>) {
        let now = Instant::now();
        let gone = {
            let mut clients = self.clients.lock();
            let mut away: HashMap<[u8; 16], Vec<(Instant, ClientKey)>> = HashMap::new();
            for (key, known) in clients.iter_mut() {
                if connected.contains(key) {
                    known.contact = now;
                } else if let Ok(serial) = serial_of(key).try_into() {
                    away.entry(serial).or_default().push((known.contact, *key));
                }
            }
            expired(away.into_values(), now)
        };
        if !gone.is_empty() {
            // But those that came meanwhile.
            self.forget_where(room, |key, contact| gone.get(key) == Some(&contact));
        }
    }
}

/// A client that asks for something, if its answers were read.
fn asks(clients: &mut HashMap<ClientKey, Known>, key: &ClientKey) -> Option<Arc<Client>> {
    let known = clients.get_mut(key)?;
    known.contact = Instant::now();
    known.client.clone()
}

/// Of clients that are away, grouped by their user's key: which are to be forgotten.
fn expired(
    away: impl Iterator<Item = Vec<(Instant, ClientKey)>>,
    now: Instant,
) -> HashMap<ClientKey, Instant> {
    let mut gone = HashMap::new();
    for mut clients in away {
        clients.sort_unstable();
        let too_many = clients.len().saturating_sub(AWAY_MAX);
        let expired = clients
            .iter()
            .enumerate()
            .filter(|(at, (contact, _))| {
                *at < too_many || now.saturating_duration_since(*contact) > RETENTION
            })
            .map(|(_, (contact, key))| (*key, *contact));
        gone.extend(expired);
    }
    gone
}

const DONE: u8 = 1;
const COPIED: u8 = 2;
const INODE: u8 = 3;

/// An answer as the room keeps it: docs/format.md, *Answers to clients*.
pub(super) fn encode(changed: &Changed) -> Vec<u8> {
    let inode = match changed {
        Changed::Done => return vec![DONE],
        Changed::Copied(bytes) => {
            let mut out = vec![COPIED];
            out.extend(bytes.to_le_bytes());
            return out;
        }
        Changed::Inode(inode) | Changed::Opened(inode, ..) => inode,
    };
    let (kind, has_xattrs) = (kind_number(inode.kind), u8::from(inode.has_xattrs));
    let mut out = vec![INODE, kind, has_xattrs, inode.flags.bits()];
    out.extend(inode.mode.to_le_bytes());
    for number in [inode.uid, inode.gid, inode.nlink] {
        out.extend(number.to_le_bytes());
    }
    let numbers = [
        inode.no.0,
        inode.size,
        inode.blocks,
        inode.rdev,
        inode.parent.0,
    ];
    for number in numbers {
        out.extend(number.to_le_bytes());
    }
    for time in [inode.atime, inode.mtime, inode.ctime, inode.btime] {
        out.extend(time.secs.to_le_bytes());
        out.extend(time.nanos.to_le_bytes());
    }
    out.extend(&inode.target);
    out
}

/// `None`: not what [`encode`] writes.
pub(super) fn decode(bytes: &[u8]) -> Option<Changed> {
    let mut left = Left(bytes);
    let [answer] = left.take()?;
    match answer {
        DONE if left.0.is_empty() => Some(Changed::Done),
        COPIED => {
            let copied = Changed::Copied(left.u64()?);
            left.0.is_empty().then_some(copied)
        }
        INODE => {
            let [kind, has_xattrs, flags] = left.take()?;
            let inode = Inode {
                kind: kind_of(kind)?,
                has_xattrs: has_xattrs == 1,
                flags: FileFlags::from_bits(flags)?,
                mode: u16::from_le_bytes(left.take()?),
                uid: left.u32()?,
                gid: left.u32()?,
                nlink: left.u32()?,
                no: InodeNo(left.u64()?),
                size: left.u64()?,
                blocks: left.u64()?,
                rdev: left.u64()?,
                parent: InodeNo(left.u64()?),
                atime: left.time()?,
                mtime: left.time()?,
                ctime: left.time()?,
                btime: left.time()?,
                target: left.0.to_vec(),
            };
            Some(Changed::Inode(Box::new(inode)))
        }
        _ => None,
    }
}

/// Bytes not yet decoded.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take()?))
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp::new(
            i64::from_le_bytes(self.take()?),
            self.u32()?,
        ))
    }
}

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];

/// The catalog's number of a kind.
fn kind_number(kind: FileKind) -> u8 {
    let at = KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len());
    at as u8 + 1
}

fn kind_of(number: u8) -> Option<FileKind> {
    KINDS.get(usize::from(number).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::load(client_key(&[1; 16], ClientId([2; 16])), Vec::new())
    }

    fn ok() -> Outcome {
        Outcome::Answered(Ok(Changed::Copied(7)))
    }

    #[test]
    fn an_operation_is_new_once_and_then_answered_alike_until_the_next_one_of_its_slot() {
        let client = client();
        assert!(matches!(client.ask(0, 1), Ok(Asked::New)));
        assert!(matches!(client.ask(0, 1), Ok(Asked::UnderWay)));
        // The next one waits: two of one slot are never done at the same time.
        assert!(matches!(client.ask(0, 2), Ok(Asked::UnderWay)));
        assert!(matches!(client.ask(1, 1), Ok(Asked::New)));
        client.answer(0, 1, ok());
        for _ in 0..2 {
            let again = client.ask(0, 1);
            assert!(matches!(again, Ok(Asked::Answered(Ok(Changed::Copied(7))))));
        }
        assert!(matches!(client.ask(0, 5), Ok(Asked::New)));
        client.answer(0, 5, ok());
        for late in [1, 2, 4] {
            assert!(client.ask(0, late).is_err());
        }
    }

    #[test]
    fn what_was_not_done_is_new_again_but_not_after_it_was_recalled() {
        let client = client();
        assert!(matches!(client.ask(0, 1), Ok(Asked::New)));
        client.answer(0, 1, Outcome::Void(Delay::Disk));
        assert!(matches!(client.ask(0, 1), Ok(Asked::New)));
        client.answer(0, 1, Outcome::Void(Delay::Disk));
        assert!(matches!(client.recall(0, 1), Ok(None)));
        assert!(client.ask(0, 1).is_err());
        assert!(matches!(client.ask(0, 2), Ok(Asked::New)));
        assert!(matches!(client.recall(0, 2), Ok(Some(Asked::UnderWay))));
        client.answer(0, 2, ok());
        assert!(matches!(
            client.recall(0, 2),
            Ok(Some(Asked::Answered(Ok(_))))
        ));
    }

    #[test]
    fn slots_and_numbers_beyond_the_protocols_are_refused() {
        let client = client();
        for (slot, sequence) in [(SLOTS_MAX, 1), (0, 0), (0, 1 << 63), (u32::MAX, u64::MAX)] {
            assert!(client.ask(slot, sequence).is_err());
            assert!(client.recall(slot, sequence).is_err());
        }
    }

    #[test]
    fn clients_that_are_away_are_forgotten_after_a_day_and_beyond_a_number_for_each_key() {
        let begun = Instant::now();
        let now = begun + RETENTION + Duration::from_secs(1);
        let key = |serial: u8, n: usize| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(n as u64).to_be_bytes());
            client_key(&[serial; 16], ClientId(id))
        };
        let many: Vec<_> = (0..AWAY_MAX + 10).map(|n| (now, key(1, n))).collect();
        let few = vec![(begun, key(2, 0)), (begun + RETENTION, key(2, 1))];
        let gone = expired([many, few].into_iter(), now);
        let gone: HashSet<_> = gone.into_keys().collect();
        let expected: HashSet<_> = (0..10).map(|n| key(1, n)).chain([key(2, 0)]).collect();
        assert_eq!(gone, expected);
    }

    #[test]
    fn answers_come_back_as_they_were_kept_and_nothing_else_is_taken_for_one() {
        let at = |secs| Timestamp::new(secs, 999_999_999);
        let inode = Inode {
            no: InodeNo(u64::MAX >> 1),
            kind: FileKind::Symlink,
            mode: 0o7777,
            uid: 1,
            gid: u32::MAX - 1,
            nlink: 3,
            size: 4,
            blocks: 5,
            rdev: u64::MAX,
            atime: at(-1),
            mtime: at(2),
            ctime: at(3),
            btime: at(i64::MIN),
            parent: InodeNo(7),
            has_xattrs: true,
            flags: FileFlags::IMMUTABLE,
            target: vec![b't'; 4095],
        };
        let answers = [
            Changed::Done,
            Changed::Copied(u64::MAX),
            Changed::Inode(Box::new(inode)),
        ];
        for answer in answers {
            let bytes = encode(&answer);
            assert!(bytes.len() <= room::ANSWER_MAX);
            assert_eq!(decode(&bytes).as_ref(), Some(&answer));
            for cut in 0..bytes.len().min(100) {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
        for wrong in [&b""[..], &[0], &[DONE, 0], &[4], &[INODE, 8, 0]] {
            assert_eq!(decode(wrong), None);
        }
    }
}
