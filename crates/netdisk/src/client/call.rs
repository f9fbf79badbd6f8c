//! Calls to a disk: signed, sent, answered, checked, and repeated where that is safe.
//!
//! 1. A signature is for the boot, the epoch and the sequence that the disk itself reported, in authentic replies to requests of ours.
//! 2. A call is repeated only when the disk said (authentically) that it did not do it, or when the connection was lost
//!    while the call still waits. In the second case the first request may be done too, at any time until the capability is
//!    revoked or two epochs are over: a writer of other data to the same blocks revokes the capability first, as the
//!    metadata server does (`docs/netdisk.md`, "What a repeated write can do").
//! 3. No call takes longer than twice the timeout (for a send that had begun at its end), except to resolve the disk's name.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::spans;
use tracing::Level;

use super::connection::{Connection, NoReply, Reply};
use super::{DiskAddress, DiskError, Protection};
use crate::frame::{NONCE_LEN, Op, REQUEST_LEN, RequestHead};
use crate::keys::{MessageKeys, random};
use crate::wire::Side;
use crate::{Boot, Reason, sign, tls};

/// A pause between two attempts to reach a disk, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// One attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Times in a row that a disk may say "stale" or "seen before" to one call: far more than happens.
const AGAIN_MAX: u32 = 16;
/// Most bytes of words that go with a refusal.
const WORDS_MAX: usize = 256;

/// The way to a disk: connections, and what is known of its boot and epoch.
#[derive(Debug)]
pub(super) struct Line {
    address: DiskAddress,
    timeout: Duration,
    tls: Result<Option<tls::ClientTls>, String>,
    slots: Vec<Slot>,
    turn: AtomicUsize,
    known: Mutex<Known>,
    nonces: Nonces,
    unanswered_writes: AtomicU64,
}

/// Nonces that no other client draws: a random half, and a number. Nobody needs to be surprised by them, only by their
/// repetition.
#[derive(Debug)]
struct Nonces {
    half: [u8; 8],
    next: AtomicU64,
}

impl Nonces {
    fn new() -> Self {
        Self {
            half: random(),
            next: AtomicU64::new(u64::from_le_bytes(random())),
        }
    }

    fn next(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.half);
        out[8..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        out
    }
}

#[derive(Debug, Default)]
struct Slot {
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while connecting, so that one thread does it for all.
    connecting: Mutex<()>,
}

/// What the disk reported about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    boot: [u8; 16],
    epoch: u64,
    /// Of this boot; the disk's was never lower, but for what begins again after 2^32.
    sequence: u32,
}

/// What is asked.
pub(super) struct Call<'c> {
    pub(super) op: Op,
    /// The capability's bytes; none for the metadata server's calls.
    pub(super) capability: &'c [u8],
    pub(super) keys: &'c MessageKeys,
    /// The only boot of the disk server for which it is signed; `None`: the one that the disk reports.
    pub(super) boot: Option<[u8; 16]>,
    pub(super) start: u64,
    pub(super) blocks: u32,
    pub(super) payload: &'c [u8],
}

/// What was answered.
pub(super) struct Answer {
    pub(super) incarnation: Boot,
    pub(super) payload: Vec<u8>,
    pub(super) connection: Arc<Connection>,
}

/// One attempt's end without an answer.
enum Miss {
    /// Not done, says the disk: sign again.
    Again,
    /// The same, because another change was done first.
    Behind,
    /// Connect again.
    Lost(io::Error),
    /// Nothing to repeat.
    Final(DiskError),
}

impl Line {
    pub(super) fn new(address: DiskAddress, timeout: Duration, connections: usize) -> Self {
        let tls = match address.protection {
            Protection::Private => match address.certificate {
                Some(hash) => tls::client(hash).map(Some).map_err(|e| e.to_string()),
                None => Err("the hash of the disk's certificate is not known".into()),
            },
            Protection::Open | Protection::Secure => Ok(None),
        };
        Self {
            address,
            timeout,
            tls,
            slots: (0..connections).map(|_| Slot::default()).collect(),
            turn: Default::default(),
            known: Mutex::default(),
            nonces: Nonces::new(),
            unanswered_writes: AtomicU64::new(0),
        }
    }

    pub(super) fn address(&self) -> &DiskAddress {
        &self.address
    }

    /// The disk server's boot, as it reported it.
    pub(super) fn boot(&self) -> [u8; 16] {
        self.known.lock().boot
    }

    /// Writes that were sent, and to which no authentic reply came.
    pub(super) fn unanswered_writes(&self) -> u64 {
        self.unanswered_writes.load(Ordering::Relaxed)
    }

