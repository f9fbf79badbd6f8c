//! Reaching a room: through the library when nobody has it open, through its serving process when it is mounted.
//!
//! Invariant: what a command asks of a room goes through [`Access::run`], [`Access::tree`] or [`Access::source`], and so works both
//! ways.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use room::{OpenOptions, Room, SendRequest};
use storage::HostStorage;

use crate::args::Global;
use crate::bucket;
use crate::control::client::Client;
use crate::control::{Reply, Request, SOCKET, SentReply};
use crate::credentials::{CredentialArgs, Given};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounting::ending;
use crate::output::{self, Failures};
use crate::place::{RoomPath, must_be_room};
use crate::sending;
use crate::snapshots;
use crate::socket;
use crate::tree::{HostTree, PastTree, RoomTree, Source, Tree};
use crate::work::{self, Progress};

/// How the room is opened, for every command that may have to.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OpenArgs {
    /// Open the room although this machine saw a newer state of it (after you restored a backup yourself)
    #[arg(long)]
    pub(crate) accept_rollback: bool,
    /// Where this machine remembers the newest state it saw of rooms; machines may share it [default: $STRONGROOM_STATE_DIR, else strongroom in the user's state directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
}

impl OpenArgs {
    /// The library's options for these.
    pub(crate) fn options(&self, intent: Intent) -> OpenOptions {
        OpenOptions {
            read_only: intent == Intent::Read,
            accept_rollback: self.accept_rollback,
            state_dir: self.state_dir.clone(),
            ..OpenOptions::default()
        }
    }
}

/// Whether a command changes the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Change,
}

/// A room that can be worked on.
#[derive(Debug)]
pub(crate) enum Access {
    /// Opened by this process.
    Library { dir: PathBuf, room: Box<Room> },
    /// Held by the process that serves its mount.
    Mounted(Client),
}

impl Access {
    /// Finds out how the room in `dir` can be reached, opening it if nobody has.
    pub(crate) fn reach(dir: &Path, open: &OpenArgs, intent: Intent) -> Result<Access> {
        must_be_room(dir)?;
        if let Some(client) = ending::mounted(dir)? {
            return Ok(Access::Mounted(client));
        }
        let given = open.credential.read(&dir.display().to_string())?;
        Access::open(dir, &given, open.options(intent))
    }

    /// The same for what needs a credential in any case, mounted or not. Returns it too.
    pub(crate) fn reach_with_key(
        dir: &Path,
        open: &OpenArgs,
        intent: Intent,
    ) -> Result<(Access, Given)> {
        must_be_room(dir)?;
        let given = open.credential.read(&dir.display().to_string())?;
        let access = Access::reach_given(dir, open, &given, intent)?;
        Ok((access, given))
    }

    /// The same with a credential that was read before.
    pub(crate) fn reach_given(
        dir: &Path,
        open: &OpenArgs,
        given: &Given,
        intent: Intent,
    ) -> Result<Access> {
        match ending::mounted(dir)? {
            Some(client) => Ok(Access::Mounted(client)),
            None => Access::open(dir, given, open.options(intent)),
        }
    }

    /// The same for what opens the room again later: returns the credential where one was needed.
    pub(crate) fn reach_again(
        dir: &Path,
        open: &OpenArgs,
        intent: Intent,
    ) -> Result<(Access, Option<Given>)> {
        must_be_room(dir)?;
        if let Some(client) = ending::mounted(dir)? {
            return Ok((Access::Mounted(client), None));
        }
        let given = open.credential.read(&dir.display().to_string())?;
        let access = Access::open(dir, &given, open.options(intent))?;
        Ok((access, Some(given)))
    }

    /// Opens a room that nobody has open.
    pub(crate) fn open(dir: &Path, given: &Given, options: OpenOptions) -> Result<Access> {
        let room = bucket::open_room(dir, &given.credential()?, options)
            .map_err(|e| Error::room(dir, e))?;
        socket::remove_leftovers(dir, SOCKET);
        Ok(Access::Library {
            dir: dir.to_owned(),
            room: Box::new(room),
        })
    }

    /// Carries out a request.
    pub(crate) fn run(&self, request: &Request, progress: Progress<'_>) -> Result<Reply> {
        match self {
            Access::Library { dir, room } => work::carry_out(dir, room, request, progress),
            Access::Mounted(client) => client.run(request, progress),
        }
    }

