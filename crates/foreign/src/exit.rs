//! The end of the program.
//!
//! A room has a thread of its own, which commits with the help of libcrypto; libcrypto takes itself down when the program exits. So rooms
//! are closed before that: handlers run in the opposite order of their registration, and ours is registered when a room was opened,
//! which is after libcrypto was first used.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

/// How long the end of the program waits for calls that other threads are in.
const TIMEOUT: Duration = Duration::from_secs(10);

static CLOSERS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Has `close` called once when the program exits in order (not by a signal, nor by `_exit`).
pub fn at_exit(close: fn()) {
    let mut closers = CLOSERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if closers
        .iter()
        .any(|known| std::ptr::fn_addr_eq(*known, close))
    {
        return;
    }
    if closers.is_empty() {
        // SAFETY: `run` unwinds nowhere, and this library is never unloaded. Refused, the rooms are as after a crash.
        unsafe { libc::atexit(run) };
    }
    closers.push(close);
}

extern "C" fn run() {
    // In a thread of its own, so that a lock which some thread holds for ever does not hold up the program's end for ever.
    let (done, waiting) = mpsc::channel();
    let closing = std::thread::Builder::new()
        .name("room exit".into())
        .spawn(move || {
            let closers = CLOSERS
                .try_lock()
                .map(|all| all.clone())
                .unwrap_or_default();
            for close in closers {
                close();
            }
            let _ = done.send(());
        });
    if let Ok(thread) = closing {
        match waiting.recv_timeout(TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => drop(thread.join()),
        }
    }
}
