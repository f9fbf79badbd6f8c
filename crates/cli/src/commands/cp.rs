//! `strongroom cp`: copies in, out and within.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use room::FileKind;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs, Rooms};
use crate::args::Global;
use crate::copy::place::Existing;
use crate::copy::{Copier, Made, Moved};
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::{Location, live, place};
use crate::progress::Bar;
use crate::tree::{HostTree, Meta, Source, Tree, sync_file_system};

/// Copy files into a room, out of it, or within it, with all their attributes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mode, owner (where allowed), times, extended attributes, ACLs, hard links and holes are always kept."
)]
pub(crate) struct Args {
    /// What to copy (host paths, ROOM:/path, ROOM@SNAPSHOT:/path), and last where to (a host path or ROOM:/path)
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Copy directories with everything in them
    #[arg(
        short,
        long,
        visible_short_alias = 'R',
        visible_short_alias = 'a',
        visible_alias = "archive"
    )]
    recursive: bool,
    /// Leave files alone that exist at the target
    #[arg(short, long)]
    no_clobber: bool,
    #[command(flatten)]
    open: OpenArgs,
}

/// The places named: what is moved or copied, and last where to. One of them at least is in a room; for what is not,
/// there is the ordinary `command`.
pub(super) fn sources_and_target(
    paths: &[OsString],
    verb: &str,
    command: &str,
) -> Result<(Vec<Location>, Location)> {
    let mut sources = paths
        .iter()
        .map(|path| place(path))
        .collect::<Result<Vec<_>>>()?;
    let Some(target) = sources.pop() else {
        return Err(Error::usage(format!("{verb} what, and where to?")));
    };
    if let Location::Room(path) = &target {
        live(path.clone())?;
    }
    let in_room = |place: &Location| matches!(place, Location::Room(_));
    if !sources.iter().chain([&target]).any(in_room) {
        return Err(Error::usage(format!(
            "none of these is in a room: write ROOM:/path for the side that is; for ordinary files there is {command}"
        )));
    }
    Ok((sources, target))
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (sources, target) = sources_and_target(&args.paths, "copy", "cp")?;
    let mut work = Transfer::new(&sources, &target, &args.open, false)?;
    let bar = Bar::counting("copying", global);
    let options = CopyOptions {
        recursive: args.recursive,
        keep_existing: args.no_clobber,
        moving: false,
    };
    let done = work.copy_all(&sources, &options, global, &bar, &mut |_, _, _| {});
    bar.end();
    if let Err(error) = &done {
        work.advise_when_full(error, global);
    }
    // What was copied is committed even if something failed.
    let closed = work.close();
    let (files, bytes, failures) = done?;
    closed?;
    if global.json {
        output::json_line(&json!({"files": files, "bytes": bytes}));
    }
    failures.end()
}

/// How to copy.
pub(crate) struct CopyOptions {
    pub(crate) recursive: bool,
    pub(crate) keep_existing: bool,
    /// See [`Copier::moved`].
    pub(crate) moving: bool,
}

/// Where a source is.
struct Reached {
    /// Its room's place in the list; `None`: the host.
    room: Option<usize>,
    snapshot: Option<String>,
}

/// The rooms a copy or move touches, and where it goes.
pub(crate) struct Transfer {
    rooms: Rooms,
    sources: Vec<Reached>,
    target: Location,
    target_room: Option<usize>,
}

impl Transfer {
    /// Reaches every room once. `moving`: sources change too.
    pub(crate) fn new(
        sources: &[Location],
        target: &Location,
        open: &OpenArgs,
        moving: bool,
    ) -> Result<Self> {
        let mut rooms = Rooms::default();
        // The target first: it is opened for changes, and a source in the same room then shares it.
        let mut reach = |place: &Location, intent| match place {
            Location::Room(path) => rooms.reach(&path.room, open, intent).map(Some),
            Location::Host(_) => Ok(None),
        };
        let target_room = reach(target, Intent::Change)?;
        let intent = if moving { Intent::Change } else { Intent::Read };
        let sources = sources
            .iter()
            .map(|place| {
                let snapshot = match place {
                    Location::Room(path) => path.snapshot.clone(),
                    Location::Host(_) => None,
                };
                let room = reach(place, intent)?;
                Ok(Reached { room, snapshot })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            rooms,
            sources,
            target: target.clone(),
            target_room,
        })
    }

