//! Open files.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use embed::{Error, File, OpenMode, Result, Whence};

use crate::arguments::session;
use crate::error::{call, count};
use crate::path::path;
use crate::types::{strongroom_file, strongroom_room, strongroom_stat};

/// For `strongroom_file_open`: reading.
pub const STRONGROOM_READ: u32 = 1;
/// Writing.
pub const STRONGROOM_WRITE: u32 = 2;
/// Each write goes to the end, whatever the position. Needs `STRONGROOM_WRITE`, as the next three do.
pub const STRONGROOM_APPEND: u32 = 4;
/// Make it where it is missing.
pub const STRONGROOM_CREATE: u32 = 8;
/// Make it, and refuse one that is there, a symbolic link too.
pub const STRONGROOM_EXCLUSIVE: u32 = 16;
/// Cut it to nothing.
pub const STRONGROOM_TRUNCATE: u32 = 32;

const FLAGS: u32 = 63;

fn file(handle: strongroom_file) -> Result<Arc<File>> {
    foreign::get(handle, "file handle")
}

/// Opens a file. `flags`: `STRONGROOM_READ` and others, added up. `mode`: permission bits of one that is made, such as 0644. `file`:
/// where the handle goes; 0 on failure. Symbolic links are followed. An open file outlives its name.
///
/// Thread safety: any thread.
///
/// # Safety
/// `path` is NULL or a text that ends with NUL; `file` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_open(
    room: strongroom_room,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut strongroom_file,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(file, 0) };
    call(|| {
        let to = foreign::out(file, "file")?;
        // SAFETY: the same.
        let path = unsafe { self::path(path, "path") }?;
        let has = |flag| flags & flag != 0;
        if flags & !FLAGS != 0 || !(has(STRONGROOM_READ) || has(STRONGROOM_WRITE)) {
            return Err(Error::Argument(
                "flags: a sum of STRONGROOM_READ, STRONGROOM_WRITE and others, with one of these two".into(),
            ));
        }
        let mode = OpenMode {
            read: has(STRONGROOM_READ),
            write: has(STRONGROOM_WRITE),
            append: has(STRONGROOM_APPEND),
            create: has(STRONGROOM_CREATE),
            create_new: has(STRONGROOM_EXCLUSIVE),
            truncate: has(STRONGROOM_TRUNCATE),
            mode: (mode & 0o7777) as u16,
        };
        let opened = session(room)?.open_file(path, mode)?;
        // SAFETY: the same.
        unsafe { foreign::put(to, foreign::insert(opened)) };
        Ok(())
    })
}

/// Closes a file. Does not make it durable: see `strongroom_file_sync`. Possible also after its room was closed.
///
/// Thread safety: any thread; calls that others are in end as if it were still open. Of two that close it one gets `CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_file_close(file: strongroom_file) -> i32 {
    call(|| foreign::remove::<File>(file, "file handle").map(drop))
}

/// Reads up to `len` bytes at the position and moves it; returns how many: fewer only at the end of the file, 0 there.
///
/// Thread safety: any thread; those that share a handle take turns, and share its position.
///
/// # Safety
/// `data` is NULL or points to room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_read(
    file: strongroom_file,
    data: *mut c_void,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { foreign::bytes_mut(data, len, "data") }?;
        Ok(self::file(file)?.read(data)? as u64)
    })
}

/// Writes all `len` bytes at the position (or, opened for appending, at the end) and moves it behind them; returns `len`.
///
/// Thread safety: any thread; those that share a handle take turns, and share its position.
///
/// # Safety
/// `data` is NULL or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_write(
    file: strongroom_file,
    data: *const c_void,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { foreign::bytes(data, len, "data") }?;
        self::file(file)?.write(data)?;
        Ok(len as u64)
    })
}

/// Reads up to `len` bytes at `offset`; returns how many: fewer only at the end of the file, 0 there. The position stays.
///
/// Thread safety: any thread; reads of the same file do not wait for each other.
///
/// # Safety
/// `data` is NULL or points to room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_pread(
    file: strongroom_file,
    data: *mut c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { foreign::bytes_mut(data, len, "data") }?;
        Ok(self::file(file)?.read_at(offset, data)? as u64)
    })
}

/// Writes all `len` bytes at `offset` (or, opened for appending, at the end); returns `len`. The position stays.
///
/// Thread safety: any thread.
///
/// # Safety
/// `data` is NULL or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_pwrite(
    file: strongroom_file,
    data: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { foreign::bytes(data, len, "data") }?;
        self::file(file)?.write_at(offset, data)?;
        Ok(len as u64)
    })
}

/// Moves the position by `offset` from the start (`whence` 0), the present one (1) or the end (2), as `SEEK_SET` and the others are
/// numbered; returns the new one. It may be behind the end, and not before the start.
///
/// Thread safety: any thread; those that share a handle share its position.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_file_seek(file: strongroom_file, offset: i64, whence: i32) -> i64 {
    count(|| {
        let whence = match whence {
            0 => Whence::Start,
            1 => Whence::Current,
            2 => Whence::End,
            _ => return Err(Error::Argument("whence is none of 0, 1 and 2".into())),
        };
        self::file(file)?.seek(whence, offset)
    })
}

/// Sets the length: cut, or made longer with zeros that take no space. The position stays.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_file_truncate(file: strongroom_file, size: u64) -> i32 {
    call(|| self::file(file)?.set_len(size))
}

/// Attributes of an open file.
///
/// Thread safety: any thread.
///
/// # Safety
/// `stat` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_file_stat(
    file: strongroom_file,
    stat: *mut strongroom_stat,
) -> i32 {
    call(|| {
        let to = foreign::out(stat, "stat")?;
        let inode = self::file(file)?.stat()?;
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, (&inode).into()) };
        Ok(())
    })
}

/// Makes what was written durable; in fact everything done to the room. Within a transaction its completion does that, and this does
/// nothing.
///
/// Thread safety: any thread; those that ask at the same time are served by one commit.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_file_sync(file: strongroom_file) -> i32 {
    call(|| self::file(file)?.sync())
}
