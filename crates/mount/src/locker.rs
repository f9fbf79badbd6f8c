//! Takes locks of a shared file system for programs that wait for them.
//!
//! 1. A wait has a thread of its own, so that the threads that serve requests go on; there are [`WAITS_MAX`] at most, and
//!    further ones get ENOLCK.
//! 2. A wait ends when its program is interrupted or the mount ends: it is answered in any case.
//! 3. A lock that was granted finds what others wrote under it: the kernel's copy of the file is dropped before the answer.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{InodeNo, Lock, LockKind, LockOwner, LockTable};
use parking_lot::{Condvar, Mutex};

use crate::errno::{Errno, OrErrno};
use crate::kernel::Kernel;
use crate::server::Server;

/// Locks being taken at once.
const WAITS_MAX: usize = 512;
/// Interruptions remembered that came before their request.
const EARLY_MAX: usize = 128;
/// Bytes; a thread that takes a lock does little.
const STACK: usize = 512 << 10;
/// How long the end of a mount waits for cancelled threads.
const FAREWELL: Duration = Duration::from_secs(5);

/// A lock to be taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The kernel's number of the request.
    pub(crate) request: u64,
    pub(crate) no: InodeNo,
    /// The open by which it is asked for.
    pub(crate) handle: u64,
    pub(crate) table: LockTable,
    pub(crate) owner: u64,
    pub(crate) lock: Lock,
    pub(crate) wait: bool,
}

#[derive(Debug, Default)]
struct Waits {
    /// By request: set when it is to be cancelled.
    running: HashMap<u64, Arc<AtomicBool>>,
    /// Requests that were interrupted before they were read: another thread reads them.
    early: VecDeque<u64>,
    ended: bool,
}

/// Takes locks.
#[derive(Debug, Default)]
pub(crate) struct Locker {
    waits: Mutex<Waits>,
    gone: Condvar,
}

impl Locker {
    /// Has a lock taken; `answer` is called once, from another thread, and does not panic.
    pub(crate) fn take(
        self: &Arc<Self>,
        server: &Arc<Server>,
        kernel: &Arc<Kernel>,
        asked: Asked,
        answer: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut waits = self.waits.lock();
            if waits.running.len() >= WAITS_MAX || waits.ended {
                drop(waits);
                return answer(Err(Errno(libc::ENOLCK)));
            }
            if let Some(at) = waits.early.iter().position(|r| *r == asked.request) {
                waits.early.remove(at);
                cancelled.store(true, Ordering::Relaxed);
            }
            waits.running.insert(asked.request, cancelled.clone());
        }
        let (locker, server, kernel) = (self.clone(), server.clone(), kernel.clone());
        // Who is dropped without having been called answers with an I/O error: the library sees to it.
        let started = std::thread::Builder::new()
            .name("strongroom-lock".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let taken = AssertUnwindSafe(|| server.lock(&asked, &cancelled));
                let taken = std::panic::catch_unwind(taken).unwrap_or(Err(Errno::EIO));
                if taken.is_ok() {
                    kernel.drop_cache(asked.no, 0);
                }
                drop(server);
                locker.end(asked.request);
                answer(taken);
            });
        if let Err(e) = started {
            tracing::warn!("no thread to take a lock: {e}");
            self.end(asked.request);
        }
    }

    fn end(&self, request: u64) {
        self.waits.lock().running.remove(&request);
        self.gone.notify_all();
    }

    /// The program that waits for `request` would rather not.
    pub(crate) fn interrupt(&self, request: u64) {
        let mut waits = self.waits.lock();
        match waits.running.get(&request) {
            Some(cancelled) => cancelled.store(true, Ordering::Relaxed),
            // Most are of other requests, which nobody here waits for.
            None => {
                if waits.early.len() == EARLY_MAX {
                    waits.early.pop_front();
                }
                waits.early.push_back(request);
            }
        }
    }

    /// The mount is over: ends all waits.
    pub(crate) fn end_all(&self) {
        let mut waits = self.waits.lock();
        waits.ended = true;
        for cancelled in waits.running.values() {
            cancelled.store(true, Ordering::Relaxed);
        }
        while !waits.running.is_empty() {
            if self.gone.wait_for(&mut waits, FAREWELL).timed_out() {
                return tracing::warn!("locks are still being waited for at the end of the mount");
            }
        }
    }
}

impl Server {
    fn lock(&self, asked: &Asked, cancelled: &AtomicBool) -> Result<(), Errno> {
        let note = || {
            if asked.table == LockTable::Posix && asked.lock.kind != LockKind::Unlock {
                self.opens.note_owner(asked.no, asked.owner, asked.handle);
            }
        };
        note();
        self.room
            .set_lock(
                asked.no,
                asked.table,
                LockOwner(asked.owner),
                asked.lock,
                asked.wait,
                &|| cancelled.load(Ordering::Relaxed),
            )
            .or_errno("lock", asked.no)?;
        // A close of another descriptor may have taken the note during the wait.
        note();
        if asked.lock.kind != LockKind::Unlock {
            self.opens.end_is_old(asked.no);
        }
        Ok(())
    }

    /// Releases a lock of a range.
    pub(crate) fn unlock_range(&self, asked: &Asked) -> Result<(), Errno> {
        self.lock(asked, &AtomicBool::new(false))
    }

    /// Releases all locks that `owner` has of a file.
    pub(crate) fn unlock(&self, no: InodeNo, table: LockTable, owner: u64) -> Result<(), Errno> {
        let lock = Lock {
            kind: LockKind::Unlock,
            start: 0,
            end: u64::MAX,
            pid: 0,
        };
        self.room
            .set_lock(no, table, LockOwner(owner), lock, false, &|| false)
            .or_errno("unlock", no)
    }

    /// The lock of `fcntl` in the way, if any.
    pub(crate) fn test_lock(
        &self,
        no: InodeNo,
        owner: u64,
        lock: Lock,
    ) -> Result<Option<Lock>, Errno> {
        self.room
            .test_lock(no, LockTable::Posix, LockOwner(owner), lock)
            .or_errno("test lock", no)
    }
}
