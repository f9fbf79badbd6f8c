//! What servers of requests over connections need whatever their protocol: the disk server and the NBD server use it.
//!
//! To begin with, copy `examples/echo_server.rs`.
//!
//! 1. [`Socket`]: a connected socket on which no wait is without end. [`Stream`]: what a connection is made of, plain or
//!    enciphered.
//! 2. [`Sender`] and [`Receiver`]: the two halves of a connection that many threads use at once.
//! 3. [`Budget`] and [`Buffers`]: the memory of payloads, bounded over all connections and shared among them.
//! 4. [`Acceptor`], [`ConnectionLimiter`], [`Admission`]: who is let in, how many at once, and the orderly end.
//! 5. [`WorkerPool`]: the workers of a connection, who take turns at receiving.
//!
//! It deliberately does not know what the bytes mean, nor any cipher.

#![forbid(unsafe_code)]

mod accept;
mod admission;
mod budget;
mod buffers;
mod connections;
mod private;
mod receiver;
mod sender;
mod socket;
mod worker_pool;

use std::io;

pub use accept::{Acceptor, Listener, Serve};
pub use admission::{Admission, Limits, Standing};
pub use budget::{Budget, Holder, Permit};
pub use buffers::Buffers;
pub use connections::{ConnectionLimiter, ConnectionPermit, Counts, Prover};
pub use private::listen_privately;
pub use receiver::{Ahead, Receiver};
pub use sender::Sender;
pub use socket::{Socket, is_tick};
pub use worker_pool::{Served, WorkerPool, work};

/// A connection's bytes, in and out, for many threads at once: one receives and one sends at a time, and neither waits for
/// the other.
pub trait Stream: Sync {
    /// Some bytes; 0 at the end. `WouldBlock` or `TimedOut` (see [`is_tick`]) after a tick without any. The caller is the only
    /// one that receives.
    fn recv(&self, out: &mut [u8]) -> io::Result<usize>;
    /// Sends all of `parts`, three at most, within the time allowed. The caller is the only one that sends.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()>;
    /// Ends it for both sides; every thread that waits for it returns.
    fn cut(&self);
}
