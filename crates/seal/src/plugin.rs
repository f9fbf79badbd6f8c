//! Programs of age plugins: each ends with the call that started it.
//!
//! The age library starts a program on the thread that calls it, and never waits for its end. So a call has a thread of its own, whose
//! children are its programs:
//!
//! 1. None of them stays a zombie: the thread waits for each.
//! 2. One that does not answer within a limit is killed. Without a limit it may take as long as the person who must touch the device.
//! 3. One that has answered has nothing more to do: it is killed if it does not end.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::thread::gettid;

/// How long a plugin is waited for where nobody can be at its device.
pub const UNATTENDED: Duration = Duration::from_secs(300);
/// How long a program may take to end once its pipes are closed.
const ENDING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);
/// Linux's `__WNOTHREAD`: only children of the calling thread.
const OF_THIS_THREAD: WaitOptions = WaitOptions::from_bits_retain(0x2000_0000);

/// Makes a call of the age library that starts programs. `None`: there was no answer within `limit`, and they were killed.
pub(crate) fn call<T: Send + 'static>(
    limit: Option<Duration>,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (begun, begins) = channel();
    let (answered, answers) = channel();
    // Held while programs are waited for: then the number of one may be another process's.
    let reaping = Arc::new(Mutex::new(()));
    let reaped = reaping.clone();
    let asking = thread::spawn(move || {
        let _ = begun.send(gettid());
        let _ = answered.send(ask());
        let _reaping = reaped.lock();
        reap();
    });
    let answer = match limit {
        None => answers.recv().map_err(RecvTimeoutError::from),
        Some(limit) => answers.recv_timeout(limit),
    };
    let late = match answer {
        Ok(_) => false,
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) => match asking.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread sends an answer"),
        },
    };
    // A program's own child that keeps its pipes open, or a kernel that does not list children, would keep the thread for long: then it is
    // left behind, and reaps later.
    let until = Instant::now() + 2 * ENDING;
    let asking = begins.recv().ok();
    while Instant::now() < until {
        if late
            && let Some(asking) = asking
            && let Ok(_not_reaping) = reaping.try_lock()
        {
            kill_children(asking);
        }
        match answers.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    answer.ok()
}

/// Waits for the programs of this thread.
fn reap() {
    let until = Instant::now() + ENDING;
    loop {
        match wait(OF_THIS_THREAD | WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) if Instant::now() > until => kill_children(gettid()),
            Ok(None) => {}
            // There are none any more.
            Err(_) => return,
        }
        thread::sleep(LOOK);
    }
}

/// Kills the children of a thread of this process, as far as the kernel lists them (`CONFIG_PROC_CHILDREN`).
fn kill_children(of: Pid) {
    let list = format!("/proc/self/task/{of}/children");
    let children = std::fs::read_to_string(list).unwrap_or_default();
    let numbers = children.split_whitespace();
    for child in numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)) {
        let _ = kill_process(child, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts a program; its number.
    fn start(program: &[&str]) -> u32 {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).stdout(Stdio::null());
        command.spawn().unwrap().id()
    }

    fn is_there(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn programs_end_with_the_call_and_leave_no_zombie() {
        let ended = call(None, || start(&["true"])).unwrap();
        assert!(!is_there(ended));
        // It has answered, and stays.
        let stays = call(None, || start(&["sleep", "600"])).unwrap();
        assert!(!is_there(stays));
    }

    #[test]
    fn one_that_does_not_answer_is_killed() {
        let (send, pid) = channel();
        let answer = call(Some(Duration::from_millis(50)), move || {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            send.send(child.id()).unwrap();
            child.wait().unwrap()
        });
        assert!(answer.is_none());
        assert!(!is_there(pid.recv().unwrap()));
    }

    #[test]
    fn children_of_other_threads_are_left_alone() {
        let mut other = Command::new("true").spawn().unwrap();
        call(None, || start(&["true"])).unwrap();
        assert!(other.wait().unwrap().success());
    }

    #[test]
    #[should_panic(expected = "a fault")]
    fn a_panic_comes_through() {
        call(None, || -> u32 { panic!("a fault") });
    }
}
