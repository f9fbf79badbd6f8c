//! Files and names, by path: the calls of FUSE.

#![allow(non_camel_case_types, reason = "the names are C's")]

use std::ffi::{OsStr, c_char, c_int, c_ulong, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use embed::{Error, Kind, OpenMode, RenameMode, Result, RoomError, Session};
use libc::{mode_t, off_t, size_t, stat};

use crate::answer::proc;
use crate::mount;
use crate::sqlfs_t;

/// FUSE's record of an open file, as version 2.6 had it. Of it libsqlfs's programs use `flags`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct fuse_file_info {
    /// As of open(2).
    pub flags: c_int,
    /// Not used.
    pub fh_old: c_ulong,
    /// Not used.
    pub writepage: c_int,
    /// Bit 0: direct I/O.
    pub bits: u32,
    /// Not used.
    pub fh: u64,
}

/// FUSE's function for one name of a directory.
pub type fuse_fill_dir_t =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const stat, off_t) -> c_int>;

/// Permission bits of a file that a write makes.
const NEW_MODE: u16 = 0o644;

/// The open room, and a path in it.
///
/// # Safety
/// `path` is NULL or a text.
pub(crate) unsafe fn at<'a>(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
) -> Result<(Session, &'a Path)> {
    // SAFETY: the caller's promise.
    let path = unsafe { self::path(path) }?;
    Ok((mount::get(sqlfs)?.session(), path))
}

/// # Safety
/// `path` is NULL or a text.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe {
        foreign::text(path, "path")
    }?)))
}

/// # Safety
/// `fi` is NULL or points to one.
unsafe fn flags(fi: *const fuse_file_info) -> Result<c_int> {
    if fi.is_null() {
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    let fi = unsafe { foreign::value(fi, "fi") }?;
    match fi.bits & 1 {
        0 => Ok(fi.flags),
        // What libsqlfs answers.
        _ => Err(RoomError::Io(io::Error::from_raw_os_error(libc::EACCES)).into()),
    }
}

fn offset(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::Argument("a negative offset".into()))
}

fn open_mode(flags: c_int, mode: u16) -> OpenMode {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    OpenMode {
        read: true,
        write: writes || flags & (libc::O_CREAT | libc::O_TRUNC) != 0,
        append: false,
        create: flags & libc::O_CREAT != 0,
        create_new: flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        mode,
    }
}

/// Looks whether a file can be opened with `fi->flags`, makes or cuts it as they say, and keeps nothing open.
///
/// # Safety
/// `path` is NULL or a text, `fi` NULL or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_open(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    fi: *mut fuse_file_info,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), flags) = unsafe { (at(sqlfs, path)?, self::flags(fi)?) };
        match session.open_file(path, open_mode(flags, NEW_MODE)) {
            // A directory opens for reading, as there.
            Err(e)
                if e.kind() == Kind::IsDirectory
                    && flags & (libc::O_ACCMODE | libc::O_TRUNC) == 0 =>
            {
                Ok(0)
            }
            other => other.map(|_| 0),
        }
    })
}

/// Makes a file; one that is there stays, unless `fi->flags` has O_EXCL or O_TRUNC.
///
/// # Safety
/// `path` is NULL or a text, `fi` NULL or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_create(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    mode: mode_t,
    fi: *mut fuse_file_info,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), flags) = unsafe { (at(sqlfs, path)?, self::flags(fi)?) };
        let mode = (mode & 0o7777) as u16;
        session.open_file(
            path,
            open_mode(flags | libc::O_CREAT | libc::O_WRONLY, mode),
        )?;
        if !fi.is_null() {
            // SAFETY: the same; libsqlfs leaves these flags there.
            unsafe { (*fi).flags |= libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC };
        }
        Ok(0)
    })
}

/// Makes a regular file, which must not be there. Other kinds are not supported.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_mknod(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    mode: mode_t,
    _rdev: libc::dev_t,
) -> c_int {
    proc(|| {
        if !matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG) {
            return Err(RoomError::NotSupported("making what is not a regular file").into());
        }
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        session.open_file(path, open_mode(flags, (mode & 0o7777) as u16))?;
        Ok(0)
    })
}

