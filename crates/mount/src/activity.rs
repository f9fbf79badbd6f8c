//! What goes on in a mount: when it was last used, and the writes under way. Apart from the server, so that a thread that
//! watches them does not keep the room open.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When something was last asked.
#[derive(Debug)]
pub(crate) struct Activity {
    last: Mutex<Instant>,
    /// The thread whose requests are no activity: it asks the kernel to write back.
    ignored: AtomicU32,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            ignored: AtomicU32::new(0),
        }
    }
}

impl Activity {
    /// Requests by thread `tid` are no activity from now on.
    pub(crate) fn ignore(&self, tid: u32) {
        self.ignored.store(tid, Ordering::Relaxed);
    }

    /// Notes that thread `tid` asked for something at the moment `now`.
    pub(crate) fn touched(&self, tid: u32, now: Instant) {
        if tid != self.ignored.load(Ordering::Relaxed) {
            *self.last.lock() = now;
        }
    }

    /// When somebody last asked for something.
    pub(crate) fn last(&self) -> Instant {
        *self.last.lock()
    }
}

/// Writes that are being served.
#[derive(Debug, Default)]
pub(crate) struct Writes(AtomicUsize);

impl Writes {
    /// Counts one for as long as what is returned lives.
    pub(crate) fn begin(&self) -> Writing<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Writing(self)
    }

    /// Waits until none is being served, a second at most.
    pub(crate) fn wait(&self) {
        for _ in 0..10_000 {
            if self.0.load(Ordering::SeqCst) == 0 {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// One write being served.
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a Writes);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
