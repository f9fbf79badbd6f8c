//! Snapshots: the whole room at one moment, under a name.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use embed::{Change, Result, SnapshotInfo, What};
use parking_lot::Mutex;

use crate::arguments::{session, text};
use crate::error::{call, count};
use crate::path::path;
use crate::types::{
    field, kind_of, strongroom_change, strongroom_change_kind, strongroom_diff, strongroom_room,
    strongroom_snapshot,
};

/// Creates a snapshot: the whole room at this moment. It copies nothing, and is durable when this returns. `name`: 1 to 255 bytes of
/// UTF-8, without `/`, `@`, `:` and control characters.
///
/// `EXISTS`, `INVALID_ARGUMENT`, `BUSY` (a transaction is open), `READ_ONLY`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `name` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_create(
    room: strongroom_room,
    name: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name") }?;
        session(room)?.create_snapshot(name).map(drop)
    })
}

/// The snapshots, from the oldest: puts up to `max` of them into `snapshots`, and returns how many there are. A room that never had one
/// has 0.
///
/// Thread safety: any thread.
///
/// # Safety
/// `snapshots` points to room for `max` of them; NULL where `max` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_list(
    room: strongroom_room,
    snapshots: *mut strongroom_snapshot,
    max: usize,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        unsafe { put_all(snapshots, max, || session(room)?.snapshots()) }
    })
}

/// Puts up to `max` of what a call returns into `snapshots`, and returns how many there are. The call is made only where there is a place
/// for them.
///
/// # Safety
/// `snapshots` points to room for `max` of them; NULL where `max` is 0.
pub(crate) unsafe fn put_all(
    snapshots: *mut strongroom_snapshot,
    max: usize,
    call: impl FnOnce() -> Result<Vec<SnapshotInfo>>,
) -> Result<u64> {
    if max > 0 {
        foreign::out(snapshots, "snapshots")?;
    }
    let all = call()?;
    for (i, info) in all.iter().take(max).enumerate() {
        // SAFETY: the caller's promise; `i` is below `max`.
        unsafe { foreign::put(snapshots.add(i), info.into()) };
    }
    Ok(all.len() as u64)
}

/// The bytes that all snapshots together hold, and the room itself does not refer to any more: what deleting all of them frees.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_snapshot_held(room: strongroom_room) -> i64 {
    count(|| session(room)?.held_by_snapshots())
}

/// Gives a snapshot another name. The rest as for `strongroom_snapshot_create`; `NOT_FOUND`.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each name is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_rename(
    room: strongroom_room,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (text(from, "from")?, text(to, "to")?) };
        session(room)?.rename_snapshot(from, to)
    })
}

/// Deletes a snapshot; durable when this returns. What it alone holds is freed in the background. Files of it that are open are
/// `NOT_FOUND` from then on. `NOT_FOUND`, `BUSY` (a transaction is open), `READ_ONLY`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `name` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_delete(
    room: strongroom_room,
    name: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name") }?;
        session(room)?.delete_snapshot(name)
    })
}

/// Opens a snapshot as a room of its own, for reading: `past` is a handle with which all functions that read work, and those that change
/// something are `READ_ONLY`. `past`: where the handle goes; 0 on failure. Close it with `strongroom_close`; it is `CLOSED` too when the
/// room is closed, and `NOT_FOUND` when the snapshot is deleted.
///
/// Thread safety: any thread.
///
/// # Safety
/// `name` is NULL or a text that ends with NUL; `past` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_open(
    room: strongroom_room,
    name: *const c_char,
    past: *mut strongroom_room,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(past, 0) };
    call(|| {
        let to = foreign::out(past, "past")?;
        // SAFETY: the same.
        let name = unsafe { text(name, "name") }?;
        let session = session(room)?.open_snapshot(name)?;
        // SAFETY: the same.
        unsafe { foreign::put(to, foreign::insert(session)) };
        Ok(())
    })
}

