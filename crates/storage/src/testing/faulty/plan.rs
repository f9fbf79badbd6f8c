//! Which operations fail, and how: orders and counts that all handles of one storage share.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

/// An operation that is counted and can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Opening a file that exists.
    Open,
    /// Creating a file.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Asking for a file's length.
    Len,
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
    /// Listing a directory.
    List,
    /// Asking for space.
    Space,
    /// Setting space aside.
    Allocate,
    /// Taking a lock.
    Lock,
}

impl Op {
    const COUNT: usize = Op::Lock as usize + 1;

    /// Whether a storage can need space for it.
    pub fn takes_space(self) -> bool {
        matches!(self, Op::Create | Op::CreateDir | Op::Write | Op::Allocate)
    }
}

/// How an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
    /// EDQUOT for what takes space: new files and directories, allocations, writes behind the end of a file. Other operations are
    /// carried out, as on a disk that is full.
    Quota,
    /// The first half of a write reaches the storage, then EIO. For other operations the same as `Io`.
    Torn,
    /// A read succeeds with one bit in the middle of it wrong. Other operations are carried out.
    Flip,
    /// A read succeeds with what the range held before it was last overwritten, where it was. Other operations are
    /// carried out. Needs [`super::FaultyStorage::remember_overwritten`].
    Stale,
    /// A read finds the file shorter than it is: `UnexpectedEof`. Other operations are carried out.
    Short,
}

/// How often an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Times {
    /// Once; later ones are carried out.
    Once,
    /// From then on until [`super::FaultyStorage::heal`].
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

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} {}+{}",
            self.op, self.path, self.offset, self.len
        )
    }
}

impl<'a> Call<'a> {
    pub(super) fn at(op: Op, path: &'a str) -> Self {
        Self::range(op, path, 0, 0)
    }

    pub(super) fn range(op: Op, path: &'a str, offset: u64, len: u64) -> Self {
        Self {
            op,
            path,
            offset,
            len,
            data: &[],
        }
    }
}

type Observer = dyn Fn(&Call<'_>) + Send + Sync;
type SyncFailed = dyn Fn(&str) + Send + Sync;

/// What blocks of a file held before, by number.
type Before = BTreeMap<u64, Vec<u8>>;

/// Orders, counts and the callback for failed syncs.
#[derive(Default)]
pub(super) struct Plan {
    orders: Mutex<Orders>,
    observer: Mutex<Option<Arc<Observer>>>,
    sync_failed: Mutex<Option<Arc<SyncFailed>>>,
    /// What blocks held before they were last overwritten, by path and block number; `None`: not remembered.
    pub(super) overwritten: Mutex<Option<BTreeMap<String, Before>>>,
}

#[derive(Debug, Default)]
struct Orders {
    counts: [u64; Op::COUNT],
    all: u64,
    paused: bool,
    refused: u64,
    first_refused: Option<String>,
    /// Which operation (`None`: any), from which count on, how, how often.
    refusals: Vec<(Option<Op>, u64, Fault, Times)>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.orders.fmt(f)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Plan {
    pub(super) fn refuse(&self, op: Option<Op>, nth: u64, fault: Fault, times: Times) {
        let mut orders = lock(&self.orders);
        let from = match op {
            Some(op) => orders.counts[op as usize] + nth,
            None => orders.all + nth,
        };
        orders.refusals.push((op, from, fault, times));
    }

    pub(super) fn heal(&self) {
        lock(&self.orders).refusals.clear();
    }

    pub(super) fn pause(&self, paused: bool) {
        lock(&self.orders).paused = paused;
    }

    pub(super) fn count(&self, op: Op) -> u64 {
        lock(&self.orders).counts[op as usize]
    }

    pub(super) fn count_all(&self) -> u64 {
        lock(&self.orders).all
    }

    pub(super) fn refused(&self) -> u64 {
        lock(&self.orders).refused
    }

    pub(super) fn first_refused(&self) -> Option<String> {
        lock(&self.orders).first_refused.clone()
    }

    pub(super) fn observe(&self, observer: Arc<Observer>) {
        *lock(&self.observer) = Some(observer);
    }

    pub(super) fn on_failed_sync(&self, on_failed: Arc<SyncFailed>) {
        *lock(&self.sync_failed) = Some(on_failed);
    }

    /// Counts, shows and judges one operation.
    pub(super) fn judge(&self, call: &Call<'_>) -> Option<Fault> {
        if lock(&self.orders).paused {
            return None;
        }
        let observer = lock(&self.observer).clone();
        if let Some(observer) = observer {
            observer(call);
        }
        let mut orders = lock(&self.orders);
        orders.counts[call.op as usize] += 1;
        orders.all += 1;
        let due = |(op, from, _, times): &(Option<Op>, u64, Fault, Times)| {
            let count = match op {
                Some(op) if *op == call.op => orders.counts[call.op as usize],
                Some(_) => return false,
                None => orders.all,
            };
            match times {
                Times::Once => count == *from,
                Times::Always => count >= *from,
            }
        };
        let fault = orders.refusals.iter().find(|order| due(order)).map(|o| o.2);
        let fault = fault.filter(|fault| *fault != Fault::Quota || call.op.takes_space());
        if fault.is_some() {
            orders.refused += 1;
            orders.first_refused.get_or_insert_with(|| call.to_string());
        }
        drop(orders);
        if call.op == Op::Sync && matches!(fault, Some(Fault::Io | Fault::NoSpace | Fault::Torn)) {
            let on_failed = lock(&self.sync_failed).clone();
            if let Some(on_failed) = on_failed {
                on_failed(call.path);
            }
        }
        fault
    }

    /// Judges an operation that is either refused or carried out whole.
    pub(super) fn check(&self, call: &Call<'_>) -> io::Result<()> {
        match self.judge(call) {
            None | Some(Fault::Flip | Fault::Stale | Fault::Short) => Ok(()),
            Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
            Some(Fault::Quota) => Err(Errno::DQUOT.into()),
            Some(Fault::Io | Fault::Torn) => Err(Errno::IO.into()),
        }
    }
}
