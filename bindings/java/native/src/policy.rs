//! The policy for automatic snapshots of open rooms.
#![allow(unsafe_code)] // Symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are made by Java's rule.

use embed::{Error, Result, SnapshotInfo, SnapshotPolicy};
use jni::EnvUnowned;
use jni::objects::{JClass, JLongArray, JString};
use jni::sys::{jboolean, jlong};

use crate::call::{answer, java, text};
use crate::snapshots::list;
use crate::table;

/// Longs of a policy: hours, days, weeks, percent; `org.strongroom.SnapshotPolicy` has them in this order.
const POLICY_LEN: usize = 4;

fn number<T: TryFrom<jlong>>(number: jlong) -> Result<T> {
    T::try_from(number).map_err(|_| Error::Argument(format!("a snapshot policy with {number}")))
}

/// False: there is none, and `out` is as it was.
#[unsafe(no_mangle)]
extern "system" fn Java_org_strongroom_Native_snapshotPolicy<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    room: jlong,
    out: JLongArray<'l>,
) -> jboolean {
    answer(env, |env| {
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
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_strongroom_Native_setSnapshotPolicy<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    room: jlong,
    values: JLongArray<'l>,
) {
    answer(env, |env| {
        let mut v: [jlong; POLICY_LEN] = [0; POLICY_LEN];
        values.get_region(env, 0, &mut v).map_err(java)?;
        let policy = SnapshotPolicy {
            hourly: number(v[0])?,
            daily: number(v[1])?,
            weekly: number(v[2])?,
            min_free_percent: number(v[3])?,
        };
        table::room(room)?.set_snapshot_policy(&policy)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_strongroom_Native_clearSnapshotPolicy<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    room: jlong,
) {
    answer(env, |_| table::room(room)?.clear_snapshot_policy());
}

/// How many were created, and seconds since 1970 at which the next is due (-1: there is no policy), into `out`; the created one, if there
/// is one, and those that were deleted as an answer.
#[unsafe(no_mangle)]
extern "system" fn Java_org_strongroom_Native_applySnapshotPolicy<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    room: jlong,
    out: JLongArray<'l>,
) -> JString<'l> {
    answer(env, |env| {
        let report = table::room(room)?.apply_snapshot_policy()?;
        let values: [jlong; 2] = [
            report.created.is_some().into(),
            report.next_due.map_or(-1, |next| next.secs),
        ];
        out.set_region(env, 0, &values).map_err(java)?;
        let mut snapshots: Vec<SnapshotInfo> = report.created.into_iter().collect();
        snapshots.extend(report.deleted);
        text(env, &list(&snapshots))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_strongroom_Native_pruneSnapshots<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    room: jlong,
    dry_run: jboolean,
) -> JString<'l> {
    answer(env, |env| {
        text(env, &list(&table::room(room)?.prune_snapshots(dry_run)?))
    })
}
