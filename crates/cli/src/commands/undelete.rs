//! `strongroom undelete`: what was removed from a room and snapshots still have, and bringing it back.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::metadata::admin::Version;
use super::snapshot::{Reached, have_put_back, put_back};
use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{RemovedReply, Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::name_from_hex;
use crate::output::{self, Failures, size};
use crate::place::{RoomPath, path_in, room_argument};
use crate::progress::Bar;

/// List what was removed and snapshots still have, or bring it back
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a path: one line for each file or directory that was removed, with its bytes, when it was last modified, the newest \
snapshot that has it, and how many more do. With a path: its newest version in any snapshot is put back, with all attributes. What is \
there is never replaced; --to puts it elsewhere. Data is shared with the snapshot and takes no space.\n\nExamples:\n  strongroom undelete \
work.strongroom\n  strongroom undelete work.strongroom /papers/letter.txt\n  strongroom undelete work.strongroom /papers --to /old-papers"
)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// What to bring back: /papers/letter.txt; without: list
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// List what was removed since this snapshot; bring back from it or a later one
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Put it here instead; of one path
    #[arg(long, value_name = "PATH", requires = "paths")]
    to: Option<OsString>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    if args.paths.is_empty() {
        return list(&args, global);
    }
    if args.to.is_some() && args.paths.len() > 1 {
        return Err(Error::usage("--to is for one path; name one"));
    }
    let reached = Reached::find(&args.room, &args.open, Intent::Change)?;
    let mut failures = Failures::default();
    let done = args.paths.iter().try_for_each(|path| {
        let from = path_in(&args.room, None, path)?;
        let to = path_in(&args.room, None, args.to.as_ref().unwrap_or(path))?;
        let since = args.since.as_deref();
        let brought = match &reached {
            Reached::Alone(access) => bring_back(access, &from, &to, since, global),
            Reached::Served(dir) => brought_by_server(dir, &from, &to, since, global),
            Reached::Remote(server) => Err(server.refusal()),
        };
        match brought {
            Ok(brought) => {
                brought.report(&to, global);
                Ok(())
            }
            Err(error) if error.exit() != Exit::Interrupted => {
                reached.advise_when_full(&args.room, &error, global);
                failures.note(&error, global);
                Ok(())
            }
            Err(error) => Err(error),
        }
    });
    let closed = reached.close();
    done?;
    closed?;
    failures.end()
}

fn list(args: &Args, global: &Global) -> Result<()> {
    let access = Reached::find(&args.room, &args.open, Intent::Read)?;
    let request = Request::Removed {
        since: args.since.clone(),
    };
    let reply = access.run(&request, &|_, _| true)?;
    access.close()?;
    let Reply::Removed(all) = reply else {
        return Err(unexpected());
    };
    for removed in &all {
        match global.json {
            true => output::json_entry(&as_json(removed)?),
            false => output::entry(line(removed)?),
        }
    }
    if global.json {
        return Ok(());
    }
    if all.is_empty() {
        output::note(global, "Snapshots have nothing that was removed.");
    } else {
        let bytes = all.iter().map(|removed| removed.bytes).sum();
        let files = all.iter().map(|removed| removed.files).sum();
        output::note(
            global,
            format!(
                "{} ({}) can be brought back with: strongroom undelete {} PATH",
                output::count(files, "file"),
                size(bytes),
                output::quoted(&args.room)
            ),
        );
    }
    Ok(())
}

fn line(removed: &RemovedReply) -> Result<String> {
    let path = output::shown_path(&name_from_hex(&removed.path)?);
    let is_directory = removed.kind == "directory";
    let snapshots = match removed.snapshots.as_slice() {
        [] => return Err(unexpected()),
        [one] => output::shown(one.as_ref()),
        [newest, more @ ..] => {
            format!("{} and {} more", output::shown(newest.as_ref()), more.len())
        }
    };
    Ok(format!(
        "{:>12}  {}  {snapshots}  {path}{}",
        size(removed.bytes),
        output::moment(removed.modified.0),
        match is_directory {
            true => format!("/  ({})", output::count(removed.files, "file")),
            false => String::new(),
        }
    ))
}

