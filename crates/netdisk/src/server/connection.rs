//! One connection: its workers take turns at receiving, act at the same time, and take turns at sending.
//!
//! 1. A payload is received only after its header's checks held, into memory that the budget allows.
//! 2. What cannot be understood ends the connection: where the next message begins is not known then.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use streams::{
    Buffers, ConnectionPermit, Holder, Permit, Receiver, Sender, Served, Socket, WorkerPool,
};

use super::Shared;
use super::check::{Access, KeyCache};
use super::metrics::add;
use super::proof::Proof;
use crate::bytes::{array_at, u32_at, u64_at};
use crate::capability::CAPABILITY_MAX;
use crate::frame::{Op, REQUEST_LEN, ROOM_LEN, ReplyHead, RequestHead};
use crate::wire::{AHEAD, Wire};
use crate::{BlockExtent, CapabilityId, GroupId, Reason, Writer, sign, store};

/// How often a waiting connection looks whether it is over.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of words that go with a failure of the store.
const WORDS_MAX: usize = 256;
/// A write of up to so many bytes is short: it goes to the page cache, as a rule.
const SHORT_WRITE_MAX: u32 = 16 << 10;

struct Connection {
    shared: Arc<Shared>,
    peer: String,
    network: Option<IpAddr>,
    proof: Proof,
    wire: Wire,
    sender: Sender,
    /// Last: when its permit is free nothing of the connection is left.
    worker_pool: WorkerPool<Receiving>,
}

struct Receiving {
    receiver: Receiver,
    cache: KeyCache,
    capability: Vec<u8>,
}

/// A request that is there as a whole.
struct Request<'s> {
    head: RequestHead,
    raw: [u8; REQUEST_LEN],
    access: Option<Arc<Access>>,
    refused: Option<Reason>,
    /// For the payload or the answer, in the worker's buffer.
    _permit: Option<Permit<'s>>,
}

/// Serves a connection from its handshake on.
pub(super) fn serve(shared: Arc<Shared>, socket: Socket, peer: String, permit: ConnectionPermit) {
    let config = &shared.config;
    let tick = TICK.min(config.first_request_max.max(Duration::from_millis(4)) / 4);
    let wire = match Wire::new(
        socket,
        shared.side.clone(),
        config.first_request_max,
        Some(tick),
        config.transfer_max,
    ) {
        Ok(wire) => wire,
        Err(error) => {
            shared.limiter.count_cut();
            tracing::debug!(peer, %error, "a connection did not come about");
            return;
        }
    };
    let receiving = Receiving {
        receiver: Receiver::new(AHEAD),
        cache: KeyCache::new(),
        capability: vec![0; CAPABILITY_MAX],
    };
    let connection = Arc::new(Connection {
        network: permit.network(),
        proof: Proof::new(permit.prover()),
        worker_pool: WorkerPool::new(permit, config.workers_max, receiving),
        shared,
        peer,
        wire,
        sender: Sender::default(),
    });
    streams::work(&connection);
}

impl Served for Connection {
    type Receiving = Receiving;
    type Request<'c> = Request<'c>;

    fn worker_pool(&self) -> &WorkerPool<Receiving> {
        &self.worker_pool
    }

    fn buffers(&self) -> &Buffers {
        &self.shared.buffers
    }

