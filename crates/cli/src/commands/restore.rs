//! `strongroom restore`: a room from its backup.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::backup::copy_room;
use super::check;
use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{self, quoted};
use crate::place::{INCOMPLETE, is_room, must_be_room, room_argument};
use crate::progress::Bar;
use crate::proxy::room_name;

/// Restore a room from a backup: copies it to a new directory, then reads and verifies every file
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The backup is only read. The same command completes a restore that was stopped while it copied.\n\nExample: strongroom restore /media/usb/work work.strongroom"
)]
pub(crate) struct Args {
    /// The backup's directory, as `strongroom backup` wrote it
    #[arg(value_parser = room_argument())]
    backup: PathBuf,
    /// The room's directory: new, empty, or of a restore that was stopped
    room: PathBuf,
    /// Do not read and verify the files afterwards
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    must_be_room(&args.backup)?;
    must_be_free(&args.room)?;
    let target = std::path::absolute(&args.room).map_err(|e| Error::host(&args.room, e))?;
    let (access, given) = Access::reach_with_key(&args.backup, &args.open, Intent::Read)?;
    let copied = copy_room(&access, &target, "restoring", global);
    let copied = copied.map_err(|error| match error.exit() {
        Exit::Interrupted => Error::said_at(
            Exit::Interrupted,
            &args.room,
            "stopped; the same command completes the restore",
        ),
        _ => error,
    })?;
    access.close()?;
    room::detach_backup(&target).map_err(|e| Error::room(&args.room, e))?;
    // Opened once as what it is from now on: this machine's memory of the place goes with it.
    let options = room::OpenOptions {
        accept_rollback: true,
        ..args.open.options(Intent::Change)
    };
    let restored = Access::open(&args.room, &given, options)?;
    let report = if args.no_verify {
        None
    } else {
        Some(verify(&restored, global)?)
    };
    restored.close()?;
    let whole = copied.problems.is_empty()
        && report
            .as_ref()
            .is_none_or(|report| report.findings.is_empty() && report.lost.is_empty());
    if global.json {
        output::json_line(&json!({
            "room": args.room.to_string_lossy(),
            "generation": copied.generation,
            "bytes_copied": copied.bytes_copied,
            "problems": copied.problems,
            "verified": report,
        }));
    } else {
        for problem in &copied.problems {
            output::line(format!("missing   {problem}"));
        }
        output::note(
            global,
            format!(
                "Restored {} from {}: {} copied.",
                args.room.display(),
                room_name(&args.backup).display(),
                output::size(copied.bytes_copied)
            ),
        );
        if let Some(report) = &report {
            check::people(report, true, global);
        }
    }
    if report.is_some_and(|report| report.stopped) {
        return Err(crate::progress::interrupted());
    }
    if whole {
        return Ok(());
    }
    Err(Error::said_at(
        Exit::Damaged,
        &args.room,
        "restored, but the backup is damaged: what is listed above is lost; the rest can be used",
    ))
}

/// Reads every file of the restored room.
fn verify(restored: &Access, global: &Global) -> Result<crate::control::CheckReply> {
    let bar = Bar::start("verifying", global);
    let request = Request::Check {
        read_data: true,
        repair: false,
    };
    let reply = restored.run(&request, &|done, total| bar.report(done, total));
    bar.end();
    match reply? {
        Reply::Check(report) => Ok(report),
        _ => Err(crate::control::client::unexpected()),
    }
}

/// Refuses to write over anything, before a passphrase is asked for.
fn must_be_free(room: &Path) -> Result<()> {
    let name = room.display();
    let refuse = |words: String| Err(Error::failed(format!("{name}: {words}")));
    if room.join(INCOMPLETE).exists() {
        return Ok(());
    }
    if is_room(room) {
        return refuse(format!(
            "there is a room here already, which is not overwritten; restore to a new directory, or move this one away first: mv {} {}",
            quoted(room),
            quoted(&room.with_extension("old"))
        ));
    }
    match std::fs::read_dir(room) {
        Ok(mut entries) => match entries.next() {
            Some(_) => refuse("exists and is not empty; choose a new directory".into()),
            None => Ok(()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => match room.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => refuse(format!(
                "{} does not exist; make it first with: mkdir -p {}",
                parent.display(),
                quoted(parent)
            )),
            _ => Ok(()),
        },
        Err(e) => Err(Error::host(room, e)),
    }
}