    fn target_tree(&self) -> Result<Box<dyn Tree + '_>> {
        self.tree(self.target_room, &self.target)
    }

    fn tree(&self, room: Option<usize>, place: &Location) -> Result<Box<dyn Tree + '_>> {
        match room {
            Some(at) => self.rooms.get(at).tree(),
            None => Ok(Box::new(HostTree::with_top(parts(place).0))),
        }
    }

    pub(crate) fn same_tree(&self, source: usize) -> bool {
        let Reached { room, snapshot } = &self.sources[source];
        *room == self.target_room && snapshot.is_none()
    }

    /// The tree that a source is moved from.
    pub(crate) fn source_tree(&self, at: usize, source: &Location) -> Result<Box<dyn Tree + '_>> {
        self.tree(self.sources[at].room, source)
    }

    fn source(&self, at: usize, source: &Location) -> Result<Box<dyn Source + '_>> {
        let Reached { room, snapshot } = &self.sources[at];
        match room {
            Some(at) => self.rooms.get(*at).source(snapshot.as_deref()),
            None => Ok(self.tree(None, source)?),
        }
    }

    /// Whether identities of files of a source and of the target are of one kind: of the same open room, or of the host, which has mounted rooms too.
    fn can_be_compared(&self, source: usize) -> bool {
        let is_host = |room: Option<usize>| {
            room.is_none_or(|at| matches!(self.rooms.get(at), Access::Mounted(_)))
        };
        self.same_tree(source) || is_host(self.sources[source].room) && is_host(self.target_room)
    }

    /// Where each source goes: into the target if that is a directory, else to the target itself.
    pub(crate) fn destinations(&self, sources: &[Location]) -> Result<Vec<PathBuf>> {
        let to = self.target_tree()?;
        let (path, must_be_directory) = parts(&self.target);
        let failed = |fault| Error::at(words(&self.target), fault);
        let into = match to.stat(path, true) {
            Ok(meta) => meta.kind == FileKind::Directory,
            Err(fault) if fault.is_not_found() => {
                // Otherwise the first source would be blamed.
                if let Some(parent) = path.parent().filter(|parent| *parent != "") {
                    to.stat(parent, true).map_err(failed)?;
                }
                false
            }
            Err(fault) => return Err(failed(fault)),
        };
        if !into && (sources.len() > 1 || must_be_directory) {
            return Err(Error::failed(format!(
                "{}: there is no such directory",
                words(&self.target)
            )));
        }
        Ok(sources
            .iter()
            .map(|source| match (into, parts(source).0.file_name()) {
                (true, Some(name)) => path.join(name),
                // The root of a room, or `.` and `..`: what is in it goes straight into the target.
                _ => path.to_owned(),
            })
            .collect())
    }

    /// Copies every source; `after` is called for each one that was copied whole.
    pub(crate) fn copy_all(
        &mut self,
        sources: &[Location],
        options: &CopyOptions,
        global: &Global,
        bar: &Bar,
        after: &mut dyn FnMut(usize, &Meta, Option<Moved>),
    ) -> Result<(u64, u64, Failures)> {
        let destinations = self.destinations(sources)?;
        let to = self.target_tree()?;
        self.expect(sources, options, bar)?;
        let mut failures = Failures::default();
        let (mut files, mut bytes) = (0, 0);
        let mut links = HashMap::new();
        // In a room all names are different ones.
        let mut made = (sources.len() > 1 || self.target_room.is_none()).then(Made::default);
        for (at, (source, destination)) in sources.iter().zip(&destinations).enumerate() {
            let from = self.source(at, source)?;
            let (path, must_be_directory) = parts(source);
            let meta = match from.stat(path, must_be_directory || !options.recursive) {
                Ok(meta) => meta,
                Err(fault) => {
                    failures.note(&Error::at(words(source), fault), global);
                    continue;
                }
            };
            let places = ((&*from, path), (&*to, destination.as_path()));
            if let Some(refusal) = self.refusal(at, source, &meta, places, options) {
                failures.note(&refusal, global);
                continue;
            }
            let existing = match options.keep_existing {
                true => Existing::Leave,
                false => Existing::Replace,
            };
            let mut copier = Copier {
                moved: options.moving.then(Moved::default),
                links: std::mem::take(&mut links),
                made: made.take(),
                directories: self.can_be_compared(at).then(HashSet::new),
                files,
                bytes,
                ..Copier::new((&*from, prefix(source)), &*to, existing, global, bar)
            };
            let copied = copier.copy(path, &meta, destination);
            files = copier.files;
            bytes = copier.bytes;
            copied?;
            links = copier.links;
            made = copier.made;
            let whole = !copier.failures.any();
            failures.absorb(copier.failures);
            // Identities are unique within one tree only.
            if !sources
                .iter()
                .skip(at + 1)
                .all(|next| prefix(next) == prefix(source))
            {
                links.clear();
            }
            if whole {
                after(at, &meta, copier.moved);
            }
        }
        Ok((files, bytes, failures))
    }

    /// Says to the bar how much there is to copy.
    fn expect(&self, sources: &[Location], options: &CopyOptions, bar: &Bar) -> Result<()> {
        let mut total = 0;
        for (at, source) in sources.iter().enumerate() {
            let from = self.source(at, source)?;
            let (path, must_be_directory) = parts(source);
            // What is not there is reported when it is its turn.
            if let Ok(meta) = from.stat(path, must_be_directory || !options.recursive)
                && (options.recursive || meta.kind != FileKind::Directory)
            {
                total += bar.survey(&*from, path, &meta).stored;
            }
        }
        bar.expect(total);
        Ok(())
    }

    fn refusal(
        &self,
        at: usize,
        source: &Location,
        meta: &Meta,
        ((from, path), (tree, to)): ((&dyn Source, &Path), (&dyn Tree, &Path)),
        options: &CopyOptions,
    ) -> Option<Error> {
        if meta.kind == FileKind::Directory && !options.recursive {
            return Some(Error::failed(format!(
                "{}: is a directory; copy it with -r",
                words(source)
            )));
        }
        if options.moving
            && meta.kind == FileKind::Directory
            && from
                .stat(path, false)
                .is_ok_and(|link| link.kind == FileKind::Symlink)
        {
            return Some(Error::failed(format!(
                "{}: is a symbolic link; name it without a slash at its end, or the directory itself",
                words(source)
            )));
        }
        let node = match meta.kind {
            FileKind::CharDevice | FileKind::BlockDevice => Some("a device node"),
            FileKind::Fifo => Some("a named pipe"),
            FileKind::Socket => Some("a socket"),
            _ => None,
        };
        if let Some(node) = node
            && !options.recursive
        {
            return Some(Error::failed(format!(
                "{}: is {node}, whose contents are not copied; copy the node itself with -a",
                words(source)
            )));
        }
        if self.can_be_compared(at) && is_same(from, path, meta, tree, to) {
            return Some(Error::failed(format!(
                "{}: source and target are the same file",
                words(source)
            )));
        }
        if self.same_tree(at) && meta.kind == FileKind::Directory && to.starts_with(path) {
            return Some(Error::failed(format!(
                "{}: a directory cannot go into itself",
                words(source)
            )));
        }
        if let (Location::Host(directory), Some(room)) = (source, self.target_room)
            && self.rooms.get(room).is_within(directory)
        {
            return Some(Error::failed(format!(
                "{}: holds the room itself; name what is beside it",
                words(source)
            )));
        }
        None
    }

    /// Makes what was copied durable, as far as the target can.
    pub(crate) fn sync_target(&self) -> Result<()> {
        let synced = match &self.target {
            Location::Room(_) => self.target_tree()?.sync(),
            Location::Host(path) => sync_file_system(path),
        };
        synced.map_err(|fault| Error::at(words(&self.target), fault))
    }

    /// Names the snapshots of a full room that hold space.
    pub(crate) fn advise_when_full(&self, error: &Error, global: &Global) {
        if let (Location::Room(path), Some(at)) = (&self.target, self.target_room) {
            let access = self.rooms.get(at);
            access.advise_when_full(&path.room, error, global);
        }
    }

    pub(crate) fn close(self) -> Result<()> {
        self.rooms.close()
    }
}