/// Reads; returns how many bytes.
///
/// # Safety
/// `path` is NULL or a text, `buf` NULL or room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_read(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    buf: *mut c_char,
    size: size_t,
    offset: off_t,
    _fi: *mut fuse_file_info,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice. An answer counts in an int: more is a short read.
        let ((session, path), buf) = unsafe {
            (
                at(sqlfs, path)?,
                foreign::bytes_mut(buf.cast(), size.min(c_int::MAX as usize), "buf")?,
            )
        };
        let file = session.open_file(path, OpenMode::READ)?;
        file.read_at(self::offset(offset)?, buf)
    })
}

/// Writes all, at the end where `fi->flags` has O_APPEND; makes the file where it is missing. Returns `size`.
///
/// # Safety
/// `path` is NULL or a text, `buf` NULL or `size` bytes, `fi` NULL or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_write(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    buf: *const c_char,
    size: size_t,
    offset: off_t,
    fi: *mut fuse_file_info,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, three times.
        let ((session, path), buf) =
            unsafe { (at(sqlfs, path)?, foreign::bytes(buf.cast(), size, "buf")?) };
        if c_int::try_from(size).is_err() {
            return Err(Error::Argument("more than 2 GiB at once".into()));
        }
        // SAFETY: the same. Programs set all bits at once, those of direct I/O not among them.
        let append = unsafe { self::flags(fi) }? & libc::O_APPEND != 0;
        let mode = OpenMode {
            append,
            truncate: false,
            ..OpenMode::WRITE
        };
        let file = session.open_file(path, mode)?;
        file.write_at(self::offset(offset)?, buf)?;
        Ok(size)
    })
}

/// Nothing: there is nothing open.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_proc_release(
    _sqlfs: *mut sqlfs_t,
    _path: *const c_char,
    _fi: *mut fuse_file_info,
) -> c_int {
    0
}

/// Makes everything durable; within a transaction its completion does.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_fsync(
    sqlfs: *mut sqlfs_t,
    _path: *const c_char,
    _isdatasync: c_int,
    _fi: *mut fuse_file_info,
) -> c_int {
    proc(|| mount::get(sqlfs)?.session().sync().map(|()| 0))
}

/// Creates a directory in one that exists.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_mkdir(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        session.make_dir(path, (mode & 0o7777) as u16).map(|()| 0)
    })
}

/// Removes a file.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_unlink(sqlfs: *mut sqlfs_t, path: *const c_char) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        session.remove_file(path).map(|()| 0)
    })
}

/// Removes an empty directory.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_rmdir(sqlfs: *mut sqlfs_t, path: *const c_char) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        session.remove_dir(path).map(|()| 0)
    })
}

/// Makes a symbolic link at `to` that says `path`.
///
/// # Safety
/// `path` and `to` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_symlink(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    to: *const c_char,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let (target, (session, to)) = unsafe { (foreign::text(path, "path")?, at(sqlfs, to)?) };
        session.symlink(target, to).map(|()| 0)
    })
}

/// What a symbolic link says, ended with NUL and cut to `size`; returns 0.
///
/// # Safety
/// `path` is NULL or a text, `buf` NULL or room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_readlink(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    buf: *mut c_char,
    size: size_t,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), buf) = unsafe {
            (
                at(sqlfs, path)?,
                foreign::bytes_mut(buf.cast(), size, "buf")?,
            )
        };
        let target = session.read_link(path)?;
        if let Some(last) = size.checked_sub(1) {
            let n = target.len().min(last);
            buf[..n].copy_from_slice(&target[..n]);
            buf[n] = 0;
        }
        Ok(0)
    })
}

/// Renames, as rename(2) does.
///
/// # Safety
/// `from` and `to` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_rename(
    sqlfs: *mut sqlfs_t,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, from), to) = unsafe { (at(sqlfs, from)?, self::path(to)?) };
        session.rename(from, to, RenameMode::Replace).map(|()| 0)
    })
}

/// Gives a file a further name. libsqlfs refuses.
///
/// # Safety
/// `from` and `to` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_link(
    sqlfs: *mut sqlfs_t,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, from), to) = unsafe { (at(sqlfs, from)?, self::path(to)?) };
        session.link(from, to).map(|()| 0)
    })
}
