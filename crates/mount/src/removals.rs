//! Space that a removal makes, and that comes a moment later.
//!
//! A file that is removed stays until the kernel forgets it: somebody may have it open. When nobody has, the kernel forgets it at
//! once, but over io_uring that message comes another way than the requests, and a request that was sent after it may be served
//! before it. So `rm big; cp other .` in a full room would fail for want of the space that `big` still has. What finds no space
//! soon after a removal waits for it.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// For how long after a removal its space is waited for.
const LATEST: Duration = Duration::from_secs(1);
/// How often to look for it, when nothing is forgotten meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// When a name was last removed, and who waits for the space.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    last: Mutex<Option<Instant>>,
    forgotten: Condvar,
}

impl Removals {
    /// A name was removed.
    pub(crate) fn note(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    /// The kernel forgot a file, and what it had is released.
    pub(crate) fn forgotten(&self) {
        self.forgotten.notify_all();
    }

    /// Looks by `found` until that is true, and until a second after the last removal at most. Whether it was.
    pub(crate) fn wait(&self, mut found: impl FnMut() -> bool) -> bool {
        let Some(until) = self.last.lock().map(|at| at + LATEST) else {
            return false;
        };
        loop {
            let late = Instant::now() >= until;
            if found() {
                return true;
            }
            if late {
                return false;
            }
            self.forgotten.wait_for(&mut self.last.lock(), LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn space_is_waited_for_after_a_removal_only() {
        let removals = Removals::default();
        assert!(!removals.wait(|| panic!("nothing was removed")));
        removals.note();
        let mut looks = 0;
        assert!(removals.wait(|| {
            looks += 1;
            looks == 3
        }));
        assert!(!removals.wait(|| false), "not for ever");
    }

    #[test]
    fn a_change_that_waits_goes_on_when_the_file_is_forgotten() {
        let removals = Removals::default();
        let freed = AtomicBool::new(false);
        let looked = AtomicBool::new(false);
        removals.note();
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                removals.wait(|| {
                    looked.store(true, Ordering::SeqCst);
                    freed.load(Ordering::SeqCst)
                })
            });
            while !looked.load(Ordering::SeqCst) && !waiting.is_finished() {
                std::thread::yield_now();
            }
            freed.store(true, Ordering::SeqCst);
            removals.forgotten();
            waiting.join().unwrap()
        });
        assert!(waited);
    }
}