/// Puts a file or directory back as it was in a snapshot: contents, mode, owner, times, extended attributes, and hard links within it.
/// `to`: where; NULL: where it was. What is there now is replaced as a whole, in one step, and is gone: create a snapshot first to keep
/// it. Where that fails nothing is replaced; an error while what was replaced is removed leaves the rest of that beside the target, below
/// `.strongroom-restore-N`. The data is shared with the snapshot and takes no space. `/` puts the whole room back. Durable when this
/// returns.
///
/// `NOT_FOUND`: no such snapshot, or no such path in it. `NOT_PERMITTED`: flags keep what is there from being replaced. `NO_SPACE`.
/// `BUSY` (a transaction is open).
///
/// Thread safety: any thread.
///
/// # Safety
/// Each text is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_restore(
    room: strongroom_room,
    name: *const c_char,
    path: *const c_char,
    to: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let (name, path) = unsafe { (text(name, "name")?, self::path(path, "path")?) };
        let to: Option<&Path> = match to.is_null() {
            true => None,
            // SAFETY: the same.
            false => Some(unsafe { self::path(to, "to") }?),
        };
        session(room)?.restore_snapshot(name, path, to).map(drop)
    })
}

/// A comparison, with the texts that its changes point to.
struct Diff {
    changes: Vec<(Change, CString, Option<CString>)>,
    next: Mutex<usize>,
}

/// Compares two snapshots, or one with the room as it is now, where `later` is NULL. Reads every directory of both. `diff`: where the
/// handle goes; 0 on failure. It can be read on after the room was closed.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each text is NULL or ends with NUL; `diff` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_diff_open(
    room: strongroom_room,
    earlier: *const c_char,
    later: *const c_char,
    diff: *mut strongroom_diff,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(diff, 0) };
    call(|| {
        let to = foreign::out(diff, "diff")?;
        // SAFETY: the same.
        let earlier = unsafe { text(earlier, "earlier") }?;
        let later = match later.is_null() {
            true => None,
            // SAFETY: the same.
            false => Some(unsafe { text(later, "later") }?),
        };
        let changes = session(room)?.diff_snapshots(earlier, later)?;
        // No name of a room has a NUL.
        let of = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let with_texts = changes.into_iter().map(|change| {
            let (path, from) = (
                of(&change.path),
                match &change.what {
                    What::Renamed { from } => Some(of(from)),
                    _ => None,
                },
            );
            (change, path, from)
        });
        let found = Diff {
            changes: with_texts.collect(),
            next: Mutex::new(0),
        };
        // SAFETY: the same.
        unsafe { foreign::put(to, foreign::insert(found)) };
        Ok(())
    })
}

/// The next change, by path: 1 and `change` is filled in, or 0: there are no more. Its texts stay until `strongroom_diff_close`.
///
/// Thread safety: any thread; each change is given once, to one of them.
///
/// # Safety
/// `change` is NULL or points to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_diff_next(
    diff: strongroom_diff,
    change: *mut strongroom_change,
) -> i64 {
    count(|| {
        let to = foreign::out(change, "change")?;
        let diff: Arc<Diff> = foreign::get(diff, "comparison handle")?;
        let mut next = diff.next.lock();
        let Some((change, path, from)) = diff.changes.get(*next) else {
            return Ok(0);
        };
        *next += 1;
        let bytes = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
        let change = strongroom_change {
            path: path.as_ptr(),
            from: from.as_ref().map_or(ptr::null(), |from| from.as_ptr()),
            before: bytes(change.before),
            after: bytes(change.after),
            change: what(&change.what) as i32,
            kind: kind_of(change.kind) as i32,
        };
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, change) };
        Ok(1)
    })
}

/// Closes a comparison. The texts of its changes are gone.
///
/// Thread safety: any thread; of two that close it one gets `CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_diff_close(diff: strongroom_diff) -> i32 {
    call(|| foreign::remove::<Diff>(diff, "comparison handle").map(drop))
}

fn what(what: &What) -> strongroom_change_kind {
    match what {
        What::Added => strongroom_change_kind::STRONGROOM_CHANGE_ADDED,
        What::Removed => strongroom_change_kind::STRONGROOM_CHANGE_REMOVED,
        What::Renamed { .. } => strongroom_change_kind::STRONGROOM_CHANGE_RENAMED,
        What::Contents => strongroom_change_kind::STRONGROOM_CHANGE_CONTENTS,
        What::Attributes => strongroom_change_kind::STRONGROOM_CHANGE_ATTRIBUTES,
    }
}

impl From<&SnapshotInfo> for strongroom_snapshot {
    fn from(info: &SnapshotInfo) -> Self {
        Self {
            number: info.snapshot.number,
            created: info.snapshot.created.into(),
            exclusive: info.exclusive,
            automatic: info.snapshot.automatic.into(),
            name: field(info.snapshot.name.as_bytes()),
        }
    }
}
