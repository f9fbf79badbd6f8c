//! One connection: its workers take turns at receiving, act at the same time, and take turns at sending.
//!
//! 1. A payload is received only after its request was found sound, into memory that the budget allows.
//! 2. What cannot be understood ends the connection: where the next request begins is not known then.
//! 3. Small requests of a device that is quick are done by whoever receives, many in a row, and answered together: to wake
//!    another thread would take longer than to do them. What a device does slowly is never done while receiving.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::act::{self, Refusal};
use super::answer::{answer, inline_answer};
use super::budget::Permit;
use super::metrics::add;
use super::{Seat, Shared};
use crate::negotiate::{Agreed, Offer, negotiate};
use crate::proto::{Command, Errno, Form, PAYLOAD_MAX, RequestHead, cmd_flag};
use crate::socket::Socket;
use crate::wire::{Receiver, Sender, Wire};

/// Bytes of a worker's stack.
pub(crate) const STACK: usize = 512 << 10;
/// A worker keeps a buffer of up to this many bytes between requests.
const KEPT: usize = 64 << 10;
/// Larger buffers that are kept over all connections, and their most bytes.
const LARGE_KEPT: usize = 16;
const LARGE_MAX: usize = 2 << 20;
/// How often a waiting connection looks whether it is over.
const TICK: Duration = Duration::from_secs(1);
/// Requests with up to this many bytes of payload or answer are small.
pub(super) const SMALL: u64 = 32 << 10;
/// A device is quick while its small requests take less than this, on average.
const QUICK: u32 = 20_000;
/// The longest time that one request counts for in that, so that a pause is forgotten again.
const SLOW_MAX: u32 = 4_000_000;
/// Answers that are sent together, bytes.
const TOGETHER_MAX: usize = 128 << 10;

pub(super) struct Connection {
    pub(super) seat: Seat,
    pub(super) peer: String,
    pub(super) wire: Wire,
    pub(super) agreed: Agreed,
    receiving: Mutex<Receiving>,
    pub(super) sender: Sender,
    workers: AtomicUsize,
    /// Workers that wait for their turn to receive.
    waiting: AtomicUsize,
    /// Requests that were received and not answered.
    running: AtomicUsize,
    over: AtomicBool,
    pub(super) pace: Pace,
}

struct Receiving {
    receiver: Receiver,
    /// Answers that wait to be sent together.
    answers: Vec<u8>,
}

/// How long small requests take: a moving average, ns.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicU32);

impl Pace {
    fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) < QUICK
    }

    pub(super) fn took(&self, time: Duration) {
        let now = u32::try_from(time.as_nanos()).map_or(SLOW_MAX, |ns| ns.min(SLOW_MAX));
        let before = self.0.load(Ordering::Relaxed);
        // An average that loses a sample now and then does no harm.
        let after = before - before / 8 + now / 8;
        self.0.store(after, Ordering::Relaxed);
    }
}

/// A request that is there as a whole.
pub(super) struct Request<'s> {
    pub(super) head: RequestHead,
    pub(super) refused: Option<Refusal>,
    /// For the payload or the answer, in the worker's buffer.
    _permit: Option<Permit<'s>>,
}

impl Shared {
    /// Swaps a worker's small buffer for a large one that was kept, where it needs that.
    fn fetch(&self, buffer: &mut Vec<u8>, len: usize) {
        if len > KEPT
            && let Some(large) = self.large.lock().pop()
        {
            *buffer = large;
        }
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
    }

    /// Takes a large buffer from a worker that goes on to its next request; keeps a few of them.
    fn put_away(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() > KEPT {
            let large = std::mem::take(buffer);
            let mut kept = self.large.lock();
            if kept.len() < LARGE_KEPT && large.capacity() <= LARGE_MAX {
                kept.push(large);
            }
        }
    }
}

