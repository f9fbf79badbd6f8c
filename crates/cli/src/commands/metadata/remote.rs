//! What an administrator asks of a metadata server over the network: `strongroom://HOST:PORT/` in the place of a room.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use metadata_client::admin::{AdminError, administer};
use metadata_proto::admin::{self, Answer};
use metadata_proto::identity::Identity;

use super::admin::{DiskRow, Reply, Request, protection, unexpected};
use crate::access::OpenArgs;
use crate::credentials::GivenKind;
use crate::error::{Error, Result};
use crate::exit::Exit;

/// The server at an address, to which this process is an administrator.
#[derive(Debug)]
pub(crate) struct Administered {
    address: String,
    identity: Identity,
    /// Where the identity is.
    file: PathBuf,
}

impl Administered {
    /// Reads the identity that is given.
    pub(crate) fn find(address: &str, open: &OpenArgs) -> Result<Self> {
        let Some(file) = open.credential.identity.clone() else {
            return Err(Error::usage(format!(
                "strongroom://{address}/: say with --identity whose administrator you are"
            )));
        };
        let given = open.credential.read("")?;
        debug_assert!(matches!(given.kind, GivenKind::Identity));
        let identity =
            Identity::parse(given.secret.0.expose()).map_err(|e| not_accepted(&file, &e))?;
        Ok(Self {
            address: address.to_owned(),
            identity,
            file,
        })
    }

    pub(crate) fn ask(&self, request: admin::Request) -> Result<Answer> {
        let answer = administer(&self.address, &self.identity, request).map_err(|e| match e {
            AdminError::Identity(_) | AdminError::NotAnAdministrator => {
                not_accepted(&self.file, &e)
            }
            AdminError::Unreachable { .. } | AdminError::Refused(_) => Error::failed(e.to_string()),
        })?;
        match answer {
            Answer::Refused { message, busy } => {
                let exit = if busy { Exit::Busy } else { Exit::Failed };
                Err(Error::said(exit, message))
            }
            answer => Ok(answer),
        }
    }
}

fn not_accepted(identity: &Path, why: &dyn Display) -> Error {
    let message = format!("{}: {why}", identity.display());
    Error::said(Exit::WrongCredential, message)
}

/// Asks the server at an address, as the administrator whose identity is given.
pub(super) fn ask(address: &str, open: &OpenArgs, request: Request) -> Result<Reply> {
    let request = match request {
        Request::Users {} => admin::Request::Users,
        Request::RemoveUser { name } => admin::Request::RemoveUser { name },
        Request::SetQuota { name, quota } => admin::Request::SetQuota { name, quota },
        Request::Disks {} => admin::Request::Disks,
        Request::AddDisk { disk } => admin::Request::AddDisk {
            name: disk.name,
            address: disk.address,
            key: disk.key,
        },
        Request::RemoveDisk { name } => admin::Request::RemoveDisk { name },
        _ => {
            return Err(Error::usage(
                "an administrator lists and removes users, sets their quotas, and lists, adds and removes disks; do this on the server's machine",
            ));
        }
    };
    Ok(match Administered::find(address, open)?.ask(request)? {
        Answer::Done => Reply::Done,
        Answer::Removed(ended) => Reply::Removed(ended),
        Answer::Leaving(left) => Reply::Leaving { left, now: true },
        Answer::Users(rows) => Reply::Users(rows),
        Answer::Disks(rows) => Reply::Disks(rows.into_iter().map(disk).collect()),
        _ => return Err(unexpected()),
    })
}

/// The disks of a server, for a wait.
pub(crate) fn disks(address: &str, open: &OpenArgs) -> Result<Vec<DiskRow>> {
    match ask(address, open, Request::Disks {})? {
        Reply::Disks(rows) => Ok(rows),
        _ => Err(unexpected()),
    }
}

fn disk(row: admin::DiskRow) -> DiskRow {
    let (leaving, obstacle) = row.removal.unzip();
    DiskRow {
        name: row.name,
        id: row.address.id.to_string(),
        protection: protection(row.address.protection),
        address: row.address.address,
        reachable: Some(row.reachable),
        bytes: row.blocks * netdisk::BLOCK_LEN as u64,
        capabilities: row.capabilities as usize,
        pending: row.pending as usize,
        used: row.used,
        leaving,
        obstacle: obstacle.flatten(),
    }
}