    /// Writes a snapshot as a stream. As [`work::send`].
    pub(crate) fn send(
        &self,
        request: &SendRequest,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<Option<SentReply>> {
        let scratch = sending::scratch(request)?;
        match self {
            Access::Library { dir, room } => {
                let storage = HostStorage::open(scratch.dir());
                let storage = storage.map_err(|e| Error::host(scratch.dir(), e))?;
                let place = std::env::temp_dir();
                work::send(dir, room, request, (storage, &place), out, progress)
            }
            Access::Mounted(client) => client.send(request, scratch.dir(), out, progress),
        }
    }

    /// The room's files.
    pub(crate) fn tree(&self) -> Result<Box<dyn Tree + '_>> {
        match self {
            Access::Library { room, .. } => Ok(Box::new(RoomTree::new(room))),
            Access::Mounted(client) => {
                if let Some(name) = &client.snapshot {
                    return Err(Error::said(
                        Exit::InUse,
                        format!(
                            "{}: its snapshot {name} is mounted at {}, and not the room itself; unmount it first",
                            client.room.display(),
                            client.mountpoint.display()
                        ),
                    ));
                }
                Ok(Box::new(entered(client)?))
            }
        }
    }

    /// The room's files to read, or those of a snapshot of it.
    pub(crate) fn source(&self, snapshot: Option<&str>) -> Result<Box<dyn Source + '_>> {
        let Some(name) = snapshot else {
            return Ok(self.tree()?);
        };
        match self {
            Access::Library { dir, room } => {
                let past = PastTree::new(room, name).map_err(|e| match e {
                    room::Error::NotFound => snapshots::missing(dir, name),
                    other => Error::room(dir, other),
                })?;
                Ok(Box::new(past))
            }
            Access::Mounted(client) if client.snapshot.as_deref() == Some(name) => {
                Ok(Box::new(entered(client)?))
            }
            Access::Mounted(client) => Ok(Box::new(past_of_mount(client, name)?)),
        }
    }

    /// Whether a directory of the host holds the room, or has it mounted somewhere in it.
    pub(crate) fn is_within(&self, directory: &Path) -> bool {
        let Ok(directory) = directory.canonicalize() else {
            return false;
        };
        let holds = |dir: &Path| dir.canonicalize().is_ok_and(|d| d.starts_with(&directory));
        directory.is_dir()
            && match self {
                Access::Library { dir, .. } => holds(dir),
                Access::Mounted(client) => holds(&client.room) || holds(&client.mountpoint),
            }
    }

    /// Has what programs wrote to a mounted room, and the kernel still keeps, come into it; where this user may enter.
    pub(crate) fn fetch_written(&self) {
        if let Access::Mounted(_) = self
            && let Err(e) = self.tree().map(|tree| tree.sync())
        {
            tracing::info!("{e}");
        }
    }

    /// Does several changes that shall be one, also after a crash: as far as the room can be reached so.
    pub(crate) fn at_once(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            Access::Library { dir, room } => {
                room.begin().map_err(|e| Error::room(dir, e))?;
                let changed = change();
                // There is no way back: what was changed becomes durable, and is right in parts.
                room.complete()
                    .map_err(|e| Error::room(dir, e))
                    .and(changed)
            }
            Access::Mounted(_) => change(),
        }
    }

    /// Frees what only deleted snapshots held. The process of a mount does so in the background.
    pub(crate) fn free_deleted(&self) -> Result<()> {
        match self {
            Access::Library { dir, room } => room.tend().map_err(|e| Error::room(dir, e)),
            Access::Mounted(_) => Ok(()),
        }
    }

    /// After an error for missing space: names the snapshots that hold some.
    pub(crate) fn advise_when_full(&self, dir: &Path, error: &Error, global: &Global) {
        let held = || self.run(&Request::Snapshots {}, &|_, _| true);
        advise_when_full(dir, error, global, held);
    }

    /// Commits and closes a room that this process opened.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Access::Library { dir, room } => room.close().map_err(|e| Error::room(&dir, e)),
            Access::Mounted(_) => Ok(()),
        }
    }
}

/// After an error for missing space: names the snapshots that hold some, as `held` answers.
pub(crate) fn advise_when_full(
    dir: &Path,
    error: &Error,
    global: &Global,
    held: impl FnOnce() -> Result<Reply>,
) {
    if error.exit() == Exit::NoSpace
        && let Ok(Reply::Snapshots(held)) = held()
    {
        let advice = snapshots::advice_when_full(dir, &held);
        if !advice.is_empty() {
            output::note(global, advice);
        }
    }
}

/// The rooms of a command that may name several, each reached once.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    reached: Vec<(PathBuf, Access)>,
}

