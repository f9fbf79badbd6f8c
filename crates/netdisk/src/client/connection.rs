//! One connection to a disk: requests of many threads on the way together, and a thread that hands each its reply.
//!
//! 1. A reply is handed unread to the caller that waits for its number; that caller checks its authenticity.
//! 2. When the connection ends, every waiting caller learns it. A cancelled wait ends the connection, so that nothing of
//!    the request is still on its way out of this machine.

use std::collections::HashMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use streams::{Receiver, Sender, Socket, Stream};

use crate::frame::{REPLY_LEN, ReplyHead};
use crate::wire::{AHEAD, Side, Wire};

/// Bytes of the reading thread's stack.
const STACK: usize = 256 << 10;
/// Buffers kept for replies.
const SPARE_MAX: usize = 16;

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum NoReply {
    /// The connection ended; whether the request was done is not known.
    Lost(io::Error),
    /// The time was over.
    Late,
}

/// A reply as it came.
pub(super) struct Reply {
    pub(super) raw: [u8; REPLY_LEN],
    pub(super) head: ReplyHead,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    sender: Sender,
    next: AtomicU64,
    waiters: Mutex<Waiters>,
    spare: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Waiters {
    over: bool,
    of: HashMap<u64, Arc<Waiter>>,
}

#[derive(Default)]
struct Waiter {
    /// Bytes of payload it can take.
    most: usize,
    state: Mutex<Option<Result<Reply, ()>>>,
    came: Condvar,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, and shakes hands where the side wants that.
    /// `send_max`: a disk that takes no data for this long is gone.
    pub(super) fn open(
        address: &str,
        side: Side,
        deadline: Instant,
        send_max: Duration,
    ) -> io::Result<Arc<Self>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for to in address.to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&to, left).and_then(|socket| {
                Wire::new(Socket::Tcp(socket), side.clone(), left, None, send_max)
            }) {
                Ok(wire) => return Self::over(wire),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn over(wire: Wire) -> io::Result<Arc<Self>> {
        let connection = Arc::new(Self {
            wire,
            sender: Sender::default(),
            next: AtomicU64::new(1),
            waiters: Mutex::default(),
            spare: Mutex::default(),
        });
        std::thread::Builder::new()
            .name("disk-replies".into())
            .stack_size(STACK)
            .spawn({
                let connection = connection.clone();
                move || connection.hand_out()
            })?;
        Ok(connection)
    }

    /// A number for a request.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for the reply with its number, whose payload has at most `most` bytes.
    pub(super) fn exchange(
        &self,
        number: u64,
        parts: [&[u8]; 2],
        most: usize,
        deadline: Instant,
    ) -> Result<Reply, NoReply> {
        let lost = || NoReply::Lost(io::ErrorKind::ConnectionReset.into());
        let waiter = Arc::new(Waiter {
            most,
            ..Waiter::default()
        });
        {
            let mut waiters = self.waiters.lock();
            if waiters.over {
                return Err(lost());
            }
            waiters.of.insert(number, waiter.clone());
        }
        if let Err(error) = self.sender.send(&self.wire, parts) {
            self.end();
            return Err(NoReply::Lost(error));
        }
        let mut state = waiter.state.lock();
        while state.is_none() {
            if waiter.came.wait_until(&mut state, deadline).timed_out() && state.is_none() {
                drop(state);
                self.end();
                return Err(NoReply::Late);
            }
        }
        match state.take() {
            Some(Ok(reply)) => Ok(reply),
            _ => Err(lost()),
        }
    }

    /// A reply's buffer is not needed any more.
    pub(super) fn recycle(&self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            let mut spare = self.spare.lock();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        }
    }

    /// Ends it, for everybody.
    pub(super) fn end(&self) {
        self.wire.cut();
        let waiters = {
            let mut waiters = self.waiters.lock();
            waiters.over = true;
            std::mem::take(&mut waiters.of)
        };
        for waiter in waiters.into_values() {
            waiter.complete(Err(()));
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.waiters.lock().over
    }

    fn hand_out(&self) {
        let mut receiver = Receiver::new(AHEAD);
        while let Some((waiter, reply)) = self.receive(&mut receiver) {
            waiter.complete(Ok(reply));
        }
        self.end();
    }

    /// The next reply and who waits for it; `None` when the connection is over, or what came is no reply.
    fn receive(&self, receiver: &mut Receiver) -> Option<(Arc<Waiter>, Reply)> {
        // Without a tick nothing ever only waited.
        let go_on = &mut |_: bool| Ok(());
        let mut raw = [0; REPLY_LEN];
        if !receiver.fill(&self.wire, &mut raw, go_on).ok()? {
            return None;
        }
        let head = ReplyHead::parse(&raw)?;
        let waiter = self.waiters.lock().of.remove(&head.number)?;
        let len = head.payload_len as usize;
        if len > waiter.most {
            waiter.complete(Err(()));
            return None;
        }
        let mut payload = if len > 0 {
            self.spare.lock().pop().unwrap_or_default()
        } else {
            Vec::new()
        };
        payload.resize(len, 0);
        match receiver.fill_all(&self.wire, &mut payload, go_on) {
            Ok(()) => Some((waiter, Reply { raw, head, payload })),
            Err(_) => {
                waiter.complete(Err(()));
                None
            }
        }
    }
}

impl Waiter {
    fn complete(&self, result: Result<Reply, ()>) {
        *self.state.lock() = Some(result);
        self.came.notify_one();
    }
}
