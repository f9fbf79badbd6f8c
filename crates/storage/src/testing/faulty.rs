//! A storage that counts operations, shows each to an observer, and refuses chosen ones.
//!
//! 1. Without orders it changes nothing: every call reaches the storage within.
//! 2. An operation is counted and observed before it is carried out or refused.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::{Held, OpenMode, Space, Storage, StorageFile};

/// An operation that is counted and can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Opening a file that exists.
    Open,
    /// Creating a file.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Setting a file's length.
    SetLen,
    /// Making a file durable.
    Sync,
    /// Giving a range back.
    Punch,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// Making a directory.
    CreateDir,
    /// Making a directory's names durable.
    SyncDir,
    /// Setting space aside.
    Allocate,
    /// Taking a lock.
    Lock,
}

impl Op {
    const COUNT: usize = Op::Lock as usize + 1;
}

/// How an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
    /// The first half of a write reaches the storage, then EIO. For other operations the same as `Io`.
    Torn,
}

/// How often an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Once; later ones are carried out.
    Once,
    /// From then on until [`FaultyStorage::heal`].
    Always,
}

/// One operation, as the observer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Which.
    pub op: Op,
    /// The path it concerns: of the file it was opened by, of the directory, or the old name of a rename.
    pub path: &'a str,
    /// First byte, for operations on a range; the length, for `SetLen`.
    pub offset: u64,
    /// Bytes, for operations on a range.
    pub len: u64,
    /// What is written, for writes.
    pub data: &'a [u8],
}

type Observer = dyn Fn(&Call<'_>) + Send + Sync;

#[derive(Default)]
struct Plan {
    orders: Mutex<Orders>,
    observer: Mutex<Option<Arc<Observer>>>,
}

#[derive(Debug, Default)]
struct Orders {
    counts: [u64; Op::COUNT],
    /// Which operation, from which count on, how, how often.
    refusals: Vec<(Op, u64, Fault, Times)>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.orders.fmt(f)
    }
}

impl Plan {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Counts, shows and judges one operation.
    fn judge(&self, call: &Call<'_>) -> Option<Fault> {
        let observer = self
            .observer
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clone();
        if let Some(observer) = observer {
            observer(call);
        }
        let mut orders = self.orders();
        orders.counts[call.op as usize] += 1;
        let count = orders.counts[call.op as usize];
        let due = |(op, from, _, times): &(Op, u64, Fault, Times)| {
            *op == call.op
                && if *times == Times::Once {
                    count == *from
                } else {
                    count >= *from
                }
        };
        orders
            .refusals
            .iter()
            .find(|order| due(order))
            .map(|order| order.2)
    }

    fn check(&self, op: Op, path: &str, offset: u64, len: u64) -> io::Result<()> {
        match self.judge(&Call {
            op,
            path,
            offset,
            len,
            data: &[],
        }) {
            None => Ok(()),
            Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
            Some(Fault::Io | Fault::Torn) => Err(Errno::IO.into()),
        }
    }
}

/// A storage that fails when told to. Clones share their orders and counts.
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
        let mut orders = self.plan.orders();
        let from = orders.counts[op as usize] + nth;
        orders.refusals.push((op, from, fault, times));
    }

    /// Withdraws every refusal.
    pub fn heal(&self) {
        self.plan.orders().refusals.clear();
    }

    /// Operations of a kind so far, refused ones included.
    pub fn count(&self, op: Op) -> u64 {
        self.plan.orders().counts[op as usize]
    }

    /// Shows every operation from now on to `observer`, before it happens; to record, to delay, or to cut the power.
    pub fn observe(&self, observer: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        *self.plan.observer.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(observer));
    }
}

impl<S: Storage> Storage for FaultyStorage<S> {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let op = if mode == OpenMode::CreateNew {
            Op::Create
        } else {
            Op::Open
        };
        self.plan.check(op, path, 0, 0)?;
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_owned(),
            plan: self.plan.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.plan.check(Op::Rename, from, 0, 0)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.plan.check(Op::Remove, path, 0, 0)?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.plan.check(Op::CreateDir, path, 0, 0)?;
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.plan.check(Op::SyncDir, dir, 0, 0)?;
        self.inner.sync_dir(dir)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn Held>> {
        self.plan.check(Op::Lock, path, 0, 0)?;
        self.inner.lock(path, note)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn StorageFile>,
    path: String,
    plan: Arc<Plan>,
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.plan
            .check(Op::Read, &self.path, offset, buf.len() as u64)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let call = Call {
            op: Op::Write,
            path: &self.path,
            offset,
            len: buf.len() as u64,
            data: buf,
        };
        match self.plan.judge(&call) {
            None => self.inner.write_at(buf, offset),
            Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
            Some(Fault::Io) => Err(Errno::IO.into()),
            Some(Fault::Torn) => {
                self.inner.write_at(&buf[..buf.len() / 2], offset)?;
                Err(Errno::IO.into())
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plan.check(Op::SetLen, &self.path, len, 0)?;
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.check(Op::Sync, &self.path, 0, 0)?;
        self.inner.sync()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plan.check(Op::Punch, &self.path, offset, len)?;
        self.inner.punch(offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plan.check(Op::Allocate, &self.path, offset, len)?;
        self.inner.allocate(offset, len)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.inner.prefetch(offset, len);
    }
}

#[cfg(test)]
mod tests {
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
}