impl Rooms {
    /// Reaches the room in `dir` unless it is reached already; returns its place in the list.
    pub(crate) fn reach(&mut self, dir: &Path, open: &OpenArgs, intent: Intent) -> Result<usize> {
        must_be_room(dir)?;
        let canonical = dir.canonicalize().map_err(|e| Error::host(dir, e))?;
        if let Some(at) = self
            .reached
            .iter()
            .position(|(known, _)| *known == canonical)
        {
            return Ok(at);
        }
        self.reached
            .push((canonical, Access::reach(dir, open, intent)?));
        Ok(self.reached.len() - 1)
    }

    pub(crate) fn get(&self, at: usize) -> &Access {
        &self.reached[at].1
    }

    /// Commits and closes all; the first failure is returned, after the others were closed too.
    pub(crate) fn close(self) -> Result<()> {
        self.reached
            .into_iter()
            .map(|(_, access)| access.close())
            .fold(Ok(()), Result::and)
    }
}

/// The tree that a process has mounted.
fn entered(client: &Client) -> Result<HostTree> {
    let mount = client.mount().ok_or_else(|| ending::no_mount(client))?;
    let tree = HostTree::mounted(&mount).map_err(|e| closed(client, &e))?;
    // The root of a mount can be held by whom it then lets do nothing.
    tree.stat(Path::new("/"), true)
        .map_err(|e| closed(client, &e))?;
    Ok(tree)
}

fn closed(client: &Client, why: &dyn std::fmt::Display) -> Error {
    Error::said(
        Exit::InUse,
        format!(
            "{}: mounted at {} by process {}, where this user cannot enter ({why}): become the user who mounted it, or mount it \
             with --allow-other",
            client.room.display(),
            client.mountpoint.display(),
            client.pid
        ),
    )
}

/// A snapshot of a mounted room, through its mount.
fn past_of_mount(client: &Client, name: &str) -> Result<HostTree> {
    let Some(directory) = &client.snapshots else {
        return Err(Error::said(
            Exit::InUse,
            format!(
                "{}: mounted at {} without its snapshots; unmount it first, or mount it without --snapshots off",
                client.room.display(),
                client.mountpoint.display()
            ),
        ));
    };
    let mount = client.mount().ok_or_else(|| ending::no_mount(client))?;
    HostTree::of_snapshot(&mount, directory, name).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::said(
            Exit::InUse,
            format!(
                "{}: a file of the room is named {}, which hides the snapshots of its mount; unmount it first, or mount it with \
                 --snapshots-name",
                client.room.display(),
                directory.display()
            ),
        ),
        ErrorKind::NotFound => snapshots::missing(&client.room, name),
        _ => closed(client, &e),
    })
}

/// Does `act` with each path, in the room or snapshot it points into. What fails is said, and the others are done all the same.
pub(crate) fn read_each(
    paths: &[RoomPath],
    open: &OpenArgs,
    global: &Global,
    mut act: impl FnMut(&dyn Source, &RoomPath, &mut Failures) -> Result<()>,
) -> Result<()> {
    each(
        paths,
        open,
        Intent::Read,
        global,
        |access, path, failures| {
            let source = access.source(path.snapshot.as_deref())?;
            Ok(act(&*source, path, failures))
        },
    )
}

/// The same with what changes rooms: no path may point into a snapshot.
pub(crate) fn change_each(
    paths: &[RoomPath],
    open: &OpenArgs,
    global: &Global,
    mut act: impl FnMut(&dyn Tree, &RoomPath, &mut Failures) -> Result<()>,
) -> Result<()> {
    each(
        paths,
        open,
        Intent::Change,
        global,
        |access, path, failures| {
            let tree = access.tree()?;
            Ok(act(&*tree, path, failures))
        },
    )
}

/// `act` fails where nothing can be reached, and returns what became of the path.
fn each(
    paths: &[RoomPath],
    open: &OpenArgs,
    intent: Intent,
    global: &Global,
    mut act: impl FnMut(&Access, &RoomPath, &mut Failures) -> Result<Result<()>>,
) -> Result<()> {
    let mut rooms = Rooms::default();
    let mut failures = Failures::default();
    for path in paths {
        let at = rooms.reach(&path.room, open, intent)?;
        if let Err(error) = act(rooms.get(at), path, &mut failures)? {
            failures.note(&error, global);
            rooms.get(at).advise_when_full(&path.room, &error, global);
        }
    }
    rooms.close()?;
    failures.end()
}
