//! `strongroom backup`: a consistent copy of a room, mounted or not.

use std::path::{Path, PathBuf};

use super::metadata::admin;
use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{BackupReply, Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::path_to_hex;
use crate::output;
use crate::place::{must_be_room, room_argument};
use crate::progress::Bar;
use crate::work;

/// Copy a room, mounted or not, to a directory; a later copy to the same place takes only what is new
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Restore it with: strongroom restore TARGET ROOM. A backup is itself a room: `ls`, `cp` and `mount -r` read it."
)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// The copy's directory: new, empty, or an earlier copy
    target: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let target = std::path::absolute(&args.target).map_err(|e| Error::host(&args.target, e))?;
    let report = match served(&args.room, &target, global)? {
        Some(report) => report,
        None => {
            let access = Access::reach(&args.room, &args.open, Intent::Change)?;
            access.fetch_written();
            let report = copy_room(&access, &target, "copying", global)?;
            access.close()?;
            report
        }
    };
    if global.json {
        output::json_line(&report);
    } else {
        for problem in &report.problems {
            output::line(format!("missing   {problem}"));
        }
        output::note(
            global,
            format!(
                "Copied generation {} to {}: {} in {}; {} there already.",
                report.generation,
                args.target.display(),
                output::size(report.bytes_copied),
                output::count(report.segments_copied, "segment"),
                match report.segments_kept {
                    1 => "1 segment was".to_owned(),
                    kept => format!("{kept} segments were"),
                }
            ),
        );
    }
    if report.problems.is_empty() {
        return Ok(());
    }
    Err(Error::said_at(
        Exit::Damaged,
        &args.room,
        "the room lacks what is listed above, and so does the backup; `strongroom check` shows which files",
    ))
}

/// Has the metadata server of a shared room copy it, if one runs.
fn served(room: &Path, target: &Path, global: &Global) -> Result<Option<BackupReply>> {
    must_be_room(room)?;
    let bar = Bar::start("copying", global);
    let request = admin::Request::Backup {
        target: path_to_hex(target),
    };
    let reply = admin::ask_with_progress(
        room,
        &request,
        &|done, total| bar.report(done, total),
        &mut || work::backup_directory(room, target),
    );
    bar.end();
    match reply? {
        None => Ok(None),
        Some(admin::Reply::Backup(report)) => Ok(Some(report)),
        Some(_) => Err(admin::unexpected()),
    }
}

/// Copies the room to a directory that is empty or holds an earlier copy.
pub(super) fn copy_room(
    access: &Access,
    target: &Path,
    what: &'static str,
    global: &Global,
) -> Result<BackupReply> {
    let bar = Bar::start(what, global);
    let request = Request::Backup {
        target: path_to_hex(target),
    };
    let reply = access.run(&request, &|done, total| bar.report(done, total));
    bar.end();
    match reply? {
        Reply::Backup(report) => Ok(report),
        _ => Err(unexpected()),
    }
}
