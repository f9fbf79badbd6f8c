//! A storage that counts operations, shows each to an observer, and refuses chosen ones.
//!
//! 1. Without orders it changes nothing: every call reaches the storage within.
//! 2. An operation is counted and observed before it is carried out or refused.

mod plan;

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

pub use plan::{Call, Fault, Op, Times};
use plan::{Plan, lock};

use crate::{LockGuard, OpenMode, Space, Storage, StorageFile};

/// In bytes: how finely overwritten contents are remembered.
const BLOCK: u64 = 4096;

/// A storage that fails on request. Clones share their orders and counts.
#[derive(Debug, Clone)]
pub struct FaultyStorage<S> {
    inner: S,
    plan: Arc<Plan>,
}

impl<S: Storage> FaultyStorage<S> {
    /// Wraps a storage, for example an `Arc<dyn Storage>`.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            plan: Arc::default(),
        }
    }

    /// The storage within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Refuses the `nth` such operation from now (the next is 1), once or from then on.
    pub fn refuse(&self, op: Op, nth: u64, fault: Fault, times: Times) {
        self.plan.refuse(Some(op), nth, fault, times);
    }

    /// Refuses the `nth` operation from now, whichever it is (the next is 1), once or, with all that follow, from then
    /// on.
    pub fn refuse_any(&self, nth: u64, fault: Fault, times: Times) {
        self.plan.refuse(None, nth, fault, times);
    }

    /// Withdraws every refusal.
    pub fn heal(&self) {
        self.plan.heal();
    }

    /// Does something during which operations are carried out without being counted, shown or refused.
    pub fn in_peace<T>(&self, what: impl FnOnce() -> T) -> T {
        self.plan.pause(true);
        let value = what();
        self.plan.pause(false);
        value
    }

    /// Operations of a kind so far, refused ones included.
    pub fn count(&self, op: Op) -> u64 {
        self.plan.count(op)
    }

    /// Operations of all kinds so far.
    pub fn count_all(&self) -> u64 {
        self.plan.count_all()
    }

    /// Operations refused, or carried out wrongly, so far.
    pub fn refused(&self) -> u64 {
        self.plan.refused()
    }

    /// The first of them, in words.
    pub fn first_refused(&self) -> Option<String> {
        self.plan.first_refused()
    }

    /// Shows every operation from now on to `observer`, before it happens; to record, to delay, or to cut the power.
    pub fn observe(&self, observer: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        self.plan.observe(Arc::new(observer));
    }

    /// Calls `notify` with the path of each file whose sync is refused: to lose what was not synced, as Linux does, which
    /// marks the pages clean.
    pub fn on_failed_sync(&self, notify: impl Fn(&str) + Send + Sync + 'static) {
        self.plan.on_failed_sync(Arc::new(notify));
    }

    /// Remembers from now on what was overwritten, for [`Fault::Stale`].
    pub fn remember_overwritten(&self) {
        lock(&self.plan.overwritten).get_or_insert_default();
    }
}

impl<S: Storage> Storage for FaultyStorage<S> {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let op = if mode == OpenMode::CreateNew {
            Op::Create
        } else {
            Op::Open
        };
        self.plan.check(&Call::at(op, path))?;
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_owned(),
            plan: self.plan.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plan.check(&Call::at(Op::Rename, from))?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.plan.check(&Call::at(Op::Remove, path))?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.plan.check(&Call::at(Op::List, dir))?;
        self.inner.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.plan.check(&Call::at(Op::CreateDir, path))?;
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.plan.check(&Call::at(Op::SyncDir, dir))?;
        self.inner.sync_dir(dir)
    }

    fn space(&self) -> io::Result<Space> {
        self.plan.check(&Call::at(Op::Space, ""))?;
        self.inner.space()
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.plan.check(&Call::at(Op::Lock, path))?;
        self.inner.lock(path, note)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn StorageFile>,
    path: String,
    plan: Arc<Plan>,
}