/// Whether two names are one. Of a file with several names others than this one are others.
fn is_same(from: &dyn Source, path: &Path, meta: &Meta, tree: &dyn Tree, to: &Path) -> bool {
    let directory = |tree: &dyn Source, path: &Path| {
        let parent = path.parent()?;
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        Some(tree.stat(parent, true).ok()?.id)
    };
    let is_one = |there: &Meta| {
        there.nlink == 1
            || there.kind == FileKind::Directory
            || path.file_name() == to.file_name() && directory(from, path) == directory(tree, to)
    };
    tree.stat(to, false)
        .is_ok_and(|there| there.id == meta.id && is_one(&there))
}

/// A place's path within its tree, and whether it must be a directory.
pub(crate) fn parts(place: &Location) -> (&Path, bool) {
    match place {
        Location::Room(path) => (&path.path, path.must_be_directory),
        Location::Host(path) => (path, ends_with_slash(path.as_os_str())),
    }
}

fn ends_with_slash(path: &OsStr) -> bool {
    path.as_encoded_bytes().ends_with(b"/")
}

/// A place as it is written.
pub(crate) fn words(place: &Location) -> String {
    match place {
        Location::Room(path) => path.words(),
        Location::Host(path) => output::shown_path(path),
    }
}

/// What is put before a path of the same tree in messages.
fn prefix(place: &Location) -> String {
    match place {
        Location::Room(path) => format!("{}:", path.tree_words()),
        Location::Host(_) => String::new(),
    }
}
