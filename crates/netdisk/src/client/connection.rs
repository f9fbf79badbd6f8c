//! One connection to a disk: requests of many threads on the way together; those that wait take turns at receiving.
//!
//! 1. One caller at a time receives, until its own reply is there; then another that waits goes on. So a reply that only one
//!    waits for wakes no other thread, and a connection needs none of its own.
//! 2. A reply is handed unread to the caller that waits for its number; that caller checks its authenticity.
//! 3. When the connection ends, every waiting caller learns it. A cancelled wait ends the connection, so that nothing of
//!    the request is still on its way out of this machine.

use std::collections::HashMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use streams::{Receiver, Sender, Socket, Stream};

use crate::frame::{REPLY_LEN, ReplyHead};
use crate::wire::{AHEAD, Side, Wire};

/// How often a caller that receives looks whether its time is over: an eighth of the time it has, within these bounds.
const TICK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
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
    calls: Mutex<Calls>,
    /// Of the caller whose turn it is to receive.
    receiver: Mutex<Receiver>,
    spare: Mutex<Vec<Vec<u8>>>,
}

/// The calls under way.
#[derive(Debug, Default)]
struct Calls {
    over: bool,
    /// Somebody has the turn to receive.
    receiving: bool,
    waiters: HashMap<u64, Waiter>,
}

