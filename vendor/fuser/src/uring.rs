//! Requests over io_uring (`FUSE_OVER_IO_URING`, Linux 6.14).
//!
//! The kernel has a queue for each processor, and sends a request to the queue of the processor that
//! its caller runs on. Each thread here has a ring with one entry of one queue: it waits for a request,
//! serves it, and with one system call commits the answer and waits for the next.
//!
//! 1. Rings are created before the handshake's answer: once they are announced to the kernel, it holds all
//!    requests back until every queue has an entry.
//! 2. What the kernel sends by the device all the same (`FORGET`, `INTERRUPT`), and everything if an
//!    entry was refused, is read from the device. Notifications are written to it.
//! 3. A request that is answered by another thread keeps its entry, and so its thread waits. Others
//!    may have to be served meanwhile before it can be answered: a queue never has all its threads waiting. A
//!    thread that would be the last starts another.
//! 4. A queue does not look for waiting requests when an entry is added, only when one is committed.
//!    So a thread that was added has the kernel send it a request without meaning ([`Worker::nudge`]).
//! 5. The request of a thread that fails would never be answered, so all threads [stop](crate::stop) and the session ends with its error.
//!    A thread that cannot be started is no failure as long as its queue has another.

mod slot;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::thread::{self};
use std::time::Duration;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode::PollAdd;
use io_uring::opcode::UringCmd80;
use io_uring::squeue;
use io_uring::types::Fd;
use log::error;
use log::info;
use log::warn;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::Filesystem;
use crate::ll::fuse_abi as abi;
use crate::ll::fuse_abi::fuse_notify_code;
use crate::ll::fuse_abi::fuse_opcode;
use crate::reply::ReplySender;
use crate::request::RequestWithSender;
use crate::session::SessionEventLoop;
use crate::stop::Stop;
use slot::Scratch;
pub(crate) use slot::Slot;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Threads that read from the device what does not come by the rings.
pub(crate) const READERS: usize = 2;
/// The most entries at the start, each with memory for the largest request.
const MAX_ENTRIES: usize = 64;

/// How often, and how long from one to the next, another thread is tried for a queue whose threads all wait.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// `user_data` of what is not a request.
const STOPPED: u64 = 1;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Rings that no thread has yet.
pub(crate) struct Rings {
    queues: u16,
    rings: Vec<Ring>,
    payload: usize,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rings for {} queues", self.rings.len(), self.queues)
    }
}

impl Rings {
    /// Rings for up to `threads` threads a queue, and requests of up to `max_write` bytes. An error where the kernel has no
    /// io_uring or refuses it, and where there are so many processors that it would take too much memory.
    pub(crate) fn new(threads: usize, max_write: usize) -> io::Result<Self> {
        let queues = possible_processors()?;
        let each = threads.min(MAX_ENTRIES / queues as usize);
        if each < 2 {
            return Err(io::Error::other(format!(
                "{queues} processors need too much memory"
            )));
        }
        let rings = (0..queues as usize * each)
            .map(|_| ring())
            .collect::<io::Result<_>>()?;
        Ok(Self {
            queues,
            rings,
            payload: max_write.max(8192).next_multiple_of(page_size::get()),
        })
    }

    /// Starts the threads. `false` if the kernel refused the entries of a queue: requests then come by the device.
    pub(crate) fn start<FS: Filesystem>(
        self,
        stop: Arc<Stop>,
        new_loop: impl Fn(String) -> SessionEventLoop<FS> + Send + Sync + 'static,
    ) -> io::Result<(Arc<Pool<FS>>, bool)> {
        let pool = Arc::new(Pool {
            new_loop: Box::new(new_loop),
            payload: self.payload,
            serving: (0..self.queues).map(|_| AtomicUsize::new(0)).collect(),
            threads: Mutex::default(),
            nudges: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            failure: Mutex::default(),
            stop,
        });
        let (started, all_started) = mpsc::channel();
        let mut missing: HashSet<u16> = (0..self.queues).collect();
        for (i, ring) in self.rings.into_iter().enumerate() {
            let queue = (i % self.queues as usize) as u16;
            let of_it = started.clone();
            let of_it = move |worker: io::Result<&Worker<FS>>| {
                let _ = of_it.send(worker.map(|worker| worker.queue));
            };
            if let Err(e) = pool.spawn(queue, move || Ok(ring), of_it) {
                let _ = started.send(Err(e));
            }
        }
        drop(started);
        let mut failure = None;
        for result in all_started {
            match result {
                Ok(queue) => drop(missing.remove(&queue)),
                Err(e) => {
                    warn!("an entry of io_uring: {e}");
                    failure = Some(e);
                }
            }
        }
        let io_uring = missing.is_empty();
        if !io_uring && !pool.refused.load(Ordering::SeqCst) {
            // The kernel holds all requests back.
            pool.fail(failure.unwrap_or_else(panicked));
            pool.join()?;
        }
        Ok((pool, io_uring))
    }
}