    fn receive<'c>(
        &'c self,
        receiving: &mut Receiving,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Request<'c>>> {
        let shared = &self.shared;
        let config = &shared.config;
        let mut begun: Option<Instant> = None;
        let mut waited = |partial: bool, inside: bool| {
            let late = || Err(io::ErrorKind::TimedOut.into());
            if partial || inside {
                let begun = begun.get_or_insert_with(Instant::now);
                if begun.elapsed() >= config.transfer_max {
                    return late();
                }
            } else if shared.limiter.is_stopping() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let unproved = self.proof.missing_for(&shared.guard);
            if unproved.is_some_and(|time| time >= config.first_request_max) {
                return late();
            }
            Ok(())
        };
        let wire = &self.wire;
        let mut raw = [0; REQUEST_LEN];
        let there = receiving
            .receiver
            .fill(wire, &mut raw, &mut |partial| waited(partial, false))?;
        if !there || shared.limiter.is_stopping() {
            return Ok(None);
        }
        let waited = &mut |partial| waited(partial, true);
        let head = match RequestHead::parse(&raw, shared.guard.is_open()) {
            Ok(head) => head,
            Err(reason) => {
                refuse_nonsense(self, &raw, reason);
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not a request"));
            }
        };
        let capability = &mut receiving.capability[..usize::from(head.capability_len)];
        receiving.receiver.fill_all(wire, capability, waited)?;
        let verdict =
            shared
                .guard
                .check_head(&head, &raw, capability, &mut receiving.cache, &shared.store);
        let mut refused = verdict.refused;
        let payload = head.payload_len as usize;
        let mut permit = None;
        if refused.is_none() {
            let most = payload.max(head.answer_len());
            permit = match self.proof.is_operator() {
                true => shared.payload(most, &[]),
                // A request that somebody else repeats counts as that client's at this address.
                false => {
                    let access = verdict.access.as_deref();
                    let client = access.and_then(Access::client).map_or(0, |client| client.0);
                    let client = Holder::Client(client, self.network);
                    shared.payload(most, &[Holder::Address(self.network), client])
                }
            };
            if permit.is_none() {
                refused = Some(Reason::Busy);
            }
        }
        if refused.is_none() {
            let len = payload.max(head.answer_len());
            shared.buffers.fetch(buffer, len);
            receiving
                .receiver
                .fill_all(wire, &mut buffer[..payload], waited)?;
        } else {
            receiving.receiver.skip(wire, payload, waited)?;
        }
        Ok(Some(Request {
            head,
            raw,
            access: verdict.access,
            refused,
            _permit: permit,
        }))
    }

    fn is_refused(request: &Request<'_>) -> bool {
        request.refused.is_some()
    }

    fn is_short(&self, receiving: &Receiving, request: &Request<'_>) -> bool {
        // A revocation behind a write of the metadata server would wait where the device hangs.
        request.head.op == Op::Write
            && request.head.payload_len <= SHORT_WRITE_MAX
            && receiving.receiver.ready() == 0
            && !self.proof.is_operator()
    }

    fn answer(&self, request: &Request<'_>, buffer: &mut Vec<u8>) {
        let shared = &self.shared;
        let in_flight = shared.in_flight();
        let head = &request.head;
        // Of before the write: one that a failed flush overtakes must not look newer than that.
        let incarnation = shared.store.incarnation();
        let mut storage = StorageTime::default();
        let done = match request.refused {
            Some(reason) => Err((reason, None)),
            None => act(self, request, buffer, &mut storage),
        };
        let (refused, len) = match done {
            Ok(len) => {
                shared.counters.done(head.op);
                (None, len)
            }
            Err((reason, words)) => {
                shared.counters.refused(reason, &self.peer);
                buffer.clear();
                if let Some(words) = words {
                    let words: io::Error = words;
                    buffer.extend(words.to_string().bytes().take(WORDS_MAX));
                }
                if reason == Reason::OutOfSequence {
                    buffer.extend(shared.guard.groups.sequence().to_le_bytes());
                }
                (Some(reason), buffer.len())
            }
        };
        drop(in_flight);
        let reply = ReplyHead {
            op: head.op as u8,
            refused,
            signed: request.access.is_some(),
            number: head.number,
            boot: shared.guard.boot,
            epoch: match refused {
                Some(Reason::StaleBoot | Reason::StaleEpoch) => shared.guard.epoch().0,
                _ => shared.guard.reported_epoch(),
            },
            incarnation: incarnation.0,
            // At most 1 MiB.
            payload_len: len as u32,
            storage_us: storage.0.as_micros().try_into().unwrap_or(u32::MAX),
        };
        let signer = request.access.as_ref().map(|a| (&a.keys, &head.nonce));
        let tagged = shared.guard.protection.tagged(&buffer[..len]);
        let bytes = sign::reply(&reply, tagged, signer);
        // A failure ends the connection, which the receiving side sees.
        let _ = self.sender.send(&self.wire, [&bytes, &buffer[..len]]);
    }

    fn failed(&self, error: &io::Error) {
        if !self.shared.limiter.is_stopping() {
            self.shared.limiter.count_cut();
            tracing::debug!(peer = self.peer, %error, "a connection was cut");
        }
        self.wire.stop_receiving();
    }
}

/// How long the disk's own storage took for a request.
#[derive(Default)]
struct StorageTime(Duration);

impl StorageTime {
    fn of<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = call();
        self.0 += begun.elapsed();
        done
    }
}

