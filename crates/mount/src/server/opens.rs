//! Opening and closing, which only a shared file system sees, and what that means for the kernel's cached pages.
//!
//! 1. Pages the kernel kept are used after an open only if the file's times and size are those of the open before: what
//!    others closed in the meantime is then seen.
//! 2. What is remembered of a file goes when the kernel forgets the file, so there is no more of it than of lookups.
//! 3. Each open of a shared file has a number of its own, its *handle*. Locks of the table of `fcntl` are noted with the handles they
//!    were taken through, because the kernel sends no unlock for those of an open file description (`F_OFD_SETLK`).
//! 4. What is added to a shared file goes to its end as the file system knows it, which the kernel does not: that is asked for after each lock, and
//!    after [some time](SHARED).
//! 5. Data that was written and could not be stored is reported by one fsync through each handle, and until then by each close of
//!    one that writes.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use model::{Access, FileFlags, Inode, InodeNo, LockTable, Timestamp};
use parking_lot::{Condvar, Mutex};

use super::Server;
use crate::errno::{Errno, OrErrno};
use crate::flags::check_open;

/// For how long a shared file that had no set-ID bits is taken to have none: each write of an unprivileged program asks.
const PLAIN_FOR: Duration = Duration::from_secs(1);

/// For how long attributes of a shared file are taken for right without asking, so that one lookup serves the checks of
/// permissions that follow it.
pub(crate) const SHARED: Duration = Duration::from_millis(100);

/// What distinguishes one state of a file from another.
type Version = (Timestamp, Timestamp, u64);

#[derive(Debug, Default)]
struct Known {
    version: Option<Version>,
    plain_until: Option<Instant>,
    bare_until: Option<Instant>,
    /// Where a shared file ended after something was added here, and until when that is taken for right.
    end: Option<(u64, Instant)>,
    /// Owners that may hold a lock of `fcntl`, and the handles through which they asked for it. A process, which may use several
    /// handles, or an open file description, which has one.
    owners: HashMap<u64, HashSet<u64>>,
    /// Owners whose locks are being released because their handle is closed.
    leaving: HashSet<u64>,
}

#[derive(Debug)]
struct Handle {
    writes: bool,
    /// The number of the newest loss that it need not report.
    loss: u64,
}

#[derive(Debug, Default)]
struct Files {
    known: HashMap<u64, Known>,
    changes: u64,
    handles: HashMap<u64, Handle>,
    last_handle: u64,
}

/// What is remembered of open files.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    files: Mutex<Files>,
    /// An owner is not leaving any more.
    left: Condvar,
}

impl Opens {
    /// How many times something was [changed](Self::changed) here.
    pub(crate) fn changes(&self) -> u64 {
        self.files.lock().changes
    }

    /// Takes in the file's state at an open that was asked for after so many changes; `true` when it is that of the open before.
    pub(crate) fn opened(&self, inode: &Inode, changes: u64) -> bool {
        let version = Some((inode.mtime, inode.ctime, inode.size));
        let mut files = self.files.lock();
        let current = files.changes == changes;
        let known = files.known.entry(inode.no.0).or_default();
        if current && !inode.has_xattrs {
            let now = Instant::now();
            if inode.mode & 0o6000 == 0 {
                known.plain_until = Some(now + PLAIN_FOR);
            }
            if inode.flags == FileFlags::NONE {
                known.bare_until = Some(now + SHARED);
            }
        }
        std::mem::replace(&mut known.version, version) == version
    }

    /// The mode, flags or extended attributes of a file were changed by this mount.
    pub(crate) fn changed(&self, no: InodeNo) {
        let mut files = self.files.lock();
        files.changes += 1;
        if let Some(known) = files.known.get_mut(&no.0) {
            (known.plain_until, known.bare_until) = (None, None);
        }
    }

    pub(crate) fn forget(&self, no: InodeNo) {
        self.files.lock().known.remove(&no.0);
    }

