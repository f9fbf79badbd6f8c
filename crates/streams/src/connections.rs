//! The limit on open connections, and their counters.
//!
//! 1. There are never more than allowed.
//! 2. Each is known by a handle of its socket, so that all can be ended.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::admission::network;
use crate::{Admission, Limits, Socket, Standing};

/// The connections of a server.
#[derive(Debug)]
pub struct ConnectionLimiter {
    name: &'static str,
    stack: usize,
    /// What a connection counts as when it comes.
    first: Standing,
    stopping: AtomicBool,
    places: Mutex<Places>,
    left: Condvar,
    taken: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug)]
struct Places {
    admission: Admission,
    taken: HashMap<u64, Socket>,
}

/// What was counted of a server's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections now.
    pub now: u64,
    /// Taken since the start.
    pub taken: u64,
    /// Closed or turned away, because there were too many.
    pub refused: u64,
    /// Cut off, says who serves them.
    pub cut: u64,
}

/// Permission for one connection; released when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    all: Arc<ConnectionLimiter>,
    number: u64,
    network: Option<IpAddr>,
}

/// Notes what a connection has proved, in the count of all.
#[derive(Debug)]
pub struct Prover {
    all: Arc<ConnectionLimiter>,
    number: u64,
}

impl ConnectionLimiter {
    /// `max` connections of anybody. The threads of a connection are named `name-NUMBER`, and have `stack` bytes.
    pub fn new(name: &'static str, stack: usize, max: usize) -> Arc<Self> {
        Self::with(name, stack, Limits::total(max), Standing::Client(None))
    }

    /// The same for a server whose connections prove who they are: [`Prover::prove`]. Until then they count among those that wait.
    pub fn authenticating(name: &'static str, stack: usize, limits: Limits) -> Arc<Self> {
        Self::with(name, stack, limits, Standing::Waiting)
    }

    fn with(name: &'static str, stack: usize, limits: Limits, first: Standing) -> Arc<Self> {
        Arc::new(Self {
            name,
            stack,
            first,
            stopping: AtomicBool::new(false),
            places: Mutex::new(Places {
                admission: Admission::new(limits),
                taken: HashMap::new(),
            }),
            left: Condvar::new(),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        })
    }

    /// Whether nothing new is to be begun any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Counts a connection that is cut off.
    pub fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted, now.
    pub fn counts(&self) -> Counts {
        Counts {
            now: self.places.lock().taken.len() as u64,
            taken: self.taken.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// A place for a connection from this address; `None` where there is none left.
    pub(crate) fn take(
        self: &Arc<Self>,
        socket: &Socket,
        address: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        let refused = || {
            self.refused.fetch_add(1, Ordering::Relaxed);
            None
        };
        let Ok(handle) = socket.try_clone() else {
            return refused();
        };
        let number = {
            let mut places = self.places.lock();
            let (number, displaced) = places.admission.begin(address);
            if !places.admission.prove(number, self.first) {
                places.admission.end(number);
                return refused();
            }
            if let Some(displaced) = displaced.and_then(|number| places.taken.get(&number)) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                displaced.shutdown(Shutdown::Both);
            }
            places.taken.insert(number, handle);
            number
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit {
            all: self.clone(),
            number,
            network: address.map(network),
        })
    }

    /// A thread for the connection of this number. Where there can be none, what `work` holds is dropped.
    pub(crate) fn spawn(&self, number: u64, work: impl FnOnce() + Send + 'static) {
        let started = std::thread::Builder::new()
            .name(format!("{}-{number}", self.name))
            .stack_size(self.stack)
            .spawn(work);
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a connection");
        }
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Lets connections answer what they received, and cuts those that are left after `timeout`.
    pub(crate) fn end(&self, timeout: Duration) {
        let mut places = self.places.lock();
        for socket in places.taken.values() {
            socket.shutdown(Shutdown::Read);
        }
        let deadline = Instant::now() + timeout;
        while !places.taken.is_empty() {
            if self.left.wait_until(&mut places, deadline).timed_out() {
                break;
            }
        }
        for socket in places.taken.values() {
            socket.shutdown(Shutdown::Both);
        }
    }
}

impl ConnectionPermit {
    /// What notes what the connection has proved.
    pub fn prover(&self) -> Prover {
        Prover {
            all: self.all.clone(),
            number: self.number,
        }
    }

    /// What is counted as its address; none where it did not come over a network.
    pub fn network(&self) -> Option<IpAddr> {
        self.network
    }

    /// A further thread for the connection, if there can be one.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        self.all.spawn(self.number, work);
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Prover {
    /// Notes what the connection has proved; false where there are too many like it, and it counts as before.
    pub fn prove(&self, standing: Standing) -> bool {
        let proved = self
            .all
            .places
            .lock()
            .admission
            .prove(self.number, standing);
        if !proved {
            self.all.refused.fetch_add(1, Ordering::Relaxed);
        }
        proved
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut places = self.all.places.lock();
        places.taken.remove(&self.number);
        places.admission.end(self.number);
        drop(places);
        self.all.left.notify_all();
    }
}
