//! `strongroom snapshot`: the room at past moments: create, list, rename, delete, compare, restore, and how long they are kept.

mod diff;
mod policy;
mod reached;
mod remote;
mod restore;

pub(super) use reached::{Reached, have_put_back};
pub(super) use restore::put_back;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::access::{Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request, SnapshotReply, SnapshotsReply};
use crate::error::{Error, Result};
use crate::output::{self, size};
use crate::place::room_argument;
use crate::snapshots;

/// Create, list, compare, restore and delete snapshots of a room: the whole room at one moment
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A snapshot copies nothing: it holds only what was changed or removed since. Read one as ROOM@NAME:/path (ls, tree, cat, stat, \
du, export, cp), or in the mounted room below .snapshots/NAME.\n\nExamples:\n  strongroom snapshot create work.strongroom monday\n  strongroom \
snapshot diff work.strongroom monday\n  strongroom snapshot restore work.strongroom monday /papers\n  strongroom snapshot policy set \
work.strongroom --hourly 24 --daily 7 --weekly 5"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The room, and how it is opened.
#[derive(Debug, clap::Args)]
struct InRoom {
    /// The room's directory, where it is mounted, or strongroom://HOST[:PORT]/ of its metadata server (with --identity of an administrator)
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a snapshot; it is durable when this returns
    Create {
        #[command(flatten)]
        room: InRoom,
        /// Its name, without /, @ and : [default: the time in UTC, as 2026-11-25T10.00.00Z]
        name: Option<String>,
    },
    /// List the snapshots, and the space that each alone holds
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        room: InRoom,
    },
    /// Show facts about a snapshot
    Show {
        #[command(flatten)]
        room: InRoom,
        /// The snapshot
        name: String,
    },
    /// Give a snapshot another name
    Rename {
        #[command(flatten)]
        room: InRoom,
        /// The snapshot
        from: String,
        /// Its new name
        to: String,
    },
    /// Delete snapshots, and free what only they hold; a mounted room does that in the background
    #[command(visible_alias = "rm")]
    Delete {
        #[command(flatten)]
        room: InRoom,
        /// The snapshots
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Show what was added, removed, renamed and changed between two snapshots, or since one
    #[command(after_help = diff::HELP)]
    Diff {
        #[command(flatten)]
        room: InRoom,
        /// The earlier snapshot
        #[arg(value_name = "A")]
        from: String,
        /// The later one [default: now]
        #[arg(value_name = "B")]
        to: Option<String>,
        /// For programs: fields and lines end with a NUL byte, and nothing is escaped
        #[arg(short = '0', long, conflicts_with = "json")]
        null: bool,
    },
    /// Put a file or directory back as it was in a snapshot, in the place of what is there
    #[command(after_help = restore::HELP)]
    Restore {
        #[command(flatten)]
        room: InRoom,
        /// The snapshot
        name: String,
        /// The path in it: /papers/letter.txt, or / for the whole room
        path: OsString,
        /// Put it here instead
        #[arg(long, value_name = "PATH")]
        to: Option<OsString>,
    },
    /// Delete the automatic snapshots that the room's policy does not keep
    Prune {
        #[command(flatten)]
        room: InRoom,
        /// Only show which
        #[arg(long)]
        dry_run: bool,
    },
    /// Set, show or remove the room's policy: when its mount or metadata server creates automatic snapshots, and which are kept
    Policy {
        #[command(subcommand)]
        command: policy::Command,
    },
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Create { room, name } => create(&room, name, global),
        Command::List { room } => list(&room, global),
        Command::Show { room, name } => show(&room, &name, global),
        Command::Rename { room, from, to } => {
            snapshots::check_name(&to)?;
            room.ask(Intent::Change, &Request::RenameSnapshot { from, to })
                .map(drop)
        }
        Command::Delete { room, names } => delete(&room, names, global),
        Command::Diff {
            room,
            from,
            to,
            null,
        } => diff::run(&room, from, to, null, global),
        Command::Restore {
            room,
            name,
            path,
            to,
        } => restore::run(&room, &name, &path, to.as_deref(), global),
        Command::Prune { room, dry_run } => prune(&room, dry_run, global),
        Command::Policy { command } => policy::run(command, global),
    }
}

impl InRoom {
    fn reach(&self, intent: Intent) -> Result<Reached> {
        Reached::find(&self.room, &self.open, intent)
    }

    /// Asks one thing of the room.
    fn ask(&self, intent: Intent, request: &Request) -> Result<Reply> {
        let access = self.reach(intent)?;
        let reply = access.run(request, &|_, _| true)?;
        access.close()?;
        Ok(reply)
    }

    fn all(&self) -> Result<SnapshotsReply> {
        match self.ask(Intent::Read, &Request::Snapshots {})? {
            Reply::Snapshots(all) => Ok(all),
            _ => Err(unexpected()),
        }
    }
}

