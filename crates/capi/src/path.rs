//! What is asked and changed by path.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use embed::{Error, Result, SetAttr, SetTime, Timestamp};

use crate::arguments::session;
use crate::error::call;
use crate::types::{strongroom_room, strongroom_stat, strongroom_time};

/// # Safety
/// `path` is NULL or a text that ends with NUL, and stays for `'a`.
pub(crate) unsafe fn path<'a>(path: *const c_char, what: &str) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { foreign::text(path, what) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
/// `path` is NULL or a text that ends with NUL; `stat` is NULL or points to room for it.
unsafe fn stat(
    room: strongroom_room,
    path: *const c_char,
    stat: *mut strongroom_stat,
    follow: bool,
) -> i32 {
    call(|| {
        let to = foreign::out(stat, "stat")?;
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        let inode = session(room)?.stat(path, follow)?;
        // SAFETY: the same.
        unsafe { foreign::put(to, (&inode).into()) };
        Ok(())
    })
}

/// Attributes of what is at a path, through a symbolic link at its end.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `to` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_get_stat(
    room: strongroom_room,
    path: *const c_char,
    to: *mut strongroom_stat,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { stat(room, path, to, true) }
}

/// Attributes of what is at a path; of a symbolic link its own.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `to` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_get_lstat(
    room: strongroom_room,
    path: *const c_char,
    to: *mut strongroom_stat,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { stat(room, path, to, false) }
}

fn change(room: strongroom_room, path: &Path, set: &SetAttr, follow: bool) -> Result<()> {
    session(room)?.set_attributes(path, set, follow).map(drop)
}

/// Sets permission bits, 0 to 07777.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_chmod(
    room: strongroom_room,
    path: *const c_char,
    mode: u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        let mode = u16::try_from(mode)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| Error::Argument("the mode has other bits than 07777".into()))?;
        change(room, path, &SetAttr::mode(mode), true)
    })
}

/// Sets owner and group; 4294967295 (`(uid_t)-1`) leaves one as it is. `follow` 0: of a symbolic link at the end of the path itself.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_chown(
    room: strongroom_room,
    path: *const c_char,
    uid: u32,
    gid: u32,
    follow: i32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        let given = |id| Some(id).filter(|id| *id != u32::MAX);
        change(
            room,
            path,
            &SetAttr::owner(given(uid), given(gid)),
            follow != 0,
        )
    })
}

/// Sets the times of last access and last change of data; NULL leaves one as it is. `follow` as for `strongroom_chown`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; the times are NULL or point to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_utimes(
    room: strongroom_room,
    path: *const c_char,
    atime: *const strongroom_time,
    mtime: *const strongroom_time,
    follow: i32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise, as for the next two.
        let path = unsafe { self::path(path, "path") }?;
        let set = SetAttr {
            // SAFETY: the same.
            atime: unsafe { time(atime) }?,
            // SAFETY: the same.
            mtime: unsafe { time(mtime) }?,
            ..SetAttr::default()
        };
        change(room, path, &set, follow != 0)
    })
}

/// # Safety
/// `time` is NULL or points to one.
unsafe fn time(time: *const strongroom_time) -> Result<Option<SetTime>> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let time = unsafe { foreign::value(time, "time") }?;
    if time.nanos > 999_999_999 {
        return Err(Error::Argument("nanos is above 999,999,999".into()));
    }
    Ok(Some(SetTime::At(Timestamp::new(time.secs, time.nanos))))
}

/// Sets the length of a file: cut, or made longer with zeros that take no space.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_truncate(
    room: strongroom_room,
    path: *const c_char,
    size: u64,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        change(room, path, &SetAttr::size(size), true)
    })
}
