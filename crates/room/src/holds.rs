//! Holds on inodes beyond their names, and the inodes to be deleted for want of both.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::InodeNo;
use parking_lot::Mutex;

use crate::environment::Environment;

/// So many inodes are deleted at once; fewer wait for others a moment.
const MANY: usize = 1024;

#[derive(Debug)]
pub(crate) struct Holds {
    env: Arc<Environment>,
    held: Mutex<Held>,
    /// Without a name or a holder.
    doomed: Mutex<Vec<InodeNo>>,
    /// Those for whose deletion there was no space.
    put_off: Mutex<Vec<InodeNo>>,
}

#[derive(Debug, Default)]
struct Held {
    counts: HashMap<InodeNo, u64>,
    unlinked: HashSet<InodeNo>,
    /// When the last of those lost its last name.
    unlinked_at: Option<Instant>,
}

impl Holds {
    pub(crate) fn new(env: Arc<Environment>) -> Self {
        Self {
            env,
            held: Mutex::default(),
            doomed: Mutex::default(),
            put_off: Mutex::default(),
        }
    }

    /// Keeps an inode alive beyond its last name.
    pub(crate) fn hold(&self, no: InodeNo) {
        *self.held.lock().counts.entry(no).or_insert(0) += 1;
    }

    /// Holds an inode that has no name.
    pub(crate) fn hold_unnamed(&self, no: InodeNo) {
        let mut held = self.held.lock();
        *held.counts.entry(no).or_insert(0) += 1;
        held.unlinked.insert(no);
    }

    /// Undoes holds; the last one lets an inode without a name go.
    pub(crate) fn release(&self, no: InodeNo, count: u64) {
        let mut held = self.held.lock();
        let Some(left) = held.counts.get_mut(&no) else {
            return;
        };
        *left = left.saturating_sub(count);
        if *left > 0 {
            return;
        }
        held.counts.remove(&no);
        if held.unlinked.remove(&no) {
            drop(held);
            self.doom(no);
        }
    }

    /// An inode lost its last name.
    pub(crate) fn lost_last_name(&self, no: InodeNo) {
        let mut held = self.held.lock();
        if held.counts.contains_key(&no) {
            held.unlinked.insert(no);
            held.unlinked_at = Some(Instant::now());
        } else {
            drop(held);
            self.doom(no);
        }
    }

    /// An inode without a name got one.
    pub(crate) fn got_name(&self, no: InodeNo) {
        self.held.lock().unlinked.remove(&no);
    }

    /// Runs `then` unless an inode without a name is held after all; nobody begins to hold it meanwhile.
    pub(crate) fn unless_held(&self, no: InodeNo, then: impl FnOnce()) -> bool {
        let mut held = self.held.lock();
        if held.counts.contains_key(&no) {
            held.unlinked.insert(no);
            return false;
        }
        then();
        true
    }

    /// Held inodes without a name.
    pub(crate) fn unnamed(&self) -> Vec<InodeNo> {
        self.held.lock().unlinked.iter().copied().collect()
    }

    /// An inode is to be deleted.
    pub(crate) fn doom(&self, no: InodeNo) {
        let count = {
            let mut doomed = self.doomed.lock();
            doomed.push(no);
            doomed.len()
        };
        // Waking the thread for each of them costs as much as deleting it.
        if count == 1 || count == MANY {
            self.env.requests.ask(|wake| wake.reap = true);
        }
    }

    /// There is no space to delete an inode now.
    pub(crate) fn put_off(&self, no: InodeNo) {
        self.put_off.lock().push(no);
    }

    /// Whether that was so for some.
    pub(crate) fn has_put_off(&self) -> bool {
        !self.put_off.lock().is_empty()
    }

    /// Those are to be deleted now.
    pub(crate) fn try_again(&self) {
        let mut put_off = std::mem::take(&mut *self.put_off.lock());
        self.doomed.lock().append(&mut put_off);
    }

    /// Whether inodes are to be deleted.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.lock().is_empty()
    }

    /// Whether so many are that they should not wait for others.
    pub(crate) fn has_many_doomed(&self) -> bool {
        self.doomed.lock().len() >= MANY
    }

    /// Takes one of the inodes to be deleted.
    pub(crate) fn take_doomed(&self) -> Option<InodeNo> {
        self.doomed.lock().pop()
    }

    /// Waits a moment for a file that has just lost its last name to be let go: a kernel says so some time after it
    /// unlinked the file.
    pub(crate) fn await_release(&self) {
        const JUST: Duration = Duration::from_millis(100);
        let awaited = || {
            let held = self.held.lock();
            let just = held.unlinked_at.is_some_and(|at| at.elapsed() < JUST);
            just && !held.unlinked.is_empty() && self.doomed.lock().is_empty()
        };
        while awaited() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