fn create(room: &InRoom, name: Option<String>, global: &Global) -> Result<()> {
    if let Some(name) = &name {
        snapshots::check_name(name)?;
    }
    let access = room.reach(Intent::Change)?;
    access.fetch_written();
    let reply = access.run(&Request::CreateSnapshot { name }, &|_, _| true)?;
    access.close()?;
    let Reply::Snapshot(snapshot) = reply else {
        return Err(unexpected());
    };
    if global.json {
        output::json_line(&as_json(&snapshot));
    } else {
        output::line(shown(&snapshot));
    }
    Ok(())
}

fn list(room: &InRoom, global: &Global) -> Result<()> {
    let all = room.all()?;
    if global.json {
        for snapshot in &all.snapshots {
            output::json_line(&as_json(snapshot));
        }
        return Ok(());
    }
    if all.snapshots.is_empty() {
        output::note(global, "No snapshots.");
        return Ok(());
    }
    let names = all.snapshots.iter().map(|snapshot| width(&shown(snapshot)));
    let wide = names.max().unwrap_or_default().max(4);
    output::line(format!(
        "{:<wide$}  {:<19}  {:<9}  {:>12}",
        "name", "created (UTC)", "kind", "alone holds"
    ));
    for snapshot in &all.snapshots {
        let name = shown(snapshot);
        let fill = wide - width(&name);
        output::line(format!(
            "{name}{:fill$}  {:<19}  {:<9}  {:>12}",
            "",
            output::moment(snapshot.created.0),
            kind(snapshot),
            size(snapshot.exclusive)
        ));
    }
    output::note(
        global,
        format!(
            "Held by {} in all: {}; what several hold together is in no line.",
            output::count(all.snapshots.len() as u64, "snapshot"),
            size(all.held)
        ),
    );
    Ok(())
}

fn shown(snapshot: &SnapshotReply) -> String {
    output::shown(snapshot.name.as_ref())
}

fn width(name: &str) -> usize {
    name.chars().count()
}

fn kind(snapshot: &SnapshotReply) -> &'static str {
    match snapshot.automatic {
        true => "automatic",
        false => "by hand",
    }
}

fn as_json(snapshot: &SnapshotReply) -> Value {
    let (secs, nanos) = snapshot.created;
    json!({
        "name": snapshot.name,
        "number": snapshot.number,
        "created": {"secs": secs, "nanos": nanos},
        "automatic": snapshot.automatic,
        "exclusive": snapshot.exclusive,
    })
}

fn show(room: &InRoom, name: &str, global: &Global) -> Result<()> {
    let all = room.all()?;
    let found = all.snapshots.iter().find(|other| other.name == name);
    let snapshot = found.ok_or_else(|| snapshots::missing(&room.room, name))?;
    if global.json {
        output::json_line(&as_json(snapshot));
        return Ok(());
    }
    output::line(format!("name         {}", shown(snapshot)));
    output::line(format!("number       {}", snapshot.number));
    let (secs, nanos) = snapshot.created;
    output::line(format!(
        "created      {}.{nanos:09} UTC",
        output::moment(secs)
    ));
    output::line(format!("kind         {}", kind(snapshot)));
    output::line(format!("alone holds  {}", size(snapshot.exclusive)));
    Ok(())
}

fn delete(room: &InRoom, names: Vec<String>, global: &Global) -> Result<()> {
    let access = room.reach(Intent::Change)?;
    let mut worst = None;
    let mut failed = 0;
    for name in names {
        if let Err(error) = access.run(&Request::DeleteSnapshot { name }, &|_, _| true) {
            output::report(&error, global);
            worst = worst.or(Some(error.exit()));
            failed += 1;
        }
    }
    access.free_deleted()?;
    access.close()?;
    match worst {
        None => Ok(()),
        Some(exit) if failed == 1 => Err(Error::Several { exit, count: 1 }),
        Some(exit) => Err(Error::said(
            exit,
            format!("{} failed; see above", output::count(failed, "snapshot")),
        )),
    }
}

fn prune(room: &InRoom, dry_run: bool, global: &Global) -> Result<()> {
    let intent = match dry_run {
        true => Intent::Read,
        false => Intent::Change,
    };
    let access = room.reach(intent)?;
    let Reply::Pruned(gone) = access.run(&Request::PruneSnapshots { dry_run }, &|_, _| true)?
    else {
        return Err(unexpected());
    };
    if !dry_run {
        access.free_deleted()?;
    }
    access.close()?;
    for snapshot in &gone {
        if global.json {
            output::json_line(&as_json(snapshot));
        } else {
            output::line(shown(snapshot));
        }
    }
    let what = output::count(gone.len() as u64, "snapshot");
    let done = match dry_run {
        true => "would be deleted",
        false => "deleted",
    };
    output::note(global, format!("{what} {done}."));
    Ok(())
}
