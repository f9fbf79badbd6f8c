//! Directories, listed.

use std::ffi::c_char;
use std::sync::Arc;

use embed::{Entry, Result};
use parking_lot::Mutex;

use crate::arguments::session;
use crate::error::{call, count};
use crate::path::path;
use crate::types::{field, strongroom_dir, strongroom_entry, strongroom_room};

/// What a directory held when it was opened, and has not been asked for yet.
struct Listing(Mutex<std::vec::IntoIter<Entry>>);

/// Opens the listing of a directory: its names of this moment, in the order in which they were made, neither `.` nor `..`. `dir`: where
/// the handle goes; 0 on failure. It can be read on after the room was closed.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `dir` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_dir_open(
    room: strongroom_room,
    path: *const c_char,
    dir: *mut strongroom_dir,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(dir, 0) };
    call(|| {
        let to = foreign::out(dir, "dir")?;
        // SAFETY: the same.
        let path = unsafe { self::path(path, "path") }?;
        let entries = session(room)?.list(path)?;
        let listing = Listing(Mutex::new(entries.into_iter()));
        // SAFETY: the same.
        unsafe { foreign::put(to, foreign::insert(listing)) };
        Ok(())
    })
}

/// The next name: 1 and `entry` is filled in, or 0: there are no more.
///
/// Thread safety: any thread; each name is given once, to one of them.
///
/// # Safety
/// `entry` is NULL or points to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_dir_next(
    dir: strongroom_dir,
    entry: *mut strongroom_entry,
) -> i64 {
    count(|| {
        let to = foreign::out(entry, "entry")?;
        let listing: Result<Arc<Listing>> = foreign::get(dir, "directory handle");
        let Some(next) = listing?.0.lock().next() else {
            return Ok(0);
        };
        let entry = strongroom_entry {
            stat: (&next.inode).into(),
            name: field(&next.name),
        };
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, entry) };
        Ok(1)
    })
}

/// Closes a listing.
///
/// Thread safety: any thread; of two that close it one gets `CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_dir_close(dir: strongroom_dir) -> i32 {
    call(|| foreign::remove::<Listing>(dir, "directory handle").map(drop))
}
