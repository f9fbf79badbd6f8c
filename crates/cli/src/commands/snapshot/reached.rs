//! How commands about snapshots reach a room: as every command does, or through the metadata server that serves it.

use std::path::{Path, PathBuf};

use crate::access::{Access, Intent, OpenArgs};
use crate::commands::metadata::admin;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::must_be_room;
use crate::work::Progress;

/// A room whose snapshots can be asked for and changed.
#[derive(Debug)]
pub(in crate::commands) enum Reached {
    /// Opened by this process, or mounted.
    Alone(Box<Access>),
    /// Held by its metadata server.
    Served(PathBuf),
}

impl Reached {
    /// Finds out how the room in `dir` can be reached, opening it if nobody has.
    pub(in crate::commands) fn find(dir: &Path, open: &OpenArgs, intent: Intent) -> Result<Self> {
        Ok(match is_served(dir)? {
            true => Self::Served(dir.to_owned()),
            false => Self::Alone(Box::new(Access::reach(dir, open, intent)?)),
        })
    }

    /// Carries out a request about snapshots.
    pub(in crate::commands) fn run(
        &self,
        request: &Request,
        progress: Progress<'_>,
    ) -> Result<Reply> {
        let dir = match self {
            Self::Alone(access) => return access.run(request, progress),
            Self::Served(dir) => dir,
        };
        let asked = admin::Request::Snapshots {
            request: Box::new(request.clone()),
        };
        let no_directory = &mut || Err(admin::unexpected());
        match admin::ask_with_progress(dir, &asked, progress, no_directory)? {
            Some(admin::Reply::Snapshots(reply)) => Ok(*reply),
            Some(_) => Err(admin::unexpected()),
            None => Err(Error::failed(format!(
                "{}: its metadata server has ended meanwhile",
                dir.display()
            ))),
        }
    }

    /// Has what programs wrote to a mounted room come into it. Clients of a metadata server commit what they wrote when a file is closed or synced.
    pub(in crate::commands) fn fetch_written(&self) {
        if let Self::Alone(access) = self {
            access.fetch_written();
        }
    }

    /// Frees what only deleted snapshots held. A process that keeps the room open does so in the background.
    pub(in crate::commands) fn free_deleted(&self) -> Result<()> {
        match self {
            Self::Alone(access) => access.free_deleted(),
            Self::Served(_) => Ok(()),
        }
    }

    pub(in crate::commands) fn close(self) -> Result<()> {
        match self {
            Self::Alone(access) => access.close(),
            Self::Served(_) => Ok(()),
        }
    }
}

fn is_served(dir: &Path) -> Result<bool> {
    must_be_room(dir)?;
    Ok(admin::ask_running(dir, &admin::Request::Status {})?.is_some())
}

/// Reaches a room to bring files back in it; refused where a metadata server has it, whose clients see the snapshots themselves.
pub(in crate::commands) fn reach_files(dir: &Path, open: &OpenArgs) -> Result<Access> {
    if is_served(dir)? {
        return Err(Error::said(
            Exit::InUse,
            format!(
                "{}: its metadata server has it open; copy the files back where it is mounted: cp -a MOUNTPOINT/.snapshots/NAME/PATH MOUNTPOINT/PATH. The \
                 snapshots: strongroom snapshot list {}",
                dir.display(),
                output::quoted(dir)
            ),
        ));
    }
    Access::reach(dir, open, Intent::Change)
}
