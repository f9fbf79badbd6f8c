//! The policy for automatic snapshots.

use embed::{Error, Result, SnapshotPolicy};

use crate::arguments::session;
use crate::error::{call, count};
use crate::snapshots::put_all;
use crate::types::{
    strongroom_policy_report, strongroom_room, strongroom_snapshot, strongroom_snapshot_policy,
    strongroom_time,
};

/// Refuses a policy of another version of the header.
///
/// # Safety
/// `policy` is NULL or points to one whose `size` is filled in.
unsafe fn check_size(policy: *const strongroom_snapshot_policy) -> Result<()> {
    // SAFETY: the size comes first in every version of the structure.
    let size = unsafe { foreign::value(policy.cast::<usize>(), "policy") }?;
    match size == size_of::<strongroom_snapshot_policy>() {
        true => Ok(()),
        false => Err(Error::Argument(format!(
            "the policy says it is {size} bytes long, and has {}: set its size to sizeof(strongroom_snapshot_policy)",
            size_of::<strongroom_snapshot_policy>()
        ))),
    }
}

/// The room's policy for automatic snapshots. `policy`: its `size` is filled in before the call, the rest by the call.
///
/// `NOT_FOUND`: the room has none. `NOT_SUPPORTED`: a newer version set it.
///
/// Thread safety: any thread.
///
/// # Safety
/// `policy` is NULL or points to one whose `size` is filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_policy_get(
    room: strongroom_room,
    policy: *mut strongroom_snapshot_policy,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { check_size(policy) }?;
        let found = session(room)?.snapshot_policy()?;
        let found = found.ok_or(Error::NoSnapshotPolicy)?;
        let found = strongroom_snapshot_policy {
            size: size_of::<strongroom_snapshot_policy>(),
            hourly: found.hourly,
            daily: found.daily,
            weekly: found.weekly,
            min_free_percent: found.min_free_percent.into(),
        };
        // SAFETY: the same.
        unsafe { foreign::put(policy, found) };
        Ok(())
    })
}

/// Sets the policy; durable when this returns. Nothing is created or deleted before `strongroom_snapshot_policy_apply`, or before the room
/// is mounted: the process of a mount applies it once a minute.
///
/// `INVALID_ARGUMENT`: it keeps nothing, or asks for more than 99 % of the storage. `BUSY` (a transaction is open),
/// `READ_ONLY`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `policy` is NULL or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_policy_set(
    room: strongroom_room,
    policy: *const strongroom_snapshot_policy,
) -> i32 {
    call(|| {
        // SAFETY: the caller's promise.
        let given = unsafe {
            check_size(policy)?;
            foreign::value(policy, "policy")
        }?;
        let policy = SnapshotPolicy {
            hourly: given.hourly,
            daily: given.daily,
            weekly: given.weekly,
            // What is far too much is refused as what is too much.
            min_free_percent: u8::try_from(given.min_free_percent).unwrap_or(u8::MAX),
        };
        session(room)?.set_snapshot_policy(&policy)
    })
}

/// Removes the policy; durable when this returns. Its snapshots stay. A room without one: nothing to do.
///
/// `BUSY` (a transaction is open), `READ_ONLY`.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_snapshot_policy_clear(room: strongroom_room) -> i32 {
    call(|| session(room)?.clear_snapshot_policy())
}

/// Does what the room's policy asks for now: creates an automatic snapshot where the present hour, day or week has none, and deletes the
/// automatic ones that it does not keep. A snapshot made by `strongroom_snapshot_create` is never deleted. The library has no thread that
/// does this: call it now and then, when your files belong together. Without a policy nothing is done.
///
/// `report`: where it goes; NULL where you do not ask. `BUSY` (a transaction is open), `READ_ONLY`, `NO_SPACE`.
///
/// Thread safety: any thread; of several at once one creates the snapshot.
///
/// # Safety
/// `report` is NULL or points to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_policy_apply(
    room: strongroom_room,
    report: *mut strongroom_policy_report,
) -> i32 {
    call(|| {
        let done = session(room)?.apply_snapshot_policy()?;
        let none = strongroom_time { secs: -1, nanos: 0 };
        let done = strongroom_policy_report {
            created: done.created.map_or(0, |info| info.snapshot.number),
            deleted: done.deleted.len() as u64,
            next_due: done.next_due.map_or(none, strongroom_time::from),
        };
        // SAFETY: the caller's promise.
        unsafe { foreign::put(report, done) };
        Ok(())
    })
}

/// Deletes the automatic snapshots that the room's policy does not keep, and creates none: puts up to `max` of them into `snapshots`, the
/// oldest first, each with what is freed, and returns how many there are. `dry_run` not 0: deletes nothing.
///
/// `NOT_FOUND`: the room has no policy. `BUSY` (a transaction is open), `READ_ONLY`.
///
/// Thread safety: any thread.
///
/// # Safety
/// `snapshots` points to room for `max` of them; NULL where `max` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_snapshot_prune(
    room: strongroom_room,
    dry_run: i32,
    snapshots: *mut strongroom_snapshot,
    max: usize,
) -> i64 {
    count(|| {
        let prune = || session(room)?.prune_snapshots(dry_run != 0);
        // SAFETY: the caller's promise.
        unsafe { put_all(snapshots, max, prune) }
    })
}
