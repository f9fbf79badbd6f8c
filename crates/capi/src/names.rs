//! Names: made, moved, removed, linked.

use std::ffi::{c_char, c_void};

use embed::{Error, RenameMode};

use crate::arguments::session;
use crate::error::{call, count};
use crate::path::path;
use crate::types::strongroom_room;

/// For `strongroom_rename`: refuse a target that exists.
pub const STRONGROOM_RENAME_NOREPLACE: u32 = 1;
/// Swap the two, which both exist.
pub const STRONGROOM_RENAME_EXCHANGE: u32 = 2;

/// Creates a directory with these permission bits, such as 0755, in one that exists.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_mkdir(
    room: strongroom_room,
    path: *const c_char,
    mode: u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        session(room)?.make_dir(path, (mode & 0o7777) as u16)
    })
}

/// Creates a directory, and those above it that are missing; all there already: nothing to do.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_mkdirs(room: strongroom_room, path: *const c_char) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        session(room)?.make_dirs(path)
    })
}

/// Removes a name that is not a directory's. An open file stays usable until it is closed.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_unlink(room: strongroom_room, path: *const c_char) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        session(room)?.remove_file(path)
    })
}

/// Removes an empty directory.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_rmdir(room: strongroom_room, path: *const c_char) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path, "path") }?;
        session(room)?.remove_dir(path)
    })
}

/// Renames, as rename(2) does: onto a file, which it replaces, or, a directory, onto an empty directory. `flags`: 0,
/// `STRONGROOM_RENAME_NOREPLACE` or `STRONGROOM_RENAME_EXCHANGE`.
///
/// Thread safety: any thread; others see the old state or the new one.
///
/// # Safety
/// `from` and `to` are NULL or texts that end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_rename(
    room: strongroom_room,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (path(from, "from")?, path(to, "to")?) };
        let mode = match flags {
            0 => RenameMode::Replace,
            STRONGROOM_RENAME_NOREPLACE => RenameMode::NoReplace,
            STRONGROOM_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::Argument("flags is none of 0, 1 and 2".into())),
        };
        session(room)?.rename(from, to, mode)
    })
}

/// Gives the file `existing` the further name `path`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `existing` and `path` are NULL or texts that end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_link(
    room: strongroom_room,
    existing: *const c_char,
    path: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (existing, path) =
            unsafe { (self::path(existing, "existing")?, self::path(path, "path")?) };
        session(room)?.link(existing, path)
    })
}

/// Makes a symbolic link at `path` that says `target`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `target` and `path` are NULL or texts that end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_symlink(
    room: strongroom_room,
    target: *const c_char,
    path: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (target, path) =
            unsafe { (foreign::text(target, "target")?, self::path(path, "path")?) };
        session(room)?.symlink(target, path)
    })
}

/// What a symbolic link says: puts up to `len` bytes of it into `data`, with a NUL behind where there is room, and returns how many bytes
/// it has, without NUL. `len` 0: only asks.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `data` is NULL or points to room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_readlink(
    room: strongroom_room,
    path: *const c_char,
    data: *mut c_char,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise, as for the next one.
        let path = unsafe { self::path(path, "path") }?;
        // SAFETY: the same.
        let to = unsafe { foreign::bytes_mut(data.cast::<c_void>(), len, "data") }?;
        let target = session(room)?.read_link(path)?;
        let n = target.len().min(len);
        to[..n].copy_from_slice(&target[..n]);
        if let Some(end) = to.get_mut(n) {
            *end = 0;
        }
        Ok(target.len() as u64)
    })
}
