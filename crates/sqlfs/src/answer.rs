//! What functions answer with, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use embed::{Error, Kind, Result, guard};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(error: &Error) {
    let text: Vec<u8> = error.to_string().bytes().filter(|b| *b != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|at| at.replace(text));
}

/// `sqlfs_proc_…`: what the work counts, or the negative error number, which `errno` has too.
pub(crate) fn proc(work: impl FnOnce() -> Result<usize>) -> c_int {
    let done = guard(|| {
        c_int::try_from(work()?).map_err(|_| Error::Argument("more than 2 GiB at once".into()))
    });
    done.unwrap_or_else(|e| {
        remember(&e);
        let errno = e.errno();
        // SAFETY: the place of this thread's errno, which is always there.
        unsafe { *libc::__errno_location() = errno };
        -errno
    })
}

/// 1, or 0 for failure.
pub(crate) fn yes(work: impl FnOnce() -> Result<()>) -> c_int {
    match guard(work) {
        Ok(()) => 1,
        Err(e) => {
            remember(&e);
            0
        }
    }
}

/// 0, or 1 for failure.
pub(crate) fn zero(work: impl FnOnce() -> Result<()>) -> c_int {
    1 - yes(work)
}

/// 1, 2 for busy, or 0 for another failure.
pub(crate) fn yes_or_busy(work: impl FnOnce() -> Result<()>) -> c_int {
    match guard(work) {
        Ok(()) => 1,
        Err(e) => {
            remember(&e);
            if e.kind() == Kind::Busy { 2 } else { 0 }
        }
    }
}

/// Why the last call that failed in this thread did. Not in libsqlfs, which prints it.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