struct Waiter {
    /// Bytes of payload it can take.
    most: usize,
    reply: Option<Reply>,
    /// Notified when its reply is there, when it is its turn to receive, and at the end of the connection.
    came: Arc<Condvar>,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

impl Calls {
    /// The caller that received has its reply: another that waits is woken to receive.
    fn pass_turn(&self) {
        if !self.receiving
            && let Some(next) = self.waiters.values().find(|w| w.reply.is_none())
        {
            next.came.notify_one();
        }
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
                let tick = (send_max / 8).clamp(TICK.0, TICK.1);
                Wire::new(
                    Socket::Tcp(socket),
                    side.clone(),
                    left,
                    Some(tick),
                    send_max,
                )
            }) {
                Ok(wire) => return Ok(Arc::new(Self::over(wire))),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn over(wire: Wire) -> Self {
        Self {
            wire,
            sender: Sender::default(),
            next: AtomicU64::new(1),
            calls: Mutex::default(),
            receiver: Mutex::new(Receiver::new(AHEAD)),
            spare: Mutex::default(),
        }
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
        let came = Arc::new(Condvar::new());
        {
            let mut calls = self.calls.lock();
            if calls.over {
                return Err(lost());
            }
            let waiter = Waiter {
                most,
                reply: None,
                came: came.clone(),
            };
            calls.waiters.insert(number, waiter);
        }
        if let Err(error) = self.sender.send(&self.wire, parts) {
            self.end();
            return Err(NoReply::Lost(error));
        }
        let mut calls = self.calls.lock();
        loop {
            let Some(waiter) = calls.waiters.get_mut(&number) else {
                // The end of the connection took it away.
                return Err(lost());
            };
            if let Some(reply) = waiter.reply.take() {
                calls.waiters.remove(&number);
                calls.pass_turn();
                return Ok(reply);
            }
            let failed = if calls.receiving {
                let late = came.wait_until(&mut calls, deadline).timed_out();
                let waits = calls
                    .waiters
                    .get(&number)
                    .is_some_and(|w| w.reply.is_none());
                (late && waits).then_some(NoReply::Late)
            } else {
                calls.receiving = true;
                let received = MutexGuard::unlocked(&mut calls, || self.receive(deadline));
                calls.receiving = false;
                received.err()
            };
            if let Some(failed) = failed {
                drop(calls);
                self.end();
                return Err(failed);
            }
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
            let mut calls = self.calls.lock();
            calls.over = true;
            std::mem::take(&mut calls.waiters)
        };
        for waiter in waiters.into_values() {
            waiter.came.notify_one();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.calls.lock().over
    }

    /// Receives one reply and hands it to the caller that waits for it. The caller has the turn.
    fn receive(&self, deadline: Instant) -> Result<(), NoReply> {
        let mut receiver = self.receiver.lock();
        let mut late = false;
        let go_on = &mut |_: bool| {
            late = Instant::now() >= deadline;
            match late {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => Ok(()),
            }
        };
        let received = self.receive_by(&mut receiver, go_on);
        received.map_err(|error| match late {
            true => NoReply::Late,
            false => NoReply::Lost(error),
        })
    }

    fn receive_by(
        &self,
        receiver: &mut Receiver,
        go_on: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let not_reply = || io::Error::new(io::ErrorKind::InvalidData, "what came is no reply");
        let mut raw = [0; REPLY_LEN];
        if !receiver.fill(&self.wire, &mut raw, go_on)? {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let head = ReplyHead::parse(&raw).ok_or_else(not_reply)?;
        let len = head.payload_len as usize;
        let fits = |waiter: &Waiter| waiter.reply.is_none() && len <= waiter.most;
        if !self
            .calls
            .lock()
            .waiters
            .get(&head.number)
            .is_some_and(fits)
        {
            return Err(not_reply());
        }
        let mut payload = if len > 0 {
            self.spare.lock().pop().unwrap_or_default()
        } else {
            Vec::new()
        };
        payload.resize(len, 0);
        receiver.fill_all(&self.wire, &mut payload, go_on)?;
        let mut calls = self.calls.lock();
        // Gone where its connection ended meanwhile.
        if let Some(waiter) = calls.waiters.get_mut(&head.number) {
            waiter.reply = Some(Reply { raw, head, payload });
            waiter.came.notify_one();
        }
        Ok(())
    }
}

fn lost() -> NoReply {
    NoReply::Lost(io::ErrorKind::ConnectionReset.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::sign;

    const LONG: Duration = Duration::from_secs(60);

    /// A connection, and the disk's end of it.
    fn pair() -> (Arc<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let until = Instant::now() + LONG;
        let near = Connection::open(&address, Side::Plain, until, Duration::from_secs(1)).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Sends its number as a request.
    fn ask(connection: &Connection, time: Duration) -> Result<u64, NoReply> {
        let number = connection.number();
        let request = number.to_le_bytes();
        let reply = connection.exchange(number, [&request, &[]], 8, Instant::now() + time)?;
        assert_eq!(reply.head.number, number);
        assert_eq!(reply.payload, request);
        Ok(number)
    }

    /// A reply whose payload is the number of its request.
    fn reply(number: u64) -> Vec<u8> {
        let head = ReplyHead {
            op: 1,
            refused: None,
            signed: false,
            number,
            boot: [0; 16],
            epoch: 0,
            incarnation: [0; 16],
            payload_len: 8,
            storage_us: 0,
        };
        let payload = number.to_le_bytes();
        [&sign::reply(&head, &payload, None)[..], &payload].concat()
    }

    #[test]
    fn the_turn_to_receive_is_passed_on_with_the_own_reply() {
        let (connection, mut disk) = pair();
        thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| ask(&connection, LONG)))
                .collect();
            let mut numbers = [[0; 8]; 8];
            numbers.iter_mut().for_each(|n| disk.read_exact(n).unwrap());
            // One at a time, and to the one that receives among the first: all others are still to be received then.
            for number in numbers {
                disk.write_all(&reply(u64::from_le_bytes(number))).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
        });
        // Nothing is left that would keep the next one from receiving.
        thread::scope(|scope| {
            let caller = scope.spawn(|| ask(&connection, LONG));
            let mut number = [0; 8];
            disk.read_exact(&mut number).unwrap();
            disk.write_all(&reply(u64::from_le_bytes(number))).unwrap();
            caller.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_caller_whose_time_is_over_ends_the_connection_for_all() {
        let short = Duration::from_millis(200);
        for times in [[short, LONG], [LONG, short]] {
            let (connection, _disk) = pair();
            let begun = Instant::now();
            let receiving = || connection.calls.lock().receiving;
            let ends = thread::scope(|scope| {
                let first = scope.spawn(|| ask(&connection, times[0]));
                while !receiving() && begun.elapsed() < LONG {
                    thread::yield_now();
                }
                let second = scope.spawn(|| ask(&connection, times[1]));
                [first, second].map(|caller| caller.join().unwrap().unwrap_err())
            });
            for (time, end) in times.into_iter().zip(ends) {
                assert_eq!(matches!(end, NoReply::Late), time == short, "{end:?}");
            }
            assert!(begun.elapsed() < LONG && connection.is_over());
        }
    }

    #[test]
    fn what_is_no_reply_or_belongs_to_nobody_ends_the_connection() {
        let strange = [reply(77), vec![0; REPLY_LEN], reply(1)[..20].to_vec()];
        for bytes in strange {
            let (connection, mut disk) = pair();
            thread::scope(|scope| {
                let caller = scope.spawn(|| ask(&connection, LONG));
                disk.read_exact(&mut [0; 8]).unwrap();
                disk.write_all(&bytes).unwrap();
                disk.shutdown(std::net::Shutdown::Both).unwrap();
                let end = caller.join().unwrap().unwrap_err();
                assert!(matches!(end, NoReply::Lost(_)), "{end:?}");
            });
            assert!(connection.is_over());
        }
    }

    #[test]
    fn a_disk_that_sends_byte_by_byte_is_late() {
        let (connection, mut disk) = pair();
        thread::scope(|scope| {
            // Each byte by itself, so that no tick passes without one.
            disk.set_nodelay(true).unwrap();
            let caller = scope.spawn(|| ask(&connection, Duration::from_millis(100)));
            let mut request = [0; 8];
            disk.read_exact(&mut request).unwrap();
            for byte in reply(u64::from_le_bytes(request)) {
                if disk.write_all(&[byte]).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            assert!(matches!(caller.join().unwrap(), Err(NoReply::Late)));
        });
    }
}