/// Serves a connection from its handshake on.
pub(super) fn serve(socket: Socket, peer: String, seat: Seat) {
    let shared = seat.shared.clone();
    let config = &shared.config;
    let tick = TICK.min(config.handshake_max.max(Duration::from_millis(4)) / 4);
    let cut = |error: &io::Error, what: &str| {
        if !shared.is_stopping() {
            add(&shared.counters.connections_cut, 1);
            tracing::warn!(peer, %error, "{what}");
        }
    };
    let mut wire = match Wire::new(socket, tick, config.transfer_max) {
        Ok(wire) => wire,
        Err(error) => return cut(&error, "a connection did not come about"),
    };
    let mut receiver = Receiver::new();
    let offer = Offer {
        exports: &shared.exports,
        tls: config.tls.as_ref(),
        policy: config.policy,
    };
    let deadline = Instant::now() + config.handshake_max;
    let agreed = match negotiate(offer, &mut wire, &mut receiver, deadline) {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return wire.farewell(),
        Err(error) => {
            cut(&error, "a connection was cut in its handshake");
            return wire.farewell();
        }
    };
    tracing::info!(peer, export = agreed.export.name, form = ?agreed.form, tls = wire.is_secure(), "connected");
    let connection = Arc::new(Connection {
        seat,
        peer,
        wire,
        agreed,
        receiving: Mutex::new(Receiving {
            receiver,
            answers: Vec::new(),
        }),
        sender: Sender::default(),
        workers: AtomicUsize::new(1),
        waiting: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        pace: Pace::default(),
    });
    work(&connection);
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The last worker: everything is answered.
        self.wire.farewell();
        tracing::debug!(peer = self.peer, "disconnected");
    }
}

/// One worker, until the connection is over.
fn work(connection: &Arc<Connection>) {
    let shared = &connection.seat.shared;
    let mut buffer = Vec::new();
    loop {
        connection.waiting.fetch_add(1, Ordering::SeqCst);
        let mut receiving = connection.receiving.lock();
        connection.waiting.fetch_sub(1, Ordering::SeqCst);
        if connection.over.load(Ordering::SeqCst) {
            return;
        }
        let request = match receive(connection, &mut receiving, &mut buffer) {
            Ok(Some(request)) => request,
            Ok(None) => {
                connection.over.store(true, Ordering::SeqCst);
                return;
            }
            Err(error) => {
                connection.over.store(true, Ordering::SeqCst);
                if !shared.is_stopping() {
                    add(&shared.counters.connections_cut, 1);
                    tracing::warn!(peer = connection.peer, %error, "a connection was cut");
                }
                connection.wire.stop_receiving();
                return;
            }
        };
        connection.running.fetch_add(1, Ordering::SeqCst);
        if request.refused.is_none() && connection.waiting.load(Ordering::SeqCst) == 0 {
            help(connection);
        }
        drop(receiving);
        answer(connection, &request, &mut buffer);
        drop(request);
        connection.running.fetch_sub(1, Ordering::SeqCst);
        shared.put_away(&mut buffer);
    }
}

/// One more worker, so that the next request is received while this one is done.
fn help(connection: &Arc<Connection>) {
    let shared = &connection.seat.shared;
    if connection.workers.load(Ordering::SeqCst) >= shared.config.workers_max {
        return;
    }
    connection.workers.fetch_add(1, Ordering::SeqCst);
    let helper = connection.clone();
    let started = std::thread::Builder::new()
        .name(format!("nbd-{}", connection.seat.number))
        .stack_size(STACK)
        .spawn(move || work(&helper));
    if let Err(error) = started {
        tracing::warn!(%error, "no further thread for a connection");
    }
}

impl Connection {
    pub(super) fn form(&self) -> Form {
        self.agreed.form
    }

    /// Sends what waits to be sent together. A failure ends the connection, which the receiving side sees.
    fn send_answers(&self, answers: &mut Vec<u8>) {
        if !answers.is_empty() {
            let _ = self.sender.send(&self.wire, [answers, &[]]);
            answers.clear();
        }
    }

    fn is_inline(&self, head: &RequestHead) -> bool {
        let kind = matches!(head.command, Command::Read | Command::Write);
        kind && head.len <= SMALL && !head.has(cmd_flag::FUA) && self.pace.is_quick()
    }
}

