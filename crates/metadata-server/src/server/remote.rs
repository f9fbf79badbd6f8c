//! What administrators ask over the network.
//!
//! 1. Nothing here reaches names, rights or data of files, or makes a key of a user.
//! 2. Everything that changes something is in the audit log with the administrator's name.

use metadata_proto::admin::{Answer, DiskRow, Request, UserRow};

use super::{ServerError, Shared, drain};
use crate::enrol;

pub(super) fn carry_out(shared: &std::sync::Arc<Shared>, name: &str, request: Request) -> Answer {
    let by = format!("administrator {name}");
    tracing::info!(administrator = name, "is asked over the network");
    answer(shared, &by, request).unwrap_or_else(|e| Answer::Refused {
        busy: matches!(e, ServerError::NoPlaceElsewhere { .. }),
        message: e.to_string(),
    })
}

fn answer(
    shared: &std::sync::Arc<Shared>,
    by: &str,
    request: Request,
) -> Result<Answer, ServerError> {
    Ok(match request {
        Request::Users => {
            let all = enrol::everybody(&shared.serving()?.room)?.into_iter();
            let rows = all.map(|user| UserRow {
                name: user.name,
                uid: user.uid,
                gids: user.gids,
                serials: user.serials,
                ends: user.ends,
            });
            Answer::Users(rows.collect())
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
    })
}
