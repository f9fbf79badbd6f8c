//! What administrators ask over the network.
//!
//! 1. Nothing here reaches names, rights or data of files as they are, or makes a key of a user.
//! 2. Everything that changes something is in the audit log with the administrator's name.

use std::net::SocketAddr;
use std::sync::Arc;

use metadata_proto::admin::{Answer, DiskRow, Request, SnapshotRow, VERSION};
use metadata_proto::rpc::{Posix, Refusal, Reply};
use room::{NewSnapshot, Room, Snapshot, SnapshotSpace};

use super::{ServerError, Shared, drain};
use crate::audit::event::Admin;
use crate::enrol;

/// The answer to the holder of a key: refused where that is no administrator.
pub(super) fn asked(
    shared: &Arc<Shared>,
    serial: &[u8; 16],
    peer: SocketAddr,
    version: u32,
    request: Request,
) -> Reply<Answer> {
    if version != VERSION {
        return Err(Refusal::Version {
            server: VERSION,
            client: version,
        });
    }
    match shared.users.get(serial) {
        Some(user) if user.is_admin() => Ok(carry_out(shared, &user.name, request)),
        user => {
            let name = user.map(|user| user.name.clone()).unwrap_or_default();
            let why = format!("{name} is no administrator, and asked for what one may");
            shared.audit.connection_refused(peer, &why);
            Err(Refusal::Posix(Posix::NotPermitted))
        }
    }
}

fn carry_out(shared: &Arc<Shared>, name: &str, request: Request) -> Answer {
    let by = format!("administrator {name}");
    tracing::info!(administrator = name, "is asked over the network");
    answer(shared, &by, request).unwrap_or_else(|e| Answer::Refused {
        busy: matches!(e, ServerError::NoPlaceElsewhere { .. }),
        message: e.to_string(),
    })
}

fn answer(shared: &Arc<Shared>, by: &str, request: Request) -> Result<Answer, ServerError> {
    Ok(match request {
        Request::Users => Answer::Users(shared.user_rows()?),
        Request::SetQuota { name, quota } => {
            shared.set_quota(by, &name, quota)?;
            Answer::Done
        }
        Request::RemoveUser { name } => Answer::Removed(shared.remove_user(by, &name)?),
        Request::Disks => {
            let states = drain::states(&*shared.serving()?).into_iter();
            let rows = states.map(|disk| DiskRow {
                name: disk.name,
                address: disk.address,
                reachable: disk.reachable,
                blocks: disk.blocks,
                used: disk.used,
                capabilities: disk.capabilities as u64,
                pending: disk.pending as u64,
                removal: disk.removal.map(|removal| (removal.left, removal.obstacle)),
            });
            Answer::Disks(rows.collect())
        }
        Request::AddDisk { name, address, key } => {
            shared.add_disk(by, enrol::Disk { name, address, key })?;
            Answer::Done
        }
        Request::RemoveDisk { name } => match shared.remove_disk(by, &name)? {
            None => Answer::Done,
            Some(left) => Answer::Leaving(left),
        },
        request => {
            let about_snapshots = |room: &Room| snapshots(room, &request);
            let done = match change(&request) {
                None => shared.with_snapshots(about_snapshots)?,
                Some(change) => {
                    let change = change.to_owned();
                    let what = Admin::SnapshotsChanged { change };
                    shared.change_snapshots(Some((by, what)), about_snapshots)?
                }
            };
            match done {
                Err(room::Error::NotFound) => Answer::NoSnapshot,
                Err(room::Error::Exists) => Answer::SnapshotExists,
                done => done?,
            }
        }
    })
}

/// How the audit log calls a change of snapshots; `None`: nothing is changed.
fn change(request: &Request) -> Option<&'static str> {
    Some(match request {
        Request::CreateSnapshot { .. } => "create",
        Request::RenameSnapshot { .. } => "rename",
        Request::DeleteSnapshot { .. } => "delete",
        Request::PruneSnapshots { dry_run: false } => "prune",
        Request::SetSnapshotPolicy { .. } => "policy",
        _ => return None,
    })
}

fn snapshots(room: &Room, request: &Request) -> room::Result<Answer> {
    Ok(match request {
        Request::CreateSnapshot { name } => {
            let new = NewSnapshot::default();
            let created = match name {
                Some(name) => room.create_snapshot(name, new)?,
                None => room.create_snapshot_by_time("", new)?,
            };
            let mut all = room.snapshot_space()?;
            all.retain(|(snapshot, _)| snapshot.number == created.number);
            rows(room, all)?
        }
        Request::RenameSnapshot { from, to } => {
            room.rename_snapshot(from, to)?;
            Answer::Done
        }
        Request::DeleteSnapshot { name } => {
            room.delete_snapshot(name)?;
            Answer::Done
        }
        Request::PruneSnapshots { dry_run } => match room.snapshot_policy()? {
            None => Answer::NoSnapshotPolicy,
            Some(policy) => rows(room, room.prune_snapshots(&policy, *dry_run)?)?,
        },
        Request::SnapshotPolicy => Answer::SnapshotPolicy(room.snapshot_policy()?),
        Request::SetSnapshotPolicy { policy } => {
            room.set_snapshot_policy(policy.as_ref())?;
            Answer::Done
        }
        _ => rows(room, room.snapshot_space()?)?,
    })
}

fn rows(room: &Room, snapshots: Vec<(Snapshot, SnapshotSpace)>) -> room::Result<Answer> {
    let row = |(snapshot, space): (Snapshot, SnapshotSpace)| SnapshotRow {
        snapshot,
        exclusive: space.exclusive,
    };
    Ok(Answer::Snapshots {
        rows: snapshots.into_iter().map(row).collect(),
        held: room.held_by_snapshots()?,
    })
}
