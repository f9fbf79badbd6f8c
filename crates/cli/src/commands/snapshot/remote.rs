//! Snapshots of a room whose metadata server is asked over the network, by an administrator.

use std::path::{Path, PathBuf};

use metadata_proto::admin::{self, Answer, SnapshotRow};

use crate::access::OpenArgs;
use crate::commands::metadata::admin::unexpected;
use crate::commands::metadata::remote::Administered;
use crate::control::{Reply, Request, SnapshotReply, SnapshotsReply};
use crate::error::{Error, Result};
use crate::mounting::remote;
use crate::snapshots;

/// A room on another machine.
#[derive(Debug)]
pub(in crate::commands) struct Remote {
    /// As it was typed.
    name: PathBuf,
    server: Administered,
}

impl Remote {
    /// `None` where a room is named by its directory.
    pub(super) fn find(name: &Path, open: &OpenArgs) -> Result<Option<Self>> {
        let Some(address) = remote::address(name)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            name: name.to_owned(),
            server: Administered::find(&address, open)?,
        }))
    }

    /// Carries out a request about snapshots.
    pub(super) fn run(&self, request: &Request) -> Result<Reply> {
        let asked = asked(request).ok_or_else(|| self.refusal())?;
        let answer = self.server.ask(asked)?;
        Ok(match (answer, request) {
            (Answer::Done, _) => Reply::Nothing,
            (Answer::SnapshotPolicy(policy), _) => Reply::Policy(policy),
            (Answer::Snapshots { rows, held }, Request::Snapshots {}) => {
                let snapshots = replies(rows);
                Reply::Snapshots(SnapshotsReply { snapshots, held })
            }
            (Answer::Snapshots { rows, .. }, Request::CreateSnapshot { .. }) => {
                let created = replies(rows).pop();
                Reply::Snapshot(created.ok_or_else(unexpected)?)
            }
            (Answer::Snapshots { rows, .. }, Request::PruneSnapshots { .. }) => {
                Reply::Pruned(replies(rows))
            }
            (
                Answer::NoSnapshot,
                Request::DeleteSnapshot { name } | Request::RenameSnapshot { from: name, .. },
            ) => return Err(snapshots::missing(&self.name, name)),
            (
                Answer::SnapshotExists,
                Request::CreateSnapshot { name: Some(name) }
                | Request::RenameSnapshot { to: name, .. },
            ) => return Err(snapshots::exists(&self.name, name)),
            (Answer::NoSnapshotPolicy, _) => return Err(snapshots::no_policy(&self.name)),
            _ => return Err(unexpected()),
        })
    }

    /// That an administrator may not do something: it is about names of files.
    pub(in crate::commands) fn refusal(&self) -> Error {
        Error::usage_at(
            &self.name,
            "an administrator reaches no names of files; compare snapshots and put back from them on the server's machine, or in a mount: its .snapshots has every file",
        )
    }
}

fn asked(request: &Request) -> Option<admin::Request> {
    Some(match request.clone() {
        Request::Snapshots {} => admin::Request::Snapshots,
        Request::CreateSnapshot { name } => admin::Request::CreateSnapshot { name },
        Request::RenameSnapshot { from, to } => admin::Request::RenameSnapshot { from, to },
        Request::DeleteSnapshot { name } => admin::Request::DeleteSnapshot { name },
        Request::PruneSnapshots { dry_run } => admin::Request::PruneSnapshots { dry_run },
        Request::SnapshotPolicy {} => admin::Request::SnapshotPolicy,
        Request::SetSnapshotPolicy { policy } => admin::Request::SetSnapshotPolicy { policy },
        _ => return None,
    })
}

fn replies(rows: Vec<SnapshotRow>) -> Vec<SnapshotReply> {
    let reply = |row: SnapshotRow| snapshots::reply(&row.snapshot, row.exclusive);
    rows.into_iter().map(reply).collect()
}
