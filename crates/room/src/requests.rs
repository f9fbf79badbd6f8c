//! What is asked of the room's own thread.

use std::collections::HashSet;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::reports::LostExtent;

/// Damaged ranges remembered, so that each is logged once.
const NOTED_MAX: usize = 10_000;

/// The requests that wait for the thread.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: Mutex<Wake>,
    asked: Condvar,
    /// Damaged ranges that were seen before.
    noted: Mutex<HashSet<LostExtent>>,
}

/// Requests to the thread.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) stop: bool,
    pub(crate) commit: bool,
    /// Much is pending: some of a commit's work can be done before it.
    pub(crate) ahead: bool,
    pub(crate) reap: bool,
    pub(crate) flush: bool,
    pub(crate) punch: bool,
    /// There was no space: the cleaner shall look now.
    pub(crate) clean: bool,
    /// A snapshot was deleted: what it holds is to go.
    pub(crate) merge: bool,
    /// What is remembered outside the room is to be written down.
    pub(crate) remember: bool,
    /// Ranges that failed authentication, to be named in the log.
    pub(crate) damaged: Vec<LostExtent>,
}

impl Wake {
    fn is_empty(&self) -> bool {
        let asked = self.stop || self.commit || self.ahead || self.reap || self.flush;
        !(asked || self.punch || self.clean || self.merge || self.remember)
            && self.damaged.is_empty()
    }
}

impl Requests {
    /// Sends the thread a request.
    pub(crate) fn ask(&self, what: impl FnOnce(&mut Wake)) {
        what(&mut self.waiting.lock());
        self.asked.notify_one();
    }

    /// Notes a range that fails authentication, for the log line that names its file. Once each, up to a limit.
    pub(crate) fn note_damage(&self, lost: LostExtent) {
        let mut noted = self.noted.lock();
        let is_new = noted.len() < NOTED_MAX && noted.insert(lost);
        drop(noted);
        if is_new {
            self.ask(|wake| wake.damaged.push(lost));
        }
    }

    /// Takes all requests, and waits for the first until `due`.
    pub(crate) fn take(&self, due: Instant) -> Wake {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            self.asked.wait_until(&mut waiting, due);
        }
        std::mem::take(&mut waiting)
    }
}