impl FaultyFile {
    /// Keeps what whole blocks of a range hold before they change.
    fn remember(&self, offset: u64, len: u64) {
        let mut overwritten = lock(&self.plan.overwritten);
        let Some(files) = overwritten.as_mut() else {
            return;
        };
        let blocks = files.entry(self.path.clone()).or_default();
        let present = self.inner.len().unwrap_or(0) / BLOCK;
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK).min(present) {
            let mut old = vec![0; BLOCK as usize];
            if self.inner.read_at(&mut old, block * BLOCK).is_ok() {
                blocks.insert(block, old);
            }
        }
    }

    /// Puts what was overwritten in the place of what is there.
    fn make_stale(&self, buf: &mut [u8], offset: u64) {
        let overwritten = lock(&self.plan.overwritten);
        let Some(blocks) = overwritten.as_ref().and_then(|files| files.get(&self.path)) else {
            return;
        };
        for (byte, place) in buf.iter_mut().zip(offset..) {
            if let Some(old) = blocks.get(&(place / BLOCK)) {
                *byte = old[(place % BLOCK) as usize];
            }
        }
    }
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let call = Call::range(Op::Read, &self.path, offset, buf.len() as u64);
        let fault = self.plan.judge(&call);
        match fault {
            Some(Fault::Io | Fault::Torn) => return Err(Errno::IO.into()),
            Some(Fault::NoSpace) => return Err(Errno::NOSPC.into()),
            Some(Fault::Short) => return Err(io::ErrorKind::UnexpectedEof.into()),
            None | Some(Fault::Quota | Fault::Flip | Fault::Stale) => {}
        }
        self.inner.read_at(buf, offset)?;
        match fault {
            Some(Fault::Flip) => {
                let middle = buf.len() / 2;
                if let Some(byte) = buf.get_mut(middle) {
                    *byte ^= 1;
                }
            }
            Some(Fault::Stale) => self.make_stale(buf, offset),
            _ => {}
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let call = Call {
            data: buf,
            ..Call::range(Op::Write, &self.path, offset, buf.len() as u64)
        };
        let fault = self.plan.judge(&call);
        match fault {
            Some(Fault::Io) => return Err(Errno::IO.into()),
            Some(Fault::NoSpace) => return Err(Errno::NOSPC.into()),
            Some(Fault::Quota) if offset + buf.len() as u64 > self.inner.len()? => {
                return Err(Errno::DQUOT.into());
            }
            _ => {}
        }
        self.remember(offset, buf.len() as u64);
        if fault == Some(Fault::Torn) {
            self.inner.write_at(&buf[..buf.len() / 2], offset)?;
            return Err(Errno::IO.into());
        }
        self.inner.write_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.plan.check(&Call::at(Op::Len, &self.path))?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plan
            .check(&Call::range(Op::SetLen, &self.path, len, 0))?;
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.check(&Call::at(Op::Sync, &self.path))?;
        self.inner.sync()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plan
            .check(&Call::range(Op::Punch, &self.path, offset, len))?;
        self.inner.punch(offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plan
            .check(&Call::range(Op::Allocate, &self.path, offset, len))?;
        self.inner.allocate(offset, len)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.inner.prefetch(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testing::MemoryStorage;

    #[test]
    fn the_nth_write_is_refused_once_and_the_next_succeeds() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        storage.refuse(Op::Write, 2, Fault::NoSpace, Times::Once);
        file.write_at(b"one", 0).unwrap();
        assert_eq!(
            file.write_at(b"two", 0).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        file.write_at(b"six", 0).unwrap();
        assert_eq!(storage.count(Op::Write), 3);
    }

    #[test]
    fn a_lasting_refusal_ends_only_by_healing() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        storage.refuse(Op::Sync, 1, Fault::Io, Times::Always);
        file.sync().unwrap_err();
        file.sync().unwrap_err();
        storage.heal();
        file.sync().unwrap();
    }

    #[test]
    fn a_torn_write_leaves_its_first_half() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        storage.refuse(Op::Write, 1, Fault::Torn, Times::Once);
        file.write_at(b"abcd", 0).unwrap_err();
        assert_eq!(file.len().unwrap(), 2);
    }

    #[test]
    fn the_observer_sees_each_operation_with_its_place() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        storage.observe(move |call| {
            log.lock()
                .unwrap()
                .push((call.op, call.path.to_owned(), call.offset, call.len));
        });
        storage
            .open("f", OpenMode::CreateNew)
            .unwrap()
            .write_at(b"abc", 9)
            .unwrap();
        let expected = [
            (Op::Create, "f".to_owned(), 0, 0),
            (Op::Write, "f".to_owned(), 9, 3),
        ];
        assert_eq!(*seen.lock().unwrap(), expected);
    }

    #[test]
    fn any_operation_can_be_refused_by_its_number_among_all() {
        for nth in 1..=4 {
            let storage = FaultyStorage::new(MemoryStorage::new());
            storage.refuse_any(nth, Fault::Io, Times::Once);
            let done = || -> io::Result<()> {
                let file = storage.open("f", OpenMode::CreateNew)?;
                storage.in_peace(|| file.write_at(b"not counted", 0))?;
                file.write_at(b"counted", 0)?;
                file.sync()?;
                storage.list("").map(drop)
            };
            done().unwrap_err();
            assert_eq!((storage.count_all(), storage.refused()), (nth, 1));
        }
    }

    #[test]
    fn a_damaged_read_differs_in_one_bit_and_a_stale_one_is_what_was_there_before() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        storage.remember_overwritten();
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        file.write_at(&[3; 4096], 4096).unwrap();
        let read = |fault| {
            storage.refuse(Op::Read, 1, fault, Times::Once);
            let mut bytes = vec![0; 8192];
            file.read_at(&mut bytes, 0).map(|()| bytes)
        };
        let flipped = read(Fault::Flip).unwrap();
        assert_eq!(flipped.iter().filter(|b| **b == 2).count(), 1);
        assert_eq!(read(Fault::Stale).unwrap(), [1; 8192]);
        assert_eq!(
            read(Fault::Short).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        read(Fault::Torn).unwrap_err();
    }

    #[test]
    fn a_refused_sync_is_reported() {
        let storage = FaultyStorage::new(MemoryStorage::new());
        let reported = Arc::new(Mutex::new(Vec::new()));
        let list = reported.clone();
        storage.on_failed_sync(move |path| list.lock().unwrap().push(path.to_owned()));
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        storage.refuse(Op::Sync, 1, Fault::Io, Times::Once);
        file.sync().unwrap_err();
        file.sync().unwrap();
        assert_eq!(*reported.lock().unwrap(), ["f"]);
    }
}
