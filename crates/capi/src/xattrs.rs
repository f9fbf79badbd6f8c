//! Extended attributes.

use std::ffi::{c_char, c_void};

use embed::{Error, Result, XattrMode};

use crate::arguments::session;
use crate::error::{call, count};
use crate::path::path;
use crate::types::strongroom_room;

/// For `strongroom_xattr_set`: refuse one that exists.
pub const STRONGROOM_XATTR_CREATE: u32 = 1;
/// Refuse one that does not exist.
pub const STRONGROOM_XATTR_REPLACE: u32 = 2;

/// Copies an answer out, and says how long it is.
///
/// # Safety
/// `data` is NULL or points to room for `len` bytes.
unsafe fn answer(found: &[u8], data: *mut c_void, len: usize) -> Result<u64> {
    if len > 0 {
        // SAFETY: the caller's promise.
        let to = unsafe { foreign::bytes_mut(data, len, "data") }?;
        let Some(to) = to.get_mut(..found.len()) else {
            return Err(Error::Argument(format!(
                "there are {} bytes, and room for {len}",
                found.len()
            )));
        };
        to.copy_from_slice(found);
    }
    Ok(found.len() as u64)
}

/// The value of an extended attribute: puts it into `data` and returns its length. `len` 0: only asks. Where `len` is too small:
/// `INVALID_ARGUMENT`; where there is none: `INVALID_ARGUMENT` with the error number `ENODATA`. Symbolic links are followed, here and
/// below.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` and `name` are NULL or texts that end with NUL; `data` is NULL or points to room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_xattr_get(
    room: strongroom_room,
    path: *const c_char,
    name: *const c_char,
    data: *mut c_void,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise, as for the next one.
        let (path, name) = unsafe { (self::path(path, "path")?, foreign::text(name, "name")?) };
        let value = session(room)?.xattr(path, name)?;
        // SAFETY: the same.
        unsafe { answer(&value, data, len) }
    })
}

/// Sets an extended attribute, such as `user.note`. `flags`: 0, `STRONGROOM_XATTR_CREATE` or `STRONGROOM_XATTR_REPLACE`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` and `name` are NULL or texts that end with NUL; `data` is NULL or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_xattr_set(
    room: strongroom_room,
    path: *const c_char,
    name: *const c_char,
    data: *const c_void,
    len: usize,
    flags: u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise, as for the next one.
        let (path, name) = unsafe { (self::path(path, "path")?, foreign::text(name, "name")?) };
        // SAFETY: the same.
        let value = unsafe { foreign::bytes(data, len, "data") }?;
        let mode = match flags {
            0 => XattrMode::Any,
            STRONGROOM_XATTR_CREATE => XattrMode::Create,
            STRONGROOM_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::Argument("flags is none of 0, 1 and 2".into())),
        };
        session(room)?.set_xattr(path, name, value, mode)
    })
}

/// Removes an extended attribute.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` and `name` are NULL or texts that end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_xattr_remove(
    room: strongroom_room,
    path: *const c_char,
    name: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, name) = unsafe { (self::path(path, "path")?, foreign::text(name, "name")?) };
        session(room)?.remove_xattr(path, name)
    })
}

/// The names of all extended attributes, sorted, each ended with NUL: puts them into `data` and returns how many bytes they have. `len` 0:
/// only asks. Where `len` is too small: `INVALID_ARGUMENT`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `data` is NULL or points to room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_xattr_list(
    room: strongroom_room,
    path: *const c_char,
    data: *mut c_char,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise, as for the next one.
        let path = unsafe { self::path(path, "path") }?;
        let mut names = Vec::new();
        for name in session(room)?.xattr_names(path)? {
            names.extend(name);
            names.push(0);
        }
        // SAFETY: the same.
        unsafe { answer(&names, data.cast(), len) }
    })
}