fn as_json(removed: &RemovedReply) -> Result<Value> {
    let path = name_from_hex(&removed.path)?;
    let (secs, nanos) = removed.modified;
    let mut value = json!({
        "path": path.to_string_lossy(),
        "kind": removed.kind,
        "snapshots": removed.snapshots,
        "files": removed.files,
        "bytes": removed.bytes,
        "modified": {"secs": secs, "nanos": nanos},
    });
    // A path that is not text is reported exactly as well.
    if path.to_str().is_none() {
        value["path_hex"] = removed.path.clone().into();
    }
    Ok(value)
}

/// What was brought back.
struct Brought {
    snapshot: String,
    files: u64,
    bytes: u64,
}

impl Brought {
    fn report(&self, to: &RoomPath, global: &Global) {
        if global.json {
            output::json_line(&json!({
                "path": to.path.to_string_lossy(),
                "snapshot": self.snapshot,
                "files": self.files,
                "bytes": self.bytes,
            }));
            return;
        }
        output::note(
            global,
            format!(
                "{} brought back from {}: {}",
                output::count(self.files, "file"),
                output::shown(self.snapshot.as_ref()),
                output::shown_path(&to.path)
            ),
        );
    }
}

/// Has the metadata server do it.
fn brought_by_server(
    dir: &Path,
    path: &RoomPath,
    to: &RoomPath,
    since: Option<&str>,
    global: &Global,
) -> Result<Brought> {
    let bar = Bar::counting("restoring", global);
    let version = Version::NewestSince(since.map(str::to_owned));
    let done = have_put_back(dir, path, to, version, &bar);
    bar.end();
    let done = done?;
    Ok(Brought {
        snapshot: done.snapshot,
        files: done.files,
        bytes: done.bytes,
    })
}

/// Puts back the newest version of a path.
fn bring_back(
    access: &Access,
    path: &RoomPath,
    to: &RoomPath,
    since: Option<&str>,
    global: &Global,
) -> Result<Brought> {
    let tree = access.tree()?;
    match tree.stat(&to.path, false) {
        Err(fault) if fault.is_not_found() => {}
        Err(fault) => return Err(to.failed(fault)),
        Ok(_) => return Err(in_the_way(to)),
    }
    let Reply::Snapshots(all) = access.run(&Request::Snapshots {}, &|_, _| true)? else {
        return Err(unexpected());
    };
    let first = match since {
        None => 0,
        Some(name) => {
            let found = all.snapshots.iter().find(|snapshot| snapshot.name == name);
            found
                .ok_or_else(|| crate::snapshots::missing(&path.room, name))?
                .number
        }
    };
    let newest_first = all.snapshots.iter().rev();
    for snapshot in newest_first.filter(|snapshot| snapshot.number >= first) {
        let source = access.source(Some(&snapshot.name))?;
        match source.stat(&path.path, false) {
            Err(fault) if fault.is_not_found() => continue,
            Err(fault) => return Err(path.failed(fault)),
            Ok(_) => {}
        }
        let from = RoomPath {
            snapshot: Some(snapshot.name.clone()),
            ..path.clone()
        };
        let bar = Bar::counting("restoring", global);
        let done = put_back(access, &from, to, global, &bar);
        bar.end();
        let done = done.map_err(|error| match &error {
            // Somebody was faster.
            Error::At { fault, .. } if fault.is_exists() && tree.stat(&to.path, false).is_ok() => {
                in_the_way(to)
            }
            _ => error,
        })?;
        return Ok(Brought {
            snapshot: snapshot.name.clone(),
            files: done.files,
            bytes: done.bytes,
        });
    }
    Err(no_snapshot_has(path, since))
}

pub(super) fn no_snapshot_has(path: &RoomPath, since: Option<&str>) -> Error {
    Error::failed(format!(
        "{}: no snapshot{} has it; list what can be brought back with: strongroom undelete {}",
        path.words(),
        since.map_or(String::new(), |name| format!(" since {name}")),
        output::quoted(&path.room)
    ))
}

pub(super) fn in_the_way(to: &RoomPath) -> Error {
    Error::failed(format!(
        "{}: is there, and is not replaced; put it elsewhere with --to, or go back to a snapshot's version with: strongroom snapshot restore",
        to.words()
    ))
}
