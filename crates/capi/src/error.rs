//! Errors as C has them: a negative number, and a text for the thread that asked.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use embed::{Error, Kind, Result, guard};

/// What a call came to. 0 and above is success; of these each has something else to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(non_camel_case_types)]
pub enum strongroom_code {
    /// Done.
    STRONGROOM_OK = 0,
    /// There is no such file, no such snapshot (any more), or no policy.
    STRONGROOM_NOT_FOUND = -1,
    /// There is one already.
    STRONGROOM_EXISTS = -2,
    /// Not a directory.
    STRONGROOM_NOT_DIRECTORY = -3,
    /// Is a directory.
    STRONGROOM_IS_DIRECTORY = -4,
    /// A directory that is not empty.
    STRONGROOM_NOT_EMPTY = -5,
    /// Not allowed, whatever the key.
    STRONGROOM_NOT_PERMITTED = -6,
    /// The room or the file was not opened for this.
    STRONGROOM_READ_ONLY = -7,
    /// An argument that makes no sense: NULL, too long, out of range.
    STRONGROOM_INVALID_ARGUMENT = -8,
    /// Not there in this version, or for this kind of file.
    STRONGROOM_NOT_SUPPORTED = -9,
    /// No space where the room is stored: make some, and try again.
    STRONGROOM_NO_SPACE = -10,
    /// Data is damaged or was replaced: restore it from a backup.
    STRONGROOM_CORRUPT = -11,
    /// The storage failed: open the room again.
    STRONGROOM_IO = -12,
    /// Wrong passphrase or key.
    STRONGROOM_WRONG_KEY = -13,
    /// The directory holds no room.
    STRONGROOM_NOT_A_ROOM = -14,
    /// Another process has the room open, or a transaction has it.
    STRONGROOM_BUSY = -15,
    /// The room is older than this machine saw it.
    STRONGROOM_ROLLED_BACK = -16,
    /// The handle was closed, never was open, is of another kind, or the process is a fork of the one that opened it.
    STRONGROOM_CLOSED = -17,
    /// A fault of this library: please report it.
    STRONGROOM_INTERNAL = -18,
}

impl From<Kind> for strongroom_code {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::NotFound => Self::STRONGROOM_NOT_FOUND,
            Kind::Exists => Self::STRONGROOM_EXISTS,
            Kind::NotDirectory => Self::STRONGROOM_NOT_DIRECTORY,
            Kind::IsDirectory => Self::STRONGROOM_IS_DIRECTORY,
            Kind::NotEmpty => Self::STRONGROOM_NOT_EMPTY,
            Kind::NotPermitted => Self::STRONGROOM_NOT_PERMITTED,
            Kind::ReadOnly => Self::STRONGROOM_READ_ONLY,
            Kind::InvalidArgument => Self::STRONGROOM_INVALID_ARGUMENT,
            Kind::NotSupported => Self::STRONGROOM_NOT_SUPPORTED,
            Kind::NoSpace => Self::STRONGROOM_NO_SPACE,
            Kind::Corrupt => Self::STRONGROOM_CORRUPT,
            Kind::Io => Self::STRONGROOM_IO,
            Kind::WrongKey => Self::STRONGROOM_WRONG_KEY,
            Kind::NotARoom => Self::STRONGROOM_NOT_A_ROOM,
            Kind::Busy => Self::STRONGROOM_BUSY,
            Kind::RolledBack => Self::STRONGROOM_ROLLED_BACK,
            Kind::Closed => Self::STRONGROOM_CLOSED,
            Kind::Internal => Self::STRONGROOM_INTERNAL,
        }
    }
}

struct Last {
    text: CString,
    errno: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { text: CString::default(), errno: 0 });
}

/// Runs what a C program called, and remembers why it failed.
pub(crate) fn call(work: impl FnOnce() -> Result<()>) -> i32 {
    match guard(work) {
        Ok(()) => strongroom_code::STRONGROOM_OK as i32,
        Err(e) => failed(&e),
    }
}

/// The same for what answers with a number.
pub(crate) fn count(work: impl FnOnce() -> Result<u64>) -> i64 {
    let counted = guard(|| {
        i64::try_from(work()?).map_err(|_| Error::Argument("the answer is above 2^63".into()))
    });
    counted.unwrap_or_else(|e| i64::from(failed(&e)))
}

fn failed(error: &Error) -> i32 {
    let text: Vec<u8> = error.to_string().bytes().filter(|b| *b != 0).collect();
    let last = Last {
        text: CString::new(text).unwrap_or_default(),
        errno: error.errno(),
    };
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|at| at.replace(last));
    strongroom_code::from(error.kind()) as i32
}

/// Why the last call that failed in this thread did, in a sentence for people: what happened, to what, and what to do next. Empty before
/// the first one. It stays until the next call that fails in this thread, or the thread's end.
///
/// Thread safety: any thread; each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The number of POSIX (`errno.h`) that is nearest to the last error of this thread; 0 before the first one.
///
/// Thread safety: any thread; each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_last_errno() -> i32 {
    LAST.try_with(|last| last.borrow().errno).unwrap_or(0)
}

/// The version of this library, as `0.1.0`.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
