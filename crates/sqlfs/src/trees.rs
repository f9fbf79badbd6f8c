//! Directories and whole trees: listed, searched, deleted.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use embed::{Error, FileKind, Inode, Kind, Result, Session};
use libc::off_t;

use crate::answer::proc;
use crate::metadata::stat_of;
use crate::operations::{at, fuse_file_info, fuse_fill_dir_t};
use crate::sqlfs_t;

/// Calls `filler` for `.`, `..` and each name, until it answers with something else than 0. Nothing is locked meanwhile.
///
/// # Safety
/// `path` is NULL or a text; `filler` may be called with `buf`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_proc_readdir(
    sqlfs: *mut sqlfs_t,
    path: *const c_char,
    buf: *mut c_void,
    filler: fuse_fill_dir_t,
    _offset: off_t,
    _fi: *mut fuse_file_info,
) -> c_int {
    proc(|| {
        let filler = filler.ok_or_else(|| Error::Argument("filler is NULL".into()))?;
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, path) }?;
        let entries = session.list(path)?;
        let call = |name: &[u8], inode: Option<&Inode>| {
            let name = CString::new(name).unwrap_or_default();
            let st = inode.map(stat_of);
            let st = st.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the caller's promise; name and attributes live during the call.
            unsafe { filler(buf, name.as_ptr(), st, 0) != 0 }
        };
        let full = call(b".", None) || call(b"..", None);
        if !full {
            let _ = entries
                .iter()
                .any(|entry| call(&entry.name, Some(&entry.inode)));
        }
        Ok(0)
    })
}

/// Everything below a directory, and itself, each after what it holds.
fn everything(session: &Session, top: &Path) -> Result<Vec<(PathBuf, FileKind)>> {
    let mut found = vec![(top.to_path_buf(), session.stat(top, false)?.kind)];
    let mut next = 0;
    while let Some((dir, kind)) = found.get(next).cloned() {
        next += 1;
        if kind == FileKind::Directory {
            for entry in session.list(&dir)? {
                found.push((dir.join(OsStr::from_bytes(&entry.name)), entry.inode.kind));
            }
        }
    }
    found.reverse();
    Ok(found)
}

/// Whether a whole path is of a pattern, in which `*` matches slashes too, as in SQLite's GLOB.
fn matches(pattern: &[u8], path: &Path) -> bool {
    let (Ok(pattern), Ok(path)) = (
        CString::new(pattern),
        CString::new(path.as_os_str().as_bytes()),
    ) else {
        return false;
    };
    // SAFETY: two texts that end with NUL.
    unsafe { libc::fnmatch(pattern.as_ptr(), path.as_ptr(), libc::FNM_NOESCAPE) == 0 }
}

fn delete(session: &Session, top: &Path, keep: impl Fn(&Path) -> bool) -> Result<()> {
    for (path, kind) in everything(session, top)? {
        if keep(&path) || path == Path::new("/") {
            continue;
        }
        let removed = match kind {
            FileKind::Directory => session.remove_dir(&path),
            _ => session.remove_file(&path),
        };
        match removed {
            // What is kept keeps the directories above it; what another thread removed is gone.
            Err(e) if matches!(e.kind(), Kind::NotEmpty | Kind::NotFound) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Removes a file, or a directory and all below it.
///
/// # Safety
/// `key` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_del_tree(sqlfs: *mut sqlfs_t, key: *const c_char) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { at(sqlfs, key) }?;
        delete(&session, path, |_| false).map(|()| 0)
    })
}

/// The same, but for what is of a pattern (of whole paths, `*` and `?` and `[…]`), and the directories above it.
///
/// # Safety
/// `key` and `exclusion_pattern` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_del_tree_with_exclusion(
    sqlfs: *mut sqlfs_t,
    key: *const c_char,
    exclusion_pattern: *const c_char,
) -> c_int {
    proc(|| {
        // SAFETY: the caller's promise, twice.
        let ((session, path), pattern) = unsafe {
            (
                at(sqlfs, key)?,
                foreign::text(exclusion_pattern, "exclusion_pattern")?,
            )
        };
        delete(&session, path, |path| matches(pattern, path)).map(|()| 0)
    })
}

/// Calls `filler` for every path of a pattern, anywhere in the tree.
///
/// # Safety
/// `pattern` is NULL or a text; `filler` may be called with `buf`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_list_keys(
    sqlfs: *mut sqlfs_t,
    pattern: *const c_char,
    buf: *mut c_void,
    filler: fuse_fill_dir_t,
) -> c_int {
    proc(|| {
        let filler = filler.ok_or_else(|| Error::Argument("filler is NULL".into()))?;
        // SAFETY: the caller's promise.
        let pattern = unsafe { foreign::text(pattern, "pattern") }?;
        let session = crate::mount::get(sqlfs)?.session();
        let all = everything(&session, Path::new("/"))?;
        for (path, _) in all.iter().rev().filter(|(path, _)| matches(pattern, path)) {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            // SAFETY: the same; the path lives during the call.
            if unsafe { filler(buf, path.as_ptr(), ptr::null(), 0) } != 0 {
                break;
            }
        }
        Ok(0)
    })
}
