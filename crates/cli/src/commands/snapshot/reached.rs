//! How commands about snapshots reach a room: as every command does, or through the metadata server that serves it, here or elsewhere.

use std::path::{Path, PathBuf};

use super::remote::Remote;
use crate::access::{self, Access, Intent, OpenArgs};
use crate::args::Global;
use crate::commands::metadata::admin::{self, Comeback, RestoredReply, Version};
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::path_to_hex;
use crate::place::{RoomPath, must_be_room};
use crate::progress::Bar;
use crate::work::Progress;

/// A room whose snapshots can be asked for and changed.
#[derive(Debug)]
pub(in crate::commands) enum Reached {
    /// Opened by this process, or mounted.
    Alone(Box<Access>),
    /// Held by its metadata server.
    Served(PathBuf),
    /// The same, on another machine.
    Remote(Remote),
}

impl Reached {
    /// Finds out how the room in `dir` can be reached, opening it if nobody has.
    pub(in crate::commands) fn find(dir: &Path, open: &OpenArgs, intent: Intent) -> Result<Self> {
        if let Some(remote) = Remote::find(dir, open)? {
            return Ok(Self::Remote(remote));
        }
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
            Self::Remote(server) => return server.run(request),
            Self::Served(dir) => dir,
        };
        let asked = admin::Request::Snapshots {
            request: Box::new(request.clone()),
        };
        match ask(dir, &asked, progress)? {
            admin::Reply::Snapshots(reply) => Ok(*reply),
            _ => Err(admin::unexpected()),
        }
    }

    /// After an error for missing space: names the snapshots that hold some.
    pub(in crate::commands) fn advise_when_full(&self, dir: &Path, error: &Error, global: &Global) {
        let held = || self.run(&Request::Snapshots {}, &|_, _| true);
        access::advise_when_full(dir, error, global, held);
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
            Self::Served(_) | Self::Remote(_) => Ok(()),
        }
    }

    pub(in crate::commands) fn close(self) -> Result<()> {
        match self {
            Self::Alone(access) => access.close(),
            Self::Served(_) | Self::Remote(_) => Ok(()),
        }
    }
}

fn ask(dir: &Path, request: &admin::Request, progress: Progress<'_>) -> Result<admin::Reply> {
    let no_directory = &mut || Err(admin::unexpected());
    let reply = admin::ask_with_progress(dir, request, progress, no_directory)?;
    reply.ok_or_else(|| {
        Error::failed(format!(
            "{}: its metadata server has ended meanwhile",
            dir.display()
        ))
    })
}

/// Has the metadata server put something back.
pub(in crate::commands) fn have_put_back(
    dir: &Path,
    path: &RoomPath,
    to: &RoomPath,
    version: Version,
    bar: &Bar,
) -> Result<RestoredReply> {
    let request = admin::Request::PutBack(Comeback {
        version,
        path: path_to_hex(&path.path),
        to: path_to_hex(&to.path),
        must_be_directory: path.must_be_directory,
    });
    let reply = ask(dir, &request, &|done, total| bar.report(done, total));
    match reply {
        Ok(admin::Reply::Restored(done)) => Ok(done),
        Ok(_) => Err(admin::unexpected()),
        Err(e) if e.exit() == Exit::Interrupted => Err(Error::said(
            Exit::Interrupted,
            "stopped; nothing is changed, unless the copy was complete already",
        )),
        Err(e) => Err(e),
    }
}

fn is_served(dir: &Path) -> Result<bool> {
    must_be_room(dir)?;
    Ok(admin::ask_running(dir, &admin::Request::Status {})?.is_some())
}
