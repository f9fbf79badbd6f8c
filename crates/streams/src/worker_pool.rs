//! The workers of a connection: they take turns at receiving, and act at the same time.
//!
//! 1. There are never more than allowed; a further one is started when a request came and nobody waits for the next.
//! 2. What cannot be received ends the connection: where the next request begins is not known then.
//! 3. A short request is answered by the worker that received it, before the next is received: to wake another takes longer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{Buffers, ConnectionPermit};

/// A connection whose requests are received one after the other and done at the same time.
pub trait Served: Send + Sync + Sized + 'static {
    /// What belongs to the worker whose turn it is to receive.
    type Receiving: Send;
    /// A request that is there as a whole.
    type Request<'c>;

    /// Its workers.
    fn worker_pool(&self) -> &WorkerPool<Self::Receiving>;
    /// Where they put large buffers between requests.
    fn buffers(&self) -> &Buffers;
    /// The next request; its payload, if it is not refused, is in `buffer`. `None` at the end.
    fn receive<'c>(
        &'c self,
        receiving: &mut Self::Receiving,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Self::Request<'c>>>;
    /// Whether a request is not to be done.
    fn is_refused(request: &Self::Request<'_>) -> bool;
    /// Whether a request that is there, and nothing behind it, takes no longer than waking another worker does. `false` unless said.
    fn is_short(&self, _receiving: &Self::Receiving, _request: &Self::Request<'_>) -> bool {
        false
    }
    /// Does a request and sends the answer. A failure to send ends the connection, which the receiving side sees.
    fn answer(&self, request: &Self::Request<'_>, buffer: &mut Vec<u8>);
    /// Nothing more can be received.
    fn failed(&self, error: &io::Error);
}

/// The workers of one connection.
#[derive(Debug)]
pub struct WorkerPool<R> {
    permit: ConnectionPermit,
    max: usize,
    receiving: Mutex<R>,
    workers: AtomicUsize,
    /// Workers that wait for their turn to receive.
    waiting: AtomicUsize,
    /// Requests that were received and not answered.
    running: AtomicUsize,
    over: AtomicBool,
}

impl<R> WorkerPool<R> {
    /// One worker on the connection of `permit`; it starts further ones, up to `max`.
    pub fn new(permit: ConnectionPermit, max: usize, receiving: R) -> Self {
        Self {
            permit,
            max,
            receiving: Mutex::new(receiving),
            workers: AtomicUsize::new(1),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Requests that were received and not answered.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The first worker of a connection, until that is over.
pub fn work<C: Served>(connection: &Arc<C>) {
    let worker_pool = connection.worker_pool();
    let mut buffer = Vec::new();
    loop {
        worker_pool.waiting.fetch_add(1, Ordering::SeqCst);
        let mut receiving = worker_pool.receiving.lock();
        worker_pool.waiting.fetch_sub(1, Ordering::SeqCst);
        if worker_pool.over.load(Ordering::SeqCst) {
            return;
        }
        let request = loop {
            let request = match connection.receive(&mut receiving, &mut buffer) {
                Ok(Some(request)) => request,
                Ok(None) => return worker_pool.end(),
                Err(error) => {
                    worker_pool.end();
                    return connection.failed(&error);
                }
            };
            worker_pool.running.fetch_add(1, Ordering::SeqCst);
            if !connection.is_short(&receiving, &request) {
                break request;
            }
            finish(&**connection, request, &mut buffer);
        };
        if !C::is_refused(&request) && worker_pool.waiting.load(Ordering::SeqCst) == 0 {
            help(connection);
        }
        drop(receiving);
        finish(&**connection, request, &mut buffer);
    }
}

fn finish<C: Served>(connection: &C, request: C::Request<'_>, buffer: &mut Vec<u8>) {
    connection.answer(&request, buffer);
    drop(request);
    connection
        .worker_pool()
        .running
        .fetch_sub(1, Ordering::SeqCst);
    connection.buffers().put_away(buffer);
}

/// One more worker, so that the next request is received while this one is done.
fn help<C: Served>(connection: &Arc<C>) {
    let worker_pool = connection.worker_pool();
    if worker_pool.workers.load(Ordering::SeqCst) >= worker_pool.max {
        return;
    }
    worker_pool.workers.fetch_add(1, Ordering::SeqCst);
    let helper = connection.clone();
    worker_pool.permit.spawn(move || work(&helper));
}
