//! The thread that uses the mount from inside the process that serves it: it asks the kernel to write back every few
//! seconds, and unmounts an idle mount.
//!
//! 1. It holds no descriptor of `/dev/fuse`. A thread that waits in the kernel for its own process to serve a request
//!    would otherwise keep that device open after the process is killed, and with it everybody who waits for the mount,
//!    for ever. So it runs [without descriptors](crate::alone), touches none that another thread made, and does not log. It
//!    holds nothing that owns one either, such as the room: the last to drop that would close it.
//! 2. It keeps the mount busy only while one `syncfs` runs. When nothing in the mount is open there is nothing dirty
//!    either (the kernel writes back at close), and that takes microseconds.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::activity::Activity;
use crate::alone;
use crate::attach::Attachment;
use crate::error::MountError;

/// How often an idle mount that turned out to be busy is tried again.
const IDLE_RETRY: Duration = Duration::from_secs(5);

/// What the thread is to keep.
pub(crate) struct Duties {
    /// Absolute.
    pub(crate) mountpoint: PathBuf,
    /// Device number of the mount, so that nothing mounted over it is taken for it.
    pub(crate) device: u64,
    /// `None`: only when asked.
    pub(crate) write_back_interval: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) attachment: Arc<dyn Attachment>,
}

#[derive(Debug, Default)]
struct State {
    /// Write-backs asked for, and done: counts.
    asked: u64,
    done: u64,
    stop: bool,
    /// Process-wide number of the thread, once it runs.
    thread: Option<i32>,
}

/// Orders to the thread.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    /// For the thread: something was ordered.
    order: Condvar,
    /// For others: something was done.
    news: Condvar,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        duties: Duties,
        activity: Arc<Activity>,
    ) -> Result<JoinHandle<()>, MountError> {
        let keeper = self.clone();
        let thread = alone::spawn("strongroom-keep", move || keeper.run(&duties, &activity))?;
        let mut state = self.state.lock();
        while state.thread.is_none() {
            self.news.wait(&mut state);
        }
        Ok(thread)
    }

    /// Has the kernel send everything that programs wrote. It is on its way when this returns, not yet all served. Returns
    /// at once when the mount is ending.
    pub(crate) fn write_back(&self) {
        let mut state = self.state.lock();
        state.asked += 1;
        let mine = state.asked;
        self.order.notify_one();
        while state.done < mine && !state.stop {
            self.news.wait(&mut state);
        }
    }

    /// Has the kernel begin to send everything that programs wrote. Does not wait for it.
    pub(crate) fn begin_write_back(&self) {
        self.state.lock().asked += 1;
        self.order.notify_one();
    }

    /// Ends the thread, as soon as it is out of the kernel.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.order.notify_all();
        self.news.notify_all();
    }

    fn run(&self, duties: &Duties, activity: &Activity) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        activity.ignore(duties.attachment.thread().unwrap_or(tid.unsigned_abs()));
        self.state.lock().thread = Some(tid);
        self.news.notify_all();
        let mut last = Instant::now();
        let mut last_try = Instant::now();
        loop {
            let mut state = self.state.lock();
            while !state.stop && state.asked == state.done {
                let now = Instant::now();
                let next = [
                    duties.write_back_interval.map(|i| last + i),
                    duties
                        .idle_timeout
                        .map(|t| (activity.last() + t).max(last_try + IDLE_RETRY.min(t))),
                ];
                let Some(next) = next.into_iter().flatten().min() else {
                    self.order.wait(&mut state);
                    continue;
                };
                if next <= now || self.order.wait_until(&mut state, next).timed_out() {
                    break;
                }
            }
            if state.stop {
                return;
            }
            let asked = state.asked;
            let wanted = asked > state.done;
            drop(state);

            if wanted
                || duties
                    .write_back_interval
                    .is_some_and(|i| last.elapsed() >= i)
            {
                duties
                    .attachment
                    .write_back(&duties.mountpoint, duties.device);
                last = Instant::now();
                self.state.lock().done = asked;
                self.news.notify_all();
            }
            if duties
                .idle_timeout
                .is_some_and(|t| activity.last().elapsed() >= t)
            {
                // Busy is the usual answer when something is open: tried again later.
                let (at, device) = (&duties.mountpoint, duties.device);
                let _ = duties.attachment.detach(at, device);
                last_try = Instant::now();
            }
        }
    }
}
