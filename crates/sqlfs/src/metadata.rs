//! Attributes, extended ones, and space.

use std::ffi::{c_char, c_int, c_void};

use embed::{Error, FileKind, Inode, Result, RoomError, SetAttr, SetTime, Timestamp, XattrMode};
use libc::{gid_t, mode_t, off_t, size_t, stat, statvfs, uid_t, utimbuf};

use crate::answer::{proc, yes};
use crate::operations::at;
use crate::sqlfs_t;

/// POSIX's bits of a kind.
pub(crate) fn kind_bits(kind: FileKind) -> mode_t {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

pub(crate) fn stat_of(inode: &Inode) -> stat {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut st: stat = unsafe { std::mem::zeroed() };
    st.st_ino = inode.no.0;
    st.st_mode = kind_bits(inode.kind) | mode_t::from(inode.mode);
    st.st_nlink = inode.nlink.into();
    st.st_uid = inode.uid;
    st.st_gid = inode.gid;
    st.st_rdev = inode.rdev;
    st.st_size = inode.size as off_t;
    st.st_blksize = 4096;
    st.st_blocks = (inode.blocks * 8) as libc::blkcnt_t;
    st.st_atime = inode.atime.secs;
    st.st_atime_nsec = inode.atime.nanos.into();
    st.st_mtime = inode.mtime.secs;
    st.st_mtime_nsec = inode.mtime.nanos.into();
    st.st_ctime = inode.ctime.secs;
    st.st_ctime_nsec = inode.ctime.nanos.into();
    st
}

/// Attributes; of a symbolic link its own.
///
/// # Safety
/// `path` is NULL or a text, `stbuf` NULL or room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_getattr(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    stbuf: *mut stat,
) -> c_int {
    proc(|| {
        let to = foreign::out(stbuf, "stbuf")?;
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        let st = stat_of(&session.stat(path, false)?);
        // SAFETY: the same.
        unsafe { foreign::put(to, st) };
        Ok(0)
    })
}

/// 0 where there is something, whatever the mask: anyone with the key may do everything.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_access(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    _mask: c_int,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        session.stat(path, true).map(|_| 0)
    })
}

/// 1 where there is a directory.
///
/// # Safety
/// `key` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_is_dir(sqlfs: *mut sqlfs_t, key: *const c_char) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, key) }?;
        match session.stat(path, true)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(RoomError::NotDirectory.into()),
        }
    })
}

/// # Safety
/// `path` is NULL or a text.
unsafe fn set(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    set: impl FnOnce() -> Result<SetAttr>,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        session.set_attributes(path, &set()?, true)?;
        Ok(0)
    })
}

/// Sets permission bits.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_chmod(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    let change = || Ok(SetAttr::mode((mode & 0o7777) as u16));
    // SAFETY: the caller's promise.
    unsafe { set(sqlfs, path, change) }
}

/// Sets owner and group; -1 leaves one as it is.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_chown(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
) -> c_int {
    let change = || {
        let given = |id| Some(id).filter(|id| *id != uid_t::MAX);
        Ok(SetAttr::owner(given(uid), given(gid)))
    };
    // SAFETY: the caller's promise.
    unsafe { set(sqlfs, path, change) }
}

/// Sets the length.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_truncate(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    size: off_t,
) -> c_int {
    let change = || {
        let size = u64::try_from(size).map_err(|_| Error::Argument("a negative length".into()))?;
        Ok(SetAttr::size(size))
    };
    // SAFETY: the caller's promise.
    unsafe { set(sqlfs, path, change) }
}

/// Sets the times, in whole seconds; NULL: the present moment.
///
/// # Safety
/// `path` is NULL or a text, `buf` NULL or points to times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_utime(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    buf: *mut utimbuf,
) -> c_int {
    let change = || {
        let (atime, mtime) = match buf.is_null() {
            true => (SetTime::Now, SetTime::Now),
            false => {
                // SAFETY: the caller's promise.
                let times = unsafe { foreign::value(buf, "buf") }?;
                let at = |secs| SetTime::At(Timestamp { secs, nanos: 0 });
                (at(times.actime), at(times.modtime))
            }
        };
        Ok(SetAttr {
            atime: Some(atime),
            mtime: Some(mtime),
            ..SetAttr::default()
        })
    };
    // SAFETY: the same.
    unsafe { set(sqlfs, path, change) }
}

/// Space of what holds the room.
///
/// # Safety
/// `stbuf` is NULL or room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_statfs(
    sqlfs: *mut sqlfs_t,
    _path: *const c_char,
    stbuf: *mut statvfs,
) -> c_int {
    proc(|| {
        let to = foreign::out(stbuf, "stbuf")?;
        let space = crate::mount::get(sqlfs)?.session().space()?;
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut st: statvfs = unsafe { std::mem::zeroed() };
        st.f_bsize = 4096;
        st.f_frsize = 4096;
        st.f_blocks = space.total / 4096;
        st.f_bfree = space.free / 4096;
        st.f_bavail = space.available / 4096;
        st.f_files = space.inodes;
        st.f_namemax = 255;
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, st) };
        Ok(0)
    })
}

/// Sets an extended attribute; `flags` as of setxattr(2).
///
/// # Safety
/// `path` and `name` are NULL or texts, `value` NULL or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_setxattr(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    name: *const c_char,
    value: *const c_char,
    size: size_t,
    flags: c_int,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, three times.
        let ((session, path), name, value) = unsafe {
            (
                at(sqlfs, path)?,
                foreign::text(name, "name")?,
                foreign::bytes(value.cast(), size, "value")?,
            )
        };
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::Argument("unknown flags".into())),
        };
        session.set_xattr(path, name, value, mode).map(|()| 0)
    })
}

/// # Safety
/// `to` is NULL or room for `size` bytes.
unsafe fn answer(found: &[u8], to: *mut c_char, size: size_t) -> Result<usize> {
    if size > 0 {
        // SAFETY: the caller's promise.
        let to = unsafe { foreign::bytes_mut(to.cast::<c_void>(), size, "value") }?;
        let Some(to) = to.get_mut(..found.len()) else {
            return Err(RoomError::Io(std::io::Error::from_raw_os_error(libc::ERANGE)).into());
        };
        to.copy_from_slice(found);
    }
    Ok(found.len())
}

/// An extended attribute; returns its length. `size` 0: only asks; too small: -ERANGE.
///
/// # Safety
/// `path` and `name` are NULL or texts, `value` NULL or room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_getxattr(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_char,
    size: size_t,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), name) = unsafe { (at(sqlfs, path)?, foreign::text(name, "name")?) };
        let found = session.xattr(path, name)?;
        // SAFETY: the same.
        unsafe { answer(&found, value, size) }
    })
}

/// The names of all, each ended with NUL; returns their length. `size` as for `sqlfs_proc_getxattr`.
///
/// # Safety
/// `path` is NULL or a text, `list` NULL or room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_listxattr(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    list: *mut c_char,
    size: size_t,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        let mut names = Vec::new();
        for name in session.xattr_names(path)? {
            names.extend(name);
            names.push(0);
        }
        // SAFETY: the same.
        unsafe { answer(&names, list, size) }
    })
}

/// Removes an extended attribute.
///
/// # Safety
/// `path` and `name` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_removexattr(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), name) = unsafe { (at(sqlfs, path)?, foreign::text(name, "name")?) };
        session.remove_xattr(path, name).map(|()| 0)
    })
}
