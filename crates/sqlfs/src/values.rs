//! The level below FUSE's: values and attributes of keys, which are paths.

#![allow(non_camel_case_types, reason = "the names are C's")]

use std::ffi::{CStr, c_char, c_int};

use embed::{Error, FileKind, Kind, OpenMode, Result, RoomError, SetAttr, SetTime, Timestamp};
use libc::{size_t, time_t};

use crate::answer::yes;
use crate::metadata::kind_bits;
use crate::operations::at;
use crate::sqlfs_t;

/// Content. `data` is freed by `clean_value`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct key_value {
    /// The bytes.
    pub data: *mut c_char,
    /// How many.
    pub size: size_t,
}

/// Attributes. The texts are freed by `clean_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct key_attr {
    /// The path.
    pub path: *mut c_char,
    /// `dir`, `blob` or `sym link`.
    pub r#type: *mut c_char,
    /// Inode number, its lower 32 bits.
    pub inode: i32,
    /// Owner.
    pub uid: i32,
    /// Group.
    pub gid: i32,
    /// Kind and permission bits.
    pub mode: i32,
    /// Length in bytes.
    pub size: size_t,
    /// Last access, in seconds since 1970.
    pub atime: time_t,
    /// Last change of data.
    pub mtime: time_t,
    /// Last change of the inode.
    pub ctime: time_t,
}

/// Frees what a call put into a value.
///
/// # Safety
/// `value` is NULL or points to one whose `data` is NULL or came from malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clean_value(value: *mut key_value) {
    if !value.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            libc::free((*value).data.cast());
            *value = std::mem::zeroed();
        }
    }
}

/// Frees what a call put into attributes.
///
/// # Safety
/// `attr` is NULL or points to some whose texts are NULL or came from malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clean_attr(attr: *mut key_attr) {
    if !attr.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            libc::free((*attr).path.cast());
            libc::free((*attr).r#type.cast());
            *attr = std::mem::zeroed();
        }
    }
}

/// How many bytes a range has; `end` 0: all of `size`.
fn range(begin: size_t, end: size_t, size: size_t) -> size_t {
    match end {
        0 => size,
        _ => end.saturating_sub(begin),
    }
}

/// Reads the bytes from `begin` to before `end` (0: to the end of the file): into `value->data`, up to `value->size`, or, where that is
/// NULL, into memory that is the caller's to clean. `value->size` becomes their number. 1 for success, -1: no such file.
///
/// # Safety
/// `key` is NULL or a text; `value` is NULL or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_get_value(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    value: *mut key_value,
    begin: size_t,
    end: size_t,
) -> c_int {
    let mut missing = false;
    let done = yes(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), given) =
            unsafe { (at(sqlfs, key)?, foreign::value(value, "value")?) };
        let file = session
            .open_file(path, OpenMode::READ)
            .inspect_err(|e| missing = e.kind() == Kind::NotFound)?;
        let left = (file.len()? as usize).saturating_sub(begin);
        let n = range(begin, end, left).min(left);
        let (data, n) = match given.data.is_null() {
            // SAFETY: any size may be asked for.
            true => (unsafe { libc::malloc(n.max(1)) }.cast::<c_char>(), n),
            false => (given.data, n.min(given.size)),
        };
        if data.is_null() {
            return Err(RoomError::Io(std::io::Error::from_raw_os_error(libc::ENOMEM)).into());
        }
        // SAFETY: room for n bytes, of the caller or just asked for.
        let read = file.read_at(begin as u64, unsafe {
            foreign::bytes_mut(data.cast(), n, "data")
        }?);
        match read {
            Ok(size) => {
                // SAFETY: the caller's promise.
                unsafe { foreign::put(value, key_value { data, size }) };
                Ok(())
            }
            Err(e) => {
                if given.data.is_null() {
                    // SAFETY: from malloc above.
                    unsafe { libc::free(data.cast()) };
                }
                Err(e)
            }
        }
    });
    if missing { -1 } else { done }
}

/// Writes `value` at `begin`, its first `end - begin` bytes, or all where `end` is 0; makes the file where it is missing. 1 for success.
///
/// # Safety
/// `key` is NULL or a text; `value` is NULL or points to one whose `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_set_value(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    value: *const key_value,
    begin: size_t,
    end: size_t,
) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise, three times.
        let ((session, path), given) =
            unsafe { (at(sqlfs, key)?, foreign::value(value, "value")?) };
        let n = range(begin, end, given.size).min(given.size);
        // SAFETY: the same.
        let data = unsafe { foreign::bytes(given.data.cast(), n, "data") }?;
        let mode = OpenMode {
            truncate: false,
            ..OpenMode::WRITE
        };
        session
            .open_file(path, mode)?
            .write_at(begin as u64, data)
            .map(drop)
    })
}

/// Attributes; 1 for success, -1: no such file. The texts in them are the caller's to clean.
///
/// # Safety
/// `key` is NULL or a text; `attr` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_get_attr(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    attr: *mut key_attr,
) -> c_int {
    let mut missing = false;
    let done = yes(|| {
        let to = foreign::out(attr, "attr")?;
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, key) }?;
        let inode = session
            .stat(path, false)
            .inspect_err(|e| missing = e.kind() == Kind::NotFound)?;
        // SAFETY: two texts that end with NUL; NULL for want of memory is what clean_attr takes.
        let (path, r#type) = unsafe {
            (
                libc::strdup(key),
                libc::strdup(type_of(inode.kind).as_ptr()),
            )
        };
        let attr = key_attr {
            path,
            r#type,
            inode: inode.no.0 as i32,
            uid: inode.uid as i32,
            gid: inode.gid as i32,
            mode: (kind_bits(inode.kind) | u32::from(inode.mode)) as i32,
            size: inode.size as size_t,
            atime: inode.atime.secs,
            mtime: inode.mtime.secs,
            ctime: inode.ctime.secs,
        };
        // SAFETY: the same.
        unsafe { foreign::put(to, attr) };
        Ok(())
    });
    if missing { -1 } else { done }
}

/// Sets permission bits, owner and times; 1 for success. Kind and length stay.
///
/// # Safety
/// `key` is NULL or a text; `attr` is NULL or points to attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_set_attr(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    attr: *const key_attr,
) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), attr) = unsafe { (at(sqlfs, key)?, foreign::value(attr, "attr")?) };
        let time = |secs| Some(SetTime::At(Timestamp { secs, nanos: 0 }));
        let set = SetAttr {
            mode: Some((attr.mode & 0o7777) as u16),
            uid: Some(attr.uid as u32),
            gid: Some(attr.gid as u32),
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ..SetAttr::default()
        };
        session.set_attributes(path, &set, false).map(drop)
    })
}

/// 1 where what is there is of that type already. A type cannot be changed.
///
/// # Safety
/// `key` and `type` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_set_type(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    r#type: *const c_char,
) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), wanted) =
            unsafe { (at(sqlfs, key)?, foreign::text(r#type, "type")?) };
        check_type(session.stat(path, false)?.kind, wanted)
    })
}

fn check_type(kind: FileKind, wanted: &[u8]) -> Result<()> {
    match type_of(kind).to_bytes() == wanted {
        true => Ok(()),
        false => Err(Error::Argument(
            "the type of a file cannot be changed".into(),
        )),
    }
}

fn type_of(kind: FileKind) -> &'static CStr {
    match kind {
        FileKind::Directory => c"dir",
        FileKind::Symlink => c"sym link",
        _ => c"blob",
    }
}