    /// Whether a file ended here so short a time ago that it is still taken to end here.
    pub(crate) fn ends_at(&self, no: InodeNo, end: u64) -> bool {
        let files = self.files.lock();
        let known = files.known.get(&no.0).and_then(|known| known.end);
        known.is_some_and(|(at, until)| at == end && Instant::now() < until)
    }

    /// A file ends here now; `found`: where it ended before was asked for just now.
    pub(crate) fn note_end(&self, no: InodeNo, end: u64, found: bool) {
        let mut files = self.files.lock();
        let known = &mut files.known.entry(no.0).or_default().end;
        let until = match known {
            Some((_, until)) if !found => *until,
            _ => Instant::now() + SHARED,
        };
        *known = Some((end, until));
    }

    /// Others may have added to a file.
    pub(crate) fn end_is_old(&self, no: InodeNo) {
        if let Some(known) = self.files.lock().known.get_mut(&no.0) {
            known.end = None;
        }
    }

    /// Whether the file had no flags and no extended attributes at an open so short a time ago that its attributes of then
    /// are still taken for right.
    pub(crate) fn is_bare(&self, no: InodeNo) -> bool {
        let files = self.files.lock();
        let until = files.known.get(&no.0).and_then(|known| known.bare_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the file had nothing a moment ago that a write removes.
    pub(crate) fn is_plain(&self, no: InodeNo) -> bool {
        let files = self.files.lock();
        let until = files.known.get(&no.0).and_then(|known| known.plain_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that it had nothing of the kind in an answer that was asked for after so many changes.
    pub(crate) fn note_plain(&self, no: InodeNo, changes: u64) {
        let mut files = self.files.lock();
        if files.changes == changes
            && let Some(known) = files.known.get_mut(&no.0)
        {
            known.plain_until = Some(Instant::now() + PLAIN_FOR);
        }
    }

    /// A new handle, opened after so many losses; none is used twice.
    fn new_handle(&self, access: Access, loss: u64) -> u64 {
        let mut files = self.files.lock();
        files.last_handle += 1;
        let (number, writes) = (files.last_handle, access.write);
        files.handles.insert(number, Handle { writes, loss });
        number
    }

    /// Whether a close through `handle` is to report what happened to written data: it could write.
    fn writes(&self, handle: u64) -> bool {
        let files = self.files.lock();
        files.handles.get(&handle).is_none_or(|h| h.writes)
    }

    /// Whether a loss has not been reported by an fsync through `handle`. `reports`: one does now.
    fn is_news(&self, handle: u64, loss: u64, reports: bool) -> bool {
        let mut files = self.files.lock();
        let Some(known) = files.handles.get_mut(&handle) else {
            return false;
        };
        let news = known.loss < loss;
        if reports {
            known.loss = known.loss.max(loss);
        }
        news
    }

    /// Notes that `owner` may hold a lock of `fcntl` from now on, by a request through `handle`. Waits for the end of a
    /// [close](Self::leave): the kernel gives the same owner to a later open.
    pub(crate) fn note_owner(&self, no: InodeNo, owner: u64, handle: u64) {
        let mut files = self.files.lock();
        let leaving = |files: &Files| {
            let known = files.known.get(&no.0);
            known.is_some_and(|known| known.leaving.contains(&owner))
        };
        while leaving(&files) {
            self.left.wait(&mut files);
        }
        let known = files.known.entry(no.0).or_default();
        known.owners.entry(owner).or_default().insert(handle);
    }

    /// Whether `owner` may have held one; it is taken not to any more.
    pub(crate) fn take_owner(&self, no: InodeNo, owner: u64) -> bool {
        let mut files = self.files.lock();
        let known = files.known.get_mut(&no.0);
        known.is_some_and(|known| known.owners.remove(&owner).is_some())
    }

    /// Nobody has `handle` any more: the owners whose locks end with it, until [`left`](Self::left) is called for each.
    ///
    /// A process that asked through this handle has closed it, and its locks went with that. If it is noted with another handle it
    /// took locks since.
    fn leave(&self, no: InodeNo, handle: u64) -> Vec<u64> {
        let mut files = self.files.lock();
        files.handles.remove(&handle);
        let Some(known) = files.known.get_mut(&no.0) else {
            return Vec::new();
        };
        let mut alone = Vec::new();
        known.owners.retain(|owner, handles| {
            if handles.remove(&handle) && handles.is_empty() {
                alone.push(*owner);
            }
            !handles.is_empty()
        });
        known.leaving.extend(&alone);
        alone
    }

    fn left(&self, no: InodeNo, owner: u64) {
        let mut files = self.files.lock();
        if let Some(known) = files.known.get_mut(&no.0) {
            known.leaving.remove(&owner);
        }
        self.left.notify_all();
    }
}

/// One open of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    /// 0 where the file system is not shared.
    pub(crate) handle: u64,
    /// What the kernel keeps of the file is still right.
    pub(crate) current: bool,
}

impl Server {
    /// Opens a file; `append`: what is written through it goes to its end.
    pub(crate) fn open(&self, no: InodeNo, access: Access, append: bool) -> Result<Opened, Errno> {
        let changes = self.opens.changes();
        let inode = self.room.open(no, access).or_errno("open", no)?;
        self.admit(&inode, changes, access, append)
    }

    /// The handle of a file that was opened after so many changes, if its flags allow that.
    pub(super) fn admit(
        &self,
        inode: &Inode,
        changes: u64,
        access: Access,
        append: bool,
    ) -> Result<Opened, Errno> {
        if let Err(refused) = check_open(inode, access, append) {
            self.room.close(inode.no, access);
            return Err(refused);
        }
        if !self.shared {
            return Ok(Opened {
                handle: 0,
                current: true,
            });
        }
        let loss = self.room.newest_loss(inode.no).map_or(0, |(loss, _)| loss);
        Ok(Opened {
            handle: self.opens.new_handle(access, loss),
            current: self.opens.opened(inode, changes),
        })
    }

    /// A descriptor was closed: passes on what was written to the file, then releases the locks of `fcntl` that its process had.
    pub(crate) fn flush(&self, no: InodeNo, handle: u64, owner: u64) -> Result<(), Errno> {
        let mut flushed = self.room.flush(no).or_errno("close", no);
        if !self.opens.writes(handle) {
            // Those who wrote find out themselves.
            flushed = Ok(());
        } else if flushed.is_ok() {
            flushed = self.loss(no, handle, false, "close");
        }
        let unlocked = if self.opens.take_owner(no, owner) {
            self.unlock(no, LockTable::Posix, owner)
        } else {
            Ok(())
        };
        flushed.and(unlocked)
    }

    /// Makes a file durable; earlier losses that no fsync through this handle has reported fail it.
    pub(crate) fn fsync_open(&self, no: InodeNo, handle: u64) -> Result<(), Errno> {
        let synced = self.fsync(no);
        synced.and(self.loss(no, handle, true, "fsync"))
    }

    fn loss(
        &self,
        no: InodeNo,
        handle: u64,
        reports: bool,
        what: &'static str,
    ) -> Result<(), Errno> {
        match self.room.newest_loss(no) {
            Some((loss, e)) if self.opens.is_news(handle, loss, reports) => {
                Err(e).or_errno(what, no)
            }
            _ => Ok(()),
        }
    }

    /// One open is over, with the locks that it has itself; `flock`: of `flock` too.
    pub(crate) fn close(&self, no: InodeNo, handle: u64, access: Access, flock: bool) {
        let release = |table, owner| {
            if let Err(e) = self.unlock(no, table, owner) {
                tracing::warn!(inode = no.0, errno = e.0, "releasing a lock at close");
            }
        };
        if flock {
            release(LockTable::Flock, handle);
        }
        for owner in self.opens.leave(no, handle) {
            release(LockTable::Posix, owner);
            self.opens.left(no, owner);
        }
        self.room.close(no, access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FileKind;

    fn inode(ctime: i64) -> Inode {
        let at = |secs| Timestamp { secs, nanos: 0 };
        Inode {
            mode: 0o644,
            size: 3,
            blocks: 1,
            ctime: at(ctime),
            parent: InodeNo::ROOT,
            ..Inode::new(InodeNo(7), FileKind::Regular, at(0))
        }
    }

    #[test]
    fn cached_pages_are_kept_only_when_nothing_changed_since_the_last_open() {
        let opens = Opens::default();
        assert!(!opens.opened(&inode(1), 0), "never seen before");
        assert!(opens.opened(&inode(1), 0));
        assert!(!opens.opened(&inode(2), 0));
        opens.forget(InodeNo(7));
        assert!(!opens.opened(&inode(2), 0));
    }

    #[test]
    fn an_answer_from_before_a_change_says_nothing_about_what_a_write_removes() {
        let (opens, no) = (Opens::default(), InodeNo(7));
        let before = opens.changes();
        opens.changed(no);
        opens.opened(&inode(1), before);
        opens.note_plain(no, before);
        assert!(!opens.is_bare(no) && !opens.is_plain(no));
        opens.opened(&inode(1), opens.changes());
        let (plain, bare) = {
            let files = opens.files.lock();
            let known = &files.known[&no.0];
            (known.plain_until, known.bare_until)
        };
        assert!(plain.is_some() && bare.is_some());
        opens.changed(no);
        assert!(!opens.is_bare(no) && !opens.is_plain(no));
        let attribute = Inode {
            has_xattrs: true,
            ..inode(1)
        };
        opens.opened(&attribute, opens.changes());
        assert!(!opens.is_bare(no) && !opens.is_plain(no));
    }

    #[test]
    fn each_handle_reports_a_loss_once_unless_it_is_older() {
        let opens = Opens::default();
        let [a, b] = [
            opens.new_handle(Access::WRITE, 0),
            opens.new_handle(Access::WRITE, 4),
        ];
        assert!(opens.is_news(a, 4, false) && !opens.is_news(b, 4, false));
        assert!(opens.is_news(a, 4, true) && !opens.is_news(a, 4, true));
        assert!(opens.is_news(a, 5, true) && opens.is_news(b, 5, true));
        assert_eq!(opens.leave(InodeNo(7), a), []);
        assert!(!opens.is_news(a, 6, true) && opens.is_news(b, 6, true));
    }

    #[test]
    fn an_owners_locks_are_released_once() {
        let opens = Opens::default();
        opens.note_owner(InodeNo(7), 1, 10);
        assert!(!opens.take_owner(InodeNo(7), 2));
        assert!(opens.take_owner(InodeNo(7), 1));
        assert!(!opens.take_owner(InodeNo(7), 1));
        assert_eq!(opens.leave(InodeNo(7), 10), []);
    }

    #[test]
    fn a_handle_takes_the_locks_of_owners_without_another_along() {
        let (opens, no) = (Opens::default(), InodeNo(7));
        assert_eq!(opens.leave(no, 10), []);
        opens.note_owner(no, 1, 10);
        opens.note_owner(no, 2, 10);
        opens.note_owner(no, 2, 11);
        assert_eq!(opens.leave(no, 10), [1]);
        // The kernel gives what it freed to the next open: that waits for the end of the first.
        std::thread::scope(|scope| {
            let again = scope.spawn(|| opens.note_owner(no, 1, 12));
            let mut files = opens.files.lock();
            assert!(!files.known[&no.0].owners.contains_key(&1));
            parking_lot::MutexGuard::unlocked(&mut files, || opens.left(no, 1));
            drop(files);
            again.join().unwrap();
        });
        assert_eq!(opens.leave(no, 12), [1]);
        assert_eq!(opens.leave(no, 11), [2]);
    }
}
