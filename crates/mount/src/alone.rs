//! Threads that hold no descriptor but 0, 1 and 2: the kernel waits for none of them to close something.
//!
//! A new thread shares the table of descriptors of the thread that makes it. So one thread of the process takes a table of
//! its own, once, and makes all the others. Each could close its own copies instead, but closing a file in another mount of
//! this process waits for the server of that mount, and meanwhile the copies keep locks and sockets in use that were closed.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

use crate::error::MountError;

type Made = std::io::Result<JoinHandle<()>>;

/// A thread to make: its name, what it does, who waits for it.
struct Order {
    name: String,
    run: Box<dyn FnOnce() + Send>,
    made: Sender<Made>,
}

/// The thread that makes the others, and the process it is in: a fork has no thread but the one that forked.
static MAKER: Mutex<Option<(u32, Sender<Order>)>> = Mutex::new(None);

/// Starts a thread without descriptors.
///
/// # Errors
/// [`MountError::KernelTooOld`], [`MountError::Thread`].
pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, MountError> {
    let ended = || MountError::Thread(std::io::ErrorKind::BrokenPipe.into());
    let (made, answer) = channel();
    let order = Order {
        name: name.to_owned(),
        run: Box::new(run),
        made,
    };
    maker()?.send(order).map_err(|_| ended())?;
    let made = answer.recv().map_err(|_| ended())?;
    made.map_err(MountError::Thread)
}

/// How to give orders to the thread that makes the others, which is started where there is none.
fn maker() -> Result<Sender<Order>, MountError> {
    let mut maker = MAKER.lock();
    let process = std::process::id();
    if let Some((of, orders)) = &*maker
        && *of == process
    {
        return Ok(orders.clone());
    }
    let (orders, taken) = channel();
    let (ready, alone) = channel();
    Builder::new()
        .name("strongroom-alone".to_owned())
        .spawn(move || {
            let left = leave_descriptors();
            // Nobody waits only where the starting thread has gone.
            let _ = ready.send(left);
            if left {
                make(&taken);
            }
        })
        .map_err(MountError::Thread)?;
    if alone.recv() != Ok(true) {
        return Err(MountError::KernelTooOld("close_range"));
    }
    *maker = Some((process, orders.clone()));
    Ok(orders)
}

fn make(orders: &Receiver<Order>) {
    for order in orders {
        let made = Builder::new().name(order.name).spawn(order.run);
        let _ = order.made.send(made);
    }
}

/// Gives this thread a table of descriptors of its own with none but 0, 1 and 2. `false`: the kernel cannot.
#[allow(unsafe_code)]
fn leave_descriptors() -> bool {
    // SAFETY: with CLOSE_RANGE_UNSHARE the calling thread first gets its own copy of the table, and closes only there:
    // descriptors of other threads stay open for them. This thread, and those it makes, use only descriptors that they opened
    // afterwards.
    unsafe {
        libc::close_range(
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE as libc::c_int,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    /// What failed: each new thread closed its own copies, and waited where a file was on a mount that did not answer.
    #[test]
    fn a_thread_has_no_descriptor_of_others_and_what_is_opened_later_reaches_none() {
        // The thread that makes the others has taken its table before this is opened.
        spawn("first", || {}).unwrap().join().unwrap();
        let file = File::open("/proc/self/stat").unwrap();
        let number = file.as_raw_fd();
        let (send, seen) = channel();
        let thread = spawn("second", move || {
            let own = format!("/proc/thread-self/fd/{number}");
            send.send(std::fs::read_link(own).is_ok()).unwrap();
        });
        thread.unwrap().join().unwrap();
        assert!(!seen.recv().unwrap(), "descriptor {number} is in its table");
    }
}