fn panicked() -> io::Error {
    io::Error::other("a thread of a ring panicked")
}

/// A ring that belongs to the thread which enables it, and runs the kernel's part of a request only
/// when that thread waits.
fn ring() -> io::Result<Ring> {
    IoUring::builder()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2)
}

/// How many queues the kernel has: processors that may ever be there.
fn possible_processors() -> io::Result<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    parse_processors(list.trim()).ok_or_else(|| io::Error::other("unknown number of processors"))
}

/// The number of processors in a list like `0-3,6`.
fn parse_processors(list: &str) -> Option<u16> {
    list.split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The threads of all queues.
pub(crate) struct Pool<FS: Filesystem> {
    new_loop: Box<dyn Fn(String) -> SessionEventLoop<FS> + Send + Sync>,
    payload: usize,
    /// For each queue: threads that do not wait for an answer from elsewhere.
    serving: Vec<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    nudges: AtomicU64,
    /// The kernel refused an entry, and so sends requests by the device until each queue has one.
    refused: AtomicBool,
    /// Why it stopped.
    failure: Mutex<Option<io::Error>>,
    stop: Arc<Stop>,
}

impl<FS: Filesystem> Pool<FS> {
    /// Starts a thread for a queue; `started` is called by it when its entry is registered.
    fn spawn(
        self: &Arc<Self>,
        queue: u16,
        ring: impl FnOnce() -> io::Result<Ring> + Send + 'static,
        started: impl FnOnce(io::Result<&Worker<FS>>) + Send + 'static,
    ) -> io::Result<()> {
        let mut threads = self.threads.lock();
        let name = format!("fuser-{queue}-{}", threads.len());
        let pool = Arc::clone(self);
        let event_loop = (self.new_loop)(name.clone());
        let serve = move |pool: &Arc<Self>| {
            let worker = ring().and_then(|ring| Worker::new(event_loop, ring, queue, pool));
            match worker {
                Ok(mut worker) => {
                    started(Ok(&worker));
                    worker.serve(pool)
                }
                Err(e) => {
                    started(Err(e));
                    Ok(())
                }
            }
        };
        let thread = thread::Builder::new().name(name).spawn(move || {
            let served = catch_unwind(AssertUnwindSafe(|| serve(&pool)));
            if let Err(e) = served.unwrap_or_else(|_| Err(panicked())) {
                pool.fail(e);
            }
        })?;
        threads.push(thread);
        Ok(())
    }

    /// Another thread for a queue whose threads all wait.
    /// `inode` is of one of their requests.
    fn grow(self: &Arc<Self>, queue: u16, inode: u64) -> io::Result<()> {
        info!("all threads of queue {queue} wait: starting another");
        let nudge = self.nudges.fetch_add(1, Ordering::Relaxed);
        let (started, result) = mpsc::channel();
        self.spawn(queue, ring, move |worker| {
            let _ = started.send(worker.and_then(|worker| worker.nudge(nudge, inode)));
        })?;
        result.recv().unwrap_or_else(|_| Err(panicked()))
    }

    /// Ends the session with this error.
    fn fail(&self, error: io::Error) {
        let mut failure = self.failure.lock();
        // What fails afterwards does so because of that.
        if !self.stop.is_stopped() {
            error!("requests over io_uring cannot be served any more: {error}");
            *failure = Some(error);
            self.stop.stop();
        }
    }

    /// Returns when all threads have ended, with the first error.
    pub(crate) fn join(&self) -> io::Result<()> {
        loop {
            // A thread may start others as long as it runs.
            let Some(thread) = self.threads.lock().pop() else {
                return self.failure.lock().take().map_or(Ok(()), Err);
            };
            // A panic is a failure.
            let _ = thread.join();
        }
    }
}

/// A thread's ring and its entry.
struct Worker<FS: Filesystem> {
    event_loop: SessionEventLoop<FS>,
    ring: Ring,
    slot: Arc<Slot>,
    scratch: Box<Scratch>,
    queue: u16,
    /// A request had come when the entry was registered.
    came: bool,
    /// The kernel does not have the entry.
    disconnected: bool,
}

impl<FS: Filesystem> Drop for Worker<FS> {
    fn drop(&mut self) {
        if !self.disconnected {
            // The kernel may still write there.
            std::mem::forget(Arc::clone(&self.slot));
        }
    }
}

impl<FS: Filesystem> Worker<FS> {
    /// Registers an entry.
    fn new(
        event_loop: SessionEventLoop<FS>,
        ring: Ring,
        queue: u16,
        pool: &Pool<FS>,
    ) -> io::Result<Self> {
        stay_on(queue as usize);
        ring.submitter().register_enable_rings()?;
        let slot = Slot::new(pool.payload, event_loop.ch.sender())?;
        let mut worker = Self {
            event_loop,
            ring,
            slot,
            scratch: Scratch::new(),
            queue,
            came: false,
            disconnected: false,
        };
        let stop = PollAdd::new(Fd(pool.stop.as_fd().as_raw_fd()), libc::POLLIN as u32);
        let stop = stop.build().user_data(STOPPED).into();
        // SAFETY: the pipe is there as long as the pool, which this thread holds.
        unsafe { worker.ring.submission().push(&stop) }.map_err(io::Error::other)?;
        let iovecs = worker.slot.iovecs();
        worker.push(REGISTER, 0, Some(&iovecs))?;
        worker.ring.submit()?;
        // A refusal is there at once, and perhaps the first request.
        let first = worker.ring.completion().next();
        match first.map(|first| (first.user_data(), first.result())) {
            Some((STOPPED, _)) => return Err(io::ErrorKind::NotConnected.into()),
            Some((_, refused)) if refused < 0 => {
                worker.disconnected = true;
                pool.refused.store(true, Ordering::SeqCst);
                return Err(io::Error::from_raw_os_error(-refused));
            }
            first => worker.came = first.is_some(),
        }
        pool.serving[queue as usize].fetch_add(1, Ordering::SeqCst);
        Ok(worker)
    }

    fn push(
        &mut self,
        command: u32,
        commit_id: u64,
        iovecs: Option<&[libc::iovec; 2]>,
    ) -> io::Result<()> {
        /// `struct fuse_uring_cmd_req`: flags, commit id, queue.
        fn arguments(commit_id: u64, queue: u16) -> [u8; 80] {
            let mut bytes = [0; 80];
            bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
            bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
            bytes
        }
        let entry = UringCmd80::new(Fd(self.event_loop.ch.as_fd().as_raw_fd()), command)
            .cmd(arguments(commit_id, self.queue))
            .addr(iovecs.map(|iovecs| iovecs.as_ptr() as u64))
            .build();
        let entry = match iovecs {
            Some(iovecs) => with_len(entry, iovecs.len() as u32),
            None => entry,
        };
        // SAFETY: the descriptor and the memory of the entry are there as long as the kernel has the
        // entry (until the ring reports that it is disconnected, and else forever); the list of both
        // memories is read while the command is submitted.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    /// Serves requests until the file system is unmounted, or the pool stops.
    fn serve(&mut self, pool: &Arc<Pool<FS>>) -> io::Result<()> {
        while std::mem::take(&mut self.came) || self.next()? {
            if !self.request(pool) {
                break;
            }
            self.push(COMMIT_AND_FETCH, self.slot.commit_id(), None)?;
        }
        Ok(())
    }

    /// Sends what is pushed, and waits for a request. `false`: there will be none any more.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if let Some(completion) = self.ring.completion().next() {
                return match (completion.user_data(), -completion.result()) {
                    (STOPPED, _) => Ok(false),
                    (_, 0) => Ok(true),
                    (_, libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV) => {
                        self.disconnected = true;
                        Ok(false)
                    }
                    (_, error) => Err(io::Error::from_raw_os_error(error)),
                };
            }
        }
    }

    /// Serves the request that has come: its answer is ready to be committed. `false`: the pool stopped meanwhile.
    fn request(&mut self, pool: &Arc<Pool<FS>>) -> bool {
        let opcode = fuse_opcode::try_from(self.slot.opcode());
        let unique = self.slot.commit_id();
        // SAFETY: this is the thread of the ring, and a request has come; what is borrowed is out of
        // use at the end of this block.
        let request = unsafe { self.slot.request(&mut self.scratch) };
        let sender = ReplySender::Ring(Arc::clone(&self.slot));
        match (request, opcode) {
            // The answer to a nudge.
            (Some(_), Ok(fuse_opcode::FUSE_NOTIFY_REPLY)) => self.slot.answer_error(unique, 0),
            (Some(data), opcode) => {
                let negotiated = self.event_loop.negotiated;
                match RequestWithSender::new(sender, data, negotiated) {
                    Some(request) => request.dispatch(&self.event_loop),
                    None => self.slot.answer_error(unique, libc::EIO),
                }
                // Nobody answers these.
                if let Ok(
                    fuse_opcode::FUSE_FORGET
                    | fuse_opcode::FUSE_BATCH_FORGET
                    | fuse_opcode::FUSE_INTERRUPT,
                ) = opcode
                {
                    self.slot.answer_error(unique, 0);
                }
            }
            (None, _) => {
                error!("a request of contradictory lengths");
                self.slot.answer_error(unique, libc::EIO);
            }
        }
        // No reply has it: a panic came before there was one.
        if Arc::strong_count(&self.slot) == 1 && !self.slot.is_answered() {
            self.slot.answer_error(unique, libc::EIO);
        }
        if !self.slot.is_answered() && !self.wait(pool) {
            return false;
        }
        // SAFETY: this is the thread of the ring, and the request was out of use above.
        unsafe { self.slot.write_answer() };
        true
    }

    /// Waits for an answer by another thread. `false`: the pool stopped meanwhile.
    fn wait(&self, pool: &Arc<Pool<FS>>) -> bool {
        let serving = &pool.serving[self.queue as usize];
        let is_last = serving.fetch_sub(1, Ordering::SeqCst) == 1;
        let mut tries = if is_last { TRIES } else { 0 };
        while tries > 0 && serving.load(Ordering::SeqCst) == 0 {
            tries -= 1;
            match pool.grow(self.queue, self.slot.inode()) {
                Ok(()) => break,
                Err(e) if tries == 0 => pool.fail(e),
                Err(e) => warn!("another thread for queue {}: {e}", self.queue),
            }
            if self.slot.wait_for(PAUSE) {
                break;
            }
        }
        while !self.slot.wait_for(PAUSE) {
            if pool.stop.is_stopped() {
                return false;
            }
        }
        serving.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Has the kernel send a request to this queue that needs no answer, so that the queue goes on.
    ///
    /// `FUSE_NOTIFY_RETRIEVE` of nothing: the kernel sends what it caches of a file, here no bytes, to the queue of the
    /// processor that this thread is on. The inode must be a regular file.
    fn nudge(&self, number: u64, inode: u64) -> io::Result<()> {
        // `struct fuse_notify_retrieve_out`: unique, inode, offset; length, padding. The kernel's own requests count from 2.
        let body: [u64; 4] = [1 << 62 | number << 1, inode, 0, 0];
        let header = abi::fuse_out_header {
            len: (size_of::<abi::fuse_out_header>() + size_of_val(&body)) as u32,
            error: fuse_notify_code::FUSE_NOTIFY_RETRIEVE as i32,
            unique: 0,
        };
        let iovecs = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(body.as_bytes()),
        ];
        self.slot.device.send(&iovecs)
    }
}

/// The field `len`, which the library does not set for this operation.
fn with_len(entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    // SAFETY: the type is laid out as `struct io_uring_sqe` with 128 bytes, all of which are plain
    // numbers.
    unsafe {
        let mut bytes: [u8; 128] = std::mem::transmute(entry);
        bytes[24..28].copy_from_slice(&len.to_ne_bytes());
        std::mem::transmute(bytes)
    }
}

/// Keeps this thread on a processor; where that is not allowed, it stays where it may be.
fn stay_on(processor: usize) {
    // SAFETY: the set is plain memory, of the size that is said; the number is in it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
            let e = io::Error::last_os_error();
            log::debug!("processor {processor}: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(parse_processors("0"), Some(1));
        assert_eq!(parse_processors("0-3,6"), Some(5));
        assert_eq!(parse_processors("3-1"), None);
        assert_eq!(parse_processors(""), None);
    }
}