/// Whether the connection may go on waiting.
struct Patience<'c> {
    connection: &'c Connection,
    since: Instant,
    begun: Option<Instant>,
    inside: bool,
}

impl Patience<'_> {
    fn waited(&mut self, partial: bool) -> io::Result<()> {
        let shared = &self.connection.seat.shared;
        let late = |limit: Duration, since: Instant| {
            if since.elapsed() >= limit {
                Err(io::Error::from(io::ErrorKind::TimedOut))
            } else {
                Ok(())
            }
        };
        if partial || self.inside {
            let begun = *self.begun.get_or_insert_with(Instant::now);
            return late(shared.config.transfer_max, begun);
        }
        if shared.is_stopping() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if self.connection.running.load(Ordering::SeqCst) > 0 {
            self.since = Instant::now();
        }
        shared
            .config
            .idle_max
            .map_or(Ok(()), |limit| late(limit, self.since))
    }
}

/// The next request that is not done while receiving; its payload, if it is not refused, is in `buffer`. `None` at the end.
fn receive<'s>(
    connection: &'s Connection,
    receiving: &mut Receiving,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Request<'s>>> {
    let shared = &connection.seat.shared;
    let form = connection.form();
    let Receiving { receiver, answers } = receiving;
    let wire = &connection.wire;
    loop {
        let mut patience = Patience {
            connection,
            since: Instant::now(),
            begun: None,
            inside: false,
        };
        let mut raw = [0; 32];
        let raw = &mut raw[..form.request_len()];
        if receiver.ready() < raw.len() {
            connection.send_answers(answers);
        }
        let there = receiver.fill(wire, raw, &mut |partial| patience.waited(partial))?;
        if !there || shared.is_stopping() {
            connection.send_answers(answers);
            return Ok(None);
        }
        patience.inside = true;
        let head = RequestHead::parse(raw, form)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what came is no request"))?;
        let payload = head.payload_len(form);
        if payload > PAYLOAD_MAX.into() {
            let words = "a request with more than 32 MiB of payload";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        // At most 32 MiB.
        let payload = payload as usize;
        let agreed = &connection.agreed;
        let mut refused = act::check(&head, &agreed.export, form, agreed.allocation).err();
        if head.command == Command::Disconnect && refused.is_none() {
            shared.counters.done(head.command);
            connection.send_answers(answers);
            return Ok(None);
        }
        let inline = refused.is_none() && connection.is_inline(&head);
        if inline && let Some(payload) = receiver.take(payload) {
            inline_answer(connection, &head, payload, answers);
            if answers.len() >= TOGETHER_MAX {
                connection.send_answers(answers);
            }
            continue;
        }
        let mut whole = |receiver: &mut Receiver, out: &mut [u8]| {
            if out.is_empty()
                || receiver.fill(wire, out, &mut |partial| patience.waited(partial))?
            {
                Ok(())
            } else {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
        };
        let answer_len = match head.command {
            // Checked: at most 32 MiB.
            Command::Read => head.len as usize,
            _ => 0,
        };
        let room = payload.max(answer_len);
        let mut permit = None;
        if refused.is_none() {
            connection.send_answers(answers);
            permit = shared.budget.take(room, shared.config.transfer_max);
            if permit.is_none() {
                refused = Some(Refusal::new(
                    Errno::Memory,
                    "too much is on its way; try again",
                ));
            }
        }
        if refused.is_none() {
            shared.fetch(buffer, room);
            whole(receiver, &mut buffer[..payload])?;
        } else {
            let mut rest = payload;
            let mut scratch = [0; 4096];
            while rest > 0 {
                let part = rest.min(scratch.len());
                whole(receiver, &mut scratch[..part])?;
                rest -= part;
            }
        }
        if room as u64 <= SMALL {
            receiver.expect_small();
        }
        if inline {
            inline_answer(connection, &head, &buffer[..payload], answers);
            continue;
        }
        connection.send_answers(answers);
        return Ok(Some(Request {
            head,
            refused,
            _permit: permit,
        }));
    }
}
