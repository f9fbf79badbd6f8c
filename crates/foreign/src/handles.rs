//! Handles: numbers for what is open.
//!
//! 1. A number is never given again, so a stale one finds nothing.
//! 2. A process has the handles that it opened itself. A fork begins with none, whatever lock another thread held in that moment.
//! 3. What is closed by one thread while another uses it lives until that one is done.

use std::any::Any;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use embed::{Error, Result};
use parking_lot::{Mutex, MutexGuard, RwLock};

type Thing = Arc<dyn Any + Send + Sync>;

/// The first number: none that a program makes up by accident.
const FIRST: u64 = 0x5352_0000_0001;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);
/// How often this process is a fork of the one that loaded the library.
static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Never freed: a fork leaves its parent's behind, untouched.
static PRESENT: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

struct Table {
    forks: u64,
    open: RwLock<HashMap<u64, Thing>>,
    opening: Mutex<()>,
    /// The table of the process that this one was forked from. Kept for leak checkers, who look for what nothing points to.
    _before: *mut Table,
}

/// Gives what was opened a number.
pub fn insert<T: Any + Send + Sync>(what: T) -> u64 {
    watch_forks();
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    present().open.write().insert(handle, Arc::new(what));
    handle
}

/// The object of a handle. `what` names it in the error.
pub fn get<T: Any + Send + Sync>(handle: u64, what: &'static str) -> Result<Arc<T>> {
    let thing = present().open.read().get(&handle).cloned();
    thing
        .and_then(|thing| thing.downcast::<T>().ok())
        .ok_or(Error::Closed(what))
}

/// Takes the number back.
pub fn remove<T: Any + Send + Sync>(handle: u64, what: &'static str) -> Result<Arc<T>> {
    get::<T>(handle, what)?;
    let thing = present().open.write().remove(&handle);
    thing
        .and_then(|thing| thing.downcast::<T>().ok())
        .ok_or(Error::Closed(what))
}

/// Everything of one type that is open.
pub fn all<T: Any + Send + Sync>() -> Vec<Arc<T>> {
    let things: Vec<Thing> = present().open.read().values().cloned().collect();
    things
        .into_iter()
        .filter_map(|thing| thing.downcast::<T>().ok())
        .collect()
}

/// Held from looking for what is open to opening or closing it, so that one thread at a time of this process does.
pub fn opening() -> MutexGuard<'static, ()> {
    watch_forks();
    present().opening.lock()
}

fn present() -> &'static Table {
    loop {
        let forks = FORKS.load(Ordering::Acquire);
        let at = PRESENT.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: what is stored in PRESENT came from Box::into_raw below and is never freed.
            let table = unsafe { &*at };
            if table.forks == forks {
                return table;
            }
        }
        let new = Box::into_raw(Box::new(Table {
            forks,
            open: RwLock::default(),
            opening: Mutex::default(),
            _before: at,
        }));
        if PRESENT
            .compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: made above, and nobody else saw it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

fn watch_forks() {
    if WATCHING.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the handler does nothing but count, which a child may do at any moment, and this library is never unloaded.
    // A failure is one of memory; then a fork finds its rooms refused one by one, as the rooms themselves look who asks.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_what_it_was_given_for_and_nothing_once_it_was_taken_back() {
        let (a, b) = (insert(7_u8), insert(8_u8));
        assert_ne!(a, b);
        assert_eq!(*get::<u8>(a, "number").unwrap(), 7);
        assert_eq!(*remove::<u8>(a, "number").unwrap(), 7);
        for gone in [
            get::<u8>(a, "number"),
            remove::<u8>(a, "number"),
            get::<u8>(0, "number"),
        ] {
            assert!(matches!(gone, Err(Error::Closed("number"))), "{gone:?}");
        }
        assert_eq!(*get::<u8>(b, "number").unwrap(), 8);
    }

    #[test]
    fn a_number_of_another_kind_finds_nothing_and_takes_nothing_away() {
        let text = insert("a text");
        assert!(remove::<u16>(text, "number").is_err());
        assert_eq!(*get::<&str>(text, "text").unwrap(), "a text");
        assert!(all::<&str>().iter().any(|found| **found == "a text"));
    }

    #[test]
    fn a_fork_opens_whatever_its_parent_was_opening() {
        let _held = opening();
        // SAFETY: the child takes a lock that no other thread can know, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that waits for ever.
            unsafe { libc::alarm(60) };
            drop(opening());
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        // SAFETY: the child is this test's, and `status` its own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(
            (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
            (true, 7)
        );
    }

    #[test]
    fn what_is_closed_while_it_is_used_lives_until_then() {
        let handle = insert(String::from("in use"));
        let used = get::<String>(handle, "text").unwrap();
        drop(remove::<String>(handle, "text"));
        assert_eq!(*used, "in use");
    }
}