/// Does a request whose header's checks held; how much of `buffer` answers it.
fn act(
    connection: &Connection,
    request: &Request<'_>,
    buffer: &mut Vec<u8>,
    storage: &mut StorageTime,
) -> Result<usize, (Reason, Option<io::Error>)> {
    let Request {
        head, raw, access, ..
    } = request;
    let refused = |reason| (reason, None);
    let failed = |e: io::Error| (store::reason(&e), Some(e));
    let shared = &connection.shared;
    let payload = head.payload_len as usize;
    let _running = shared
        .guard
        .check_rest(head, raw, access.as_deref(), &buffer[..payload])
        .map_err(refused)?;
    if !connection.proof.give(access.as_ref()) {
        return Err(refused(Reason::Busy));
    }
    let timeout = shared.config.drain_max;
    match head.op {
        Op::Read => {
            let len = head.answer_len();
            storage
                .of(|| shared.store.read(head.start, &mut buffer[..len]))
                .map_err(failed)?;
            add(&shared.counters.bytes_read, len as u64);
            return Ok(len);
        }
        Op::Write | Op::WriteDurable => {
            storage
                .of(|| shared.store.write(head.start, &buffer[..payload]))
                .map_err(failed)?;
            if head.op == Op::WriteDurable {
                storage.of(|| shared.store.flush()).map_err(failed)?;
            }
            add(&shared.counters.bytes_written, payload as u64);
        }
        Op::Flush => storage.of(|| shared.store.flush()).map_err(failed)?,
        Op::Status => {
            *buffer = status(shared);
            return Ok(buffer.len());
        }
        Op::SetGroups => {
            let groups: Vec<_> = buffer[..payload]
                .chunks_exact(8)
                .map(|bytes| GroupId(u64_at(bytes, 0)))
                .collect();
            let writer = Writer(head.start);
            let set = shared
                .guard
                .groups
                .set(writer, head.blocks, &groups, timeout);
            set.map_err(refused)?;
        }
        Op::Revoke => {
            let group = GroupId(u64_at(buffer, 0));
            let ids: Vec<_> = buffer[8..payload]
                .chunks_exact(4)
                .map(|bytes| CapabilityId(u32_at(bytes, 0)))
                .collect();
            shared
                .guard
                .groups
                .revoke(group, &ids, timeout)
                .map_err(refused)?;
        }
        Op::Claim => {
            let (room, next) = (array_at(buffer, 0), array_at(buffer, ROOM_LEN));
            let claimed = storage.of(|| shared.store.claim(room, next));
            if !claimed.map_err(failed)? {
                return Err(refused(Reason::OtherRoom));
            }
        }
        Op::Discard => {
            let groups = &shared.guard.groups;
            let own = groups.enter_own(Writer(head.start), head.blocks, timeout);
            let _running = own.map_err(refused)?;
            for bytes in buffer[..payload].chunks_exact(16) {
                let extent = BlockExtent {
                    start: u64_at(bytes, 0),
                    blocks: u64_at(bytes, 8),
                };
                if !shared.store.has(extent.start, extent.blocks) {
                    return Err(refused(Reason::OutsideDisk));
                }
                shared.store.discard(extent).map_err(failed)?;
            }
        }
    }
    Ok(0)
}

/// The disk's state, as `docs/netdisk.md` lays it out.
fn status(shared: &Shared) -> Vec<u8> {
    let groups = shared.guard.groups.valid();
    let mut out = Vec::with_capacity(32 + groups.len() * 8);
    out.extend_from_slice(&shared.store.id().0);
    out.extend_from_slice(&shared.store.blocks().to_le_bytes());
    out.extend_from_slice(&shared.guard.clock.now().to_le_bytes());
    for group in groups {
        out.extend_from_slice(&group.0.to_le_bytes());
    }
    out
}

/// Answers a sender of what is not a request; unsigned, and the last message.
fn refuse_nonsense(connection: &Connection, raw: &[u8; REQUEST_LEN], reason: Reason) {
    let shared = &connection.shared;
    shared.counters.refused(reason, &connection.peer);
    let reply = ReplyHead {
        op: raw[5],
        refused: Some(reason),
        signed: false,
        number: u64_at(raw, 8),
        boot: shared.guard.boot,
        epoch: shared.guard.reported_epoch(),
        incarnation: [0; 16],
        payload_len: 0,
        storage_us: 0,
    };
    let bytes = sign::reply(&reply, &[], None);
    let _ = connection.sender.send(&connection.wire, [&bytes, &[]]);
    connection.wire.linger();
}