    /// Asks until there is an answer, a refusal that a repetition cannot change, or the timeout.
    pub(super) fn call(&self, call: &Call<'_>, most: usize) -> Result<Answer, DiskError> {
        let deadline = Instant::now() + self.timeout;
        let (mut pause, mut again, mut unsigned) = (PAUSE.0, 0, 0);
        loop {
            match self.attempt(call, most, deadline) {
                Ok(answer) => return Ok(answer),
                // Another change was done each time, so somebody always comes on.
                Err(Miss::Behind) if Instant::now() < deadline => (),
                Err(Miss::Again) if again < AGAIN_MAX => again += 1,
                Err(Miss::Again | Miss::Behind) => {
                    return Err(DiskError::BadReply("it says \"stale\" again and again"));
                }
                // Somebody on the way, or a flipped bit: once more on a new connection, then it is said.
                Err(Miss::Final(
                    DiskError::NotAuthentic | DiskError::WrongDisk | DiskError::BadReply(_),
                )) if unsigned < 1 && self.address.protection != Protection::Open => {
                    unsigned += 1;
                }
                Err(Miss::Final(error)) => return Err(error),
                Err(Miss::Lost(error)) => {
                    if Instant::now() + pause >= deadline {
                        return Err(DiskError::Unreachable(error));
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    fn attempt(&self, call: &Call<'_>, most: usize, deadline: Instant) -> Result<Answer, Miss> {
        let connection = self.connection(deadline)?;
        let begun = tracing::enabled!(target: spans::TARGET, Level::TRACE).then(Instant::now);
        let protection = self.address.protection;
        let open = protection == Protection::Open;
        let known = *self.known.lock();
        if call.boot.is_some_and(|boot| boot != known.boot) {
            return Err(Miss::Final(DiskError::Unreachable(io::Error::other(
                "the disk was restarted",
            ))));
        }
        let number = connection.number();
        // At most 1 MiB and 1088 bytes, which the callers see to.
        let mut head = RequestHead {
            op: call.op,
            capability_len: if open {
                0
            } else {
                call.capability.len() as u16
            },
            number,
            boot: known.boot,
            epoch: known.epoch,
            nonce: [0; 16],
            start: call.start,
            blocks: if call.op.changes() {
                known.sequence
            } else {
                call.blocks
            },
            payload_len: call.payload.len() as u32,
        };
        let mut first = [0; REQUEST_LEN + crate::capability::CAPABILITY_MAX];
        let mut len = REQUEST_LEN;
        if open {
            first[..len].copy_from_slice(&sign::request(&head, call.payload, None));
        } else {
            let _span =
                tracing::trace_span!(target: spans::TARGET, spans::AUTHENTICATION).entered();
            head.nonce = self.nonces.next();
            let tagged = protection.tagged(call.payload);
            let signed = sign::request(&head, tagged, Some(call.keys));
            first[..len].copy_from_slice(&signed);
            len += call.capability.len();
            first[REQUEST_LEN..len].copy_from_slice(call.capability);
        }
        let unanswered = || {
            if matches!(call.op, Op::Write | Op::WriteDurable) {
                self.unanswered_writes.fetch_add(1, Ordering::Relaxed);
            }
        };
        let reply = connection
            .exchange(
                number,
                [&first[..len], call.payload],
                most.max(WORDS_MAX),
                deadline,
            )
            .inspect_err(|_| unanswered())
            .map_err(|none| match none {
                NoReply::Lost(error) => Miss::Lost(error),
                NoReply::Late => {
                    Miss::Final(DiskError::Unreachable(io::ErrorKind::TimedOut.into()))
                }
            })?;
        let checked = if open {
            Ok(())
        } else {
            let _span =
                tracing::trace_span!(target: spans::TARGET, spans::AUTHENTICATION).entered();
            authentic(
                &reply,
                protection.tagged(&reply.payload),
                &head.nonce,
                call.keys,
            )
        };
        if let Err(error) = checked {
            unanswered();
            connection.end();
            return Err(Miss::Final(error));
        }
        if reply.head.op != call.op as u8 {
            connection.end();
            return Err(Miss::Final(DiskError::BadReply(
                "it answers another operation",
            )));
        }
        self.learn(known, call.op, &reply);
        let Some(reason) = reply.head.refused else {
            record_storage_time(call.op, reply.head.storage_us);
            return Ok(Answer {
                incarnation: Boot(reply.head.incarnation),
                payload: reply.payload,
                connection,
            });
        };
        if let Some(begun) = begun.filter(|_| reason == Reason::Revoked) {
            let ns = begun.elapsed().as_nanos() as u64;
            tracing::event!(name: spans::REVOKED, target: spans::TARGET, Level::TRACE, ns);
        }
        Err(miss(reason, &reply.payload, &self.address))
    }

    /// Takes over what an authentic reply says of boot, epoch and sequence, to a request that was signed for `known`.
    fn learn(&self, asked: Known, op: Op, reply: &Reply) {
        let head = &reply.head;
        let mut known = self.known.lock();
        let reported = Known {
            boot: head.boot,
            epoch: head.epoch,
            sequence: 0,
        };
        if reported.boot == known.boot {
            known.epoch = known.epoch.max(reported.epoch);
            match (head.refused, reply.payload.first_chunk()) {
                (None, _) if op.changes() => known.sequence = asked.sequence.wrapping_add(1),
                (Some(Reason::OutOfSequence), Some(sequence)) => {
                    known.sequence = u32::from_le_bytes(*sequence);
                }
                _ => (),
            }
        } else if *known == asked && head.refused == Some(Reason::StaleBoot) {
            // Not of an earlier incarnation: it answers a request for the incarnation that was known just now.
            *known = reported;
        }
    }

    /// A connection that lives, made where there is none.
    fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, Miss> {
        let side = match &self.tls {
            Ok(None) => Side::Plain,
            Ok(Some(tls)) => Side::Client(tls.clone()),
            Err(words) => {
                return Err(Miss::Final(DiskError::Unreachable(io::Error::other(
                    words.clone(),
                ))));
            }
        };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[turn % self.slots.len()];
        if let Some(connection) = slot.living() {
            return Ok(connection);
        }
        let Some(_connecting) = slot.connecting.try_lock_until(deadline) else {
            return Err(Miss::Final(DiskError::Unreachable(
                io::ErrorKind::TimedOut.into(),
            )));
        };
        if let Some(connection) = slot.living() {
            return Ok(connection);
        }
        let until = deadline.min(Instant::now() + CONNECT_MAX);
        let connection = Connection::open(&self.address.address, side, until, self.timeout)
            .map_err(Miss::Lost)?;
        *slot.connection.lock() = Some(connection.clone());
        Ok(connection)
    }
}

impl Slot {
    fn living(&self) -> Option<Arc<Connection>> {
        let mut slot = self.connection.lock();
        if slot.as_ref().is_some_and(|connection| connection.is_over()) {
            *slot = None;
        }
        slot.clone()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for slot in &self.slots {
            if let Some(connection) = slot.connection.lock().take() {
                connection.end();
            }
        }
    }
}

/// Reports to the tracing of spans how much of the present span was the disk's own storage.
fn record_storage_time(op: Op, us: u32) {
    let ns = u64::from(us) * 1000;
    const LEVEL: Level = Level::TRACE;
    match op {
        Op::Read => tracing::event!(name: spans::DEVICE_READ, target: spans::TARGET, LEVEL, ns),
        Op::Write => tracing::event!(name: spans::DEVICE_WRITE, target: spans::TARGET, LEVEL, ns),
        Op::Flush | Op::WriteDurable => {
            tracing::event!(name: spans::DEVICE_SYNC, target: spans::TARGET, LEVEL, ns)
        }
        Op::Status | Op::SetGroups | Op::Revoke | Op::Discard | Op::Claim => {}
    }
}

/// Whether a reply is the disk's, to the request with this nonce. An unsigned one is no reply, whatever it says: it only names
/// the error, none that makes anybody ask for a fresh capability.
fn authentic(
    reply: &Reply,
    tagged: &[u8],
    nonce: &[u8; NONCE_LEN],
    keys: &MessageKeys,
) -> Result<(), DiskError> {
    let head = &reply.head;
    if !head.signed {
        return Err(match head.refused {
            Some(Reason::WrongDisk) => DiskError::WrongDisk,
            Some(_) => DiskError::NotAuthentic,
            None => DiskError::BadReply("it is not signed"),
        });
    }
    if !sign::reply_holds(&reply.raw, nonce, keys) {
        return Err(DiskError::BadReply("its signature does not hold"));
    }
    if !sign::reply_payload_holds(&reply.raw, nonce, tagged, keys) {
        return Err(DiskError::BadReply("its payload was altered"));
    }
    Ok(())
}

fn miss(reason: Reason, words: &[u8], address: &DiskAddress) -> Miss {
    Miss::Final(match reason {
        Reason::StaleBoot | Reason::StaleEpoch | Reason::Replayed => return Miss::Again,
        Reason::OutOfSequence => return Miss::Behind,
        Reason::Busy => {
            return Miss::Lost(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the disk is too busy",
            ));
        }
        Reason::Revoked => DiskError::Revoked,
        Reason::UnknownGroup => DiskError::UnknownGroup,
        Reason::Overtaken => DiskError::Overtaken,
        Reason::OtherRoom => DiskError::OtherRoom,
        Reason::Expired => DiskError::Expired,
        Reason::WrongDisk => DiskError::WrongDisk,
        Reason::NotAuthentic | Reason::PayloadNotAuthentic => DiskError::NotAuthentic,
        Reason::Malformed => DiskError::NotAllowed("the disk does not understand the request"),
        Reason::ModeNotAllowed => DiskError::NotAllowed("its mode is another"),
        Reason::OutsideCapability => DiskError::NotAllowed("it does not cover these blocks"),
        Reason::OutsideDisk => DiskError::NotAllowed("the disk has no such blocks"),
        Reason::NoSpace => DiskError::NoSpace,
        Reason::Storage => DiskError::Storage(format!(
            "{} (disk {})",
            String::from_utf8_lossy(words),
            address.id
        )),
    })
}
