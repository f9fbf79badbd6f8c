//! How commands about snapshots reach a room: as every command does, or through the metadata server that serves it, here or elsewhere.

use std::io::Write;
use std::path::{Path, PathBuf};

use room::SendRequest;

use super::remote::Remote;
use crate::access::{self, Access, Intent, OpenArgs};
use crate::args::Global;
use crate::broker::Broker;
use crate::commands::metadata::admin::{self, Comeback, RestoredReply, Version};
use crate::control::{Reply, Request, SentReply};
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::path_to_hex;
use crate::place::{RoomPath, must_be_room};
use crate::progress::Bar;
use crate::sending;
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

    /// The same for what needs a credential in any case. Returns it too.
    pub(in crate::commands) fn find_with_key(
        dir: &Path,
        open: &OpenArgs,
        intent: Intent,
    ) -> Result<(Self, Given)> {
        must_be_room(dir)?;
        let given = open.credential.read(&dir.display().to_string())?;
        let reached = match is_served(dir)? {
            true => Self::Served(dir.to_owned()),
            false => Self::Alone(Box::new(Access::reach_given(dir, open, &given, intent)?)),
        };
        Ok((reached, given))
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
        ask_of_snapshots(dir, request.clone(), progress, &mut no_directory)
    }

    /// Writes a snapshot as a stream. As [`work::send`](crate::work::send).
    pub(in crate::commands) fn send(
        &self,
        request: &SendRequest,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<Option<SentReply>> {
        let dir = match self {
            Self::Alone(access) => return access.send(request, out, progress),
            Self::Remote(server) => return Err(server.refusal()),
            Self::Served(dir) => dir,
        };
        let ask_server = |broker| {
            let mut broker = Some(broker);
            let mut once = || broker.take().ok_or_else(admin::unexpected);
            ask_of_snapshots(dir, sending::asking(request), progress, &mut once)
        };
        let scratch = sending::scratch(request)?;
        match sending::receive(dir, scratch.dir(), out, ask_server)? {
            Reply::Sent(sent) => Ok(sent),
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

fn no_directory() -> Result<Broker> {
    Err(admin::unexpected())
}

/// `directory`: opens the one that the server may need.
fn ask(
    dir: &Path,
    request: &admin::Request,
    progress: Progress<'_>,
    directory: &mut dyn FnMut() -> Result<Broker>,
) -> Result<admin::Reply> {
    let reply = admin::ask_with_progress(dir, request, progress, directory)?;
    reply.ok_or_else(|| Error::failed_at(dir, "its metadata server has ended meanwhile"))
}

/// Has the metadata server carry out a request about snapshots.
fn ask_of_snapshots(
    dir: &Path,
    request: Request,
    progress: Progress<'_>,
    directory: &mut dyn FnMut() -> Result<Broker>,
) -> Result<Reply> {
    let request = Box::new(request);
    match ask(
        dir,
        &admin::Request::Snapshots { request },
        progress,
        directory,
    )? {
        admin::Reply::Snapshots(reply) => Ok(*reply),
        _ => Err(admin::unexpected()),
    }
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
    let progress = |done, total| bar.report(done, total);
    let reply = ask(dir, &request, &progress, &mut no_directory);
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
