//! The policy for automatic snapshots of open rooms.
#![allow(unsafe_code)] // In `native`: symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are Java's.

use embed::{Error, Result, SnapshotInfo, SnapshotPolicy};
use jni::objects::{JLongArray, JString};
use jni::sys::{jboolean, jlong};

use crate::call::{java, native, text};
use crate::snapshots::list;
use crate::table;

/// Longs of a policy: hours, days, weeks, percent; `org.strongroom.SnapshotPolicy` has them in this order.
const POLICY_LEN: usize = 4;

fn number<T: TryFrom<jlong>>(number: jlong) -> Result<T> {
    T::try_from(number).map_err(|_| Error::Argument(format!("a snapshot policy with {number}")))
}

native! {
    /// False: there is none, and `out` is as it was.
    fn snapshotPolicy(env, room: jlong, out: JLongArray<'l>) -> jboolean {
        let Some(policy) = table::room(room)?.snapshot_policy()? else {
            return Ok(false);
        };
        let values: [jlong; POLICY_LEN] = [
            policy.hourly.into(),
            policy.daily.into(),
            policy.weekly.into(),
            policy.min_free_percent.into(),
        ];
        out.set_region(env, 0, &values).map_err(java)?;
        Ok(true)
    }

    fn setSnapshotPolicy(env, room: jlong, values: JLongArray<'l>) {
        let mut v: [jlong; POLICY_LEN] = [0; POLICY_LEN];
        values.get_region(env, 0, &mut v).map_err(java)?;
        let policy = SnapshotPolicy {
            hourly: number(v[0])?,
            daily: number(v[1])?,
            weekly: number(v[2])?,
            min_free_percent: number(v[3])?,
        };
        table::room(room)?.set_snapshot_policy(&policy)
    }

    fn clearSnapshotPolicy(_, room: jlong) {
        table::room(room)?.clear_snapshot_policy()
    }

    /// How many were created, and seconds since 1970 at which the next is due (-1: there is no policy), into `out`; the created one, if there
    /// is one, and those that were deleted as an answer.
    fn applySnapshotPolicy(env, room: jlong, out: JLongArray<'l>) -> JString<'l> {
        let report = table::room(room)?.apply_snapshot_policy()?;
        let values: [jlong; 2] = [
            report.created.is_some().into(),
            report.next_due.map_or(-1, |next| next.secs),
        ];
        out.set_region(env, 0, &values).map_err(java)?;
        let mut snapshots: Vec<SnapshotInfo> = report.created.into_iter().collect();
        snapshots.extend(report.deleted);
        text(env, &list(&snapshots))
    }

    fn pruneSnapshots(env, room: jlong, dry_run: jboolean) -> JString<'l> {
        text(env, &list(&table::room(room)?.prune_snapshots(dry_run)?))
    }
}
