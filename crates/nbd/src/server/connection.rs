//! One connection: its workers take turns at receiving, act at the same time, and take turns at sending.
//!
//! 1. A payload is received only after its request was found sound, into memory that the budget allows.
//! 2. What cannot be understood ends the connection: where the next request begins is not known then.
//! 3. Small requests of a quick device are done by the receiving thread, many in a row, and answered together: to wake
//!    another thread would take longer than to do them. What a device does slowly is never done while receiving.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use streams::{Buffers, ConnectionPermit, Permit, Receiver, Sender, Served, Socket, WorkerPool};

use super::Shared;
use super::act::{self, Refusal};
use super::answer::{answer, inline_answer};
use crate::negotiate::{Agreed, Offer, negotiate};
use crate::proto::{Command, Errno, Form, PAYLOAD_MAX, RequestHead, cmd_flag};
use crate::wire::{AHEAD, Wire};

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
    pub(super) shared: Arc<Shared>,
    pub(super) peer: String,
    pub(super) wire: Wire,
    pub(super) agreed: Agreed,
    pub(super) sender: Sender,
    pub(super) pace: Pace,
    /// Last: its permit is released after everything else of the connection.
    worker_pool: WorkerPool<Receiving>,
}

pub(super) struct Receiving {
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

/// Serves a connection from its handshake on.
pub(super) fn serve(shared: Arc<Shared>, socket: Socket, peer: String, permit: ConnectionPermit) {
    let config = &shared.config;
    let tick = TICK.min(config.handshake_max.max(Duration::from_millis(4)) / 4);
    let cut = |error: &io::Error, what: &str| {
        if !shared.is_stopping() {
            shared.limiter.count_cut();
            tracing::warn!(peer, %error, "{what}");
        }
    };
    let send_max = config.transfer_max.min(config.handshake_max);
    let mut wire = match Wire::new(socket, tick, send_max) {
        Ok(wire) => wire,
        Err(error) => return cut(&error, "a connection did not come about"),
    };
    let mut receiver = Receiver::new(AHEAD);
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
    if let Err(error) = wire.send_within(config.transfer_max) {
        return cut(&error, "a connection was cut after its handshake");
    }
    tracing::info!(peer, export = agreed.export.name, form = ?agreed.form, tls = wire.is_secure(), "connected");
    let receiving = Receiving {
        receiver,
        answers: Vec::new(),
    };
    let connection = Arc::new(Connection {
        worker_pool: WorkerPool::new(permit, config.workers_max, receiving),
        shared,
        peer,
        wire,
        agreed,
        sender: Sender::default(),
        pace: Pace::default(),
    });
    streams::work(&connection);
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The last worker: everything is answered.
        self.wire.farewell();
        tracing::debug!(peer = self.peer, "disconnected");
    }
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
        let form = self.form();
        let Receiving { receiver, answers } = receiving;
        let wire = &self.wire;
        loop {
            let mut limit = WaitLimit {
                connection: self,
                since: Instant::now(),
                begun: None,
                inside: false,
            };
            let mut raw = [0; 32];
            let raw = &mut raw[..form.request_len()];
            if receiver.ready() < raw.len() {
                self.send_answers(answers);
            }
            let there = receiver.fill(wire, raw, &mut |partial| limit.waited(partial))?;
            if !there || shared.is_stopping() {
                self.send_answers(answers);
                return Ok(None);
            }
            limit.inside = true;
            let head = RequestHead::parse(raw, form).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "what came is no request")
            })?;
            let payload = head.payload_len(form);
            if payload > PAYLOAD_MAX.into() {
                let words = "a request with more than 32 MiB of payload";
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            // At most 32 MiB.
            let payload = payload as usize;
            let agreed = &self.agreed;
            let mut refused = act::check(&head, &agreed.export, form, agreed.allocation).err();
            if head.command == Command::Disconnect && refused.is_none() {
                shared.counters.done(head.command);
                self.send_answers(answers);
                return Ok(None);
            }
            let inline = refused.is_none() && self.is_inline(&head);
            if inline && let Some(payload) = receiver.take(payload) {
                inline_answer(self, &head, payload, answers);
                if answers.len() >= TOGETHER_MAX {
                    self.send_answers(answers);
                }
                continue;
            }
            let waited = &mut |partial| limit.waited(partial);
            let answer_len = match head.command {
                // Checked: at most 32 MiB.
                Command::Read => head.len as usize,
                _ => 0,
            };
            let room = payload.max(answer_len);
            let mut permit = None;
            if refused.is_none() {
                self.send_answers(answers);
                permit = shared.budget.take(room, &[], shared.config.transfer_max);
                if permit.is_none() {
                    refused = Some(Refusal::new(
                        Errno::Memory,
                        "too much is on its way; try again",
                    ));
                }
            }
            if refused.is_none() {
                shared.buffers.fetch(buffer, room);
                receiver.fill_all(wire, &mut buffer[..payload], waited)?;
            } else {
                receiver.skip(wire, payload, waited)?;
            }
            if room as u64 <= SMALL {
                receiver.expect_small();
            }
            if inline {
                inline_answer(self, &head, &buffer[..payload], answers);
                continue;
            }
            self.send_answers(answers);
            return Ok(Some(Request {
                head,
                refused,
                _permit: permit,
            }));
        }
    }

    fn is_refused(request: &Request<'_>) -> bool {
        request.refused.is_some()
    }

    fn answer(&self, request: &Request<'_>, buffer: &mut Vec<u8>) {
        answer(self, request, buffer);
    }

    fn failed(&self, error: &io::Error) {
        if !self.shared.is_stopping() {
            self.shared.limiter.count_cut();
            tracing::warn!(peer = self.peer, %error, "a connection was cut");
        }
        self.wire.stop_receiving();
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
struct WaitLimit<'c> {
    connection: &'c Connection,
    since: Instant,
    begun: Option<Instant>,
    inside: bool,
}

impl WaitLimit<'_> {
    fn waited(&mut self, partial: bool) -> io::Result<()> {
        let shared = &self.connection.shared;
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
        if self.connection.worker_pool.running() > 0 {
            self.since = Instant::now();
        }
        shared
            .config
            .idle_max
            .map_or(Ok(()), |limit| late(limit, self.since))
    }
}
