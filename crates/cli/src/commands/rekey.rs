//! `strongroom rekey`: a new master key.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::bucket;
use crate::commands::metadata::admin::refused;
use crate::control::client::unexpected;
use crate::control::{RekeyReply, Reply, Request};
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::{must_be_room, room_argument};
use crate::progress::Bar;
use crate::work::{self, Progress};

/// Re-encrypt a room under a new master key; resumes a stopped run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The credential you give keeps its slot, and so do age and SSH recipients. Other passphrases and key \
files cannot be carried over, because the room does not know them: the command lists their slots and changes nothing, \
unless --drop-slots is given. Their keys can be added again with `strongroom key add`.\n\n\
A shared room is re-encrypted on its network disks: stop its metadata server first, and let all disks run."
)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// Go on although key slots are lost that cannot be carried over
    #[arg(long)]
    drop_slots: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    must_be_room(&args.room)?;
    let with = args
        .open
        .credential
        .read(&args.room.display().to_string())?;
    let reached = Access::reach_given(&args.room, &args.open, &with, Intent::Change);
    let bar = Bar::start("re-encrypting", global);
    let progress = |done, total| bar.report(done, total);
    let is_shared = matches!(
        &reached,
        Err(Error::Room {
            source: room::Error::OnNetworkDisks,
            ..
        })
    );
    let report = match reached {
        Err(_) if is_shared => on_disks(&args, &with, &progress),
        Err(e) => Err(e),
        Ok(access) => {
            let drop_slots = args.drop_slots;
            let reply = access.run(&Request::Rekey { with, drop_slots }, &progress);
            reply.and_then(|reply| match reply {
                Reply::Rekeyed(report) => access.close().map(|()| report),
                _ => Err(unexpected()),
            })
        }
    };
    bar.end();
    let report = report?;
    if global.json {
        output::json_line(&report);
    } else {
        for slot in &report.dropped_slots {
            output::line(format!(
                "key slot {} ({}) was dropped: add its key again with `strongroom key add`",
                slot.slot, slot.kind
            ));
        }
        for range in &report.unreadable {
            output::line(format!(
                "not re-encrypted, because it fails authentication: {}",
                output::shown(range.as_ref())
            ));
        }
        output::note(
            global,
            "Backups of the header made before are of no use now: make a new one with `strongroom header backup`.",
        );
    }
    if report.finished {
        Ok(())
    } else if report.unreadable.is_empty() {
        Err(crate::progress::interrupted())
    } else {
        let way = if is_shared {
            "delete or overwrite them through a mount"
        } else {
            "`strongroom check --read-data --repair` gives them up"
        };
        Err(Error::said(
            Exit::Damaged,
            format!(
                "{}: the old key is kept, because damaged ranges are sealed under it; {way}, and another \
                 `strongroom rekey` then ends the work",
                args.room.display()
            ),
        ))
    }
}

/// Rekeys a shared room that no server serves.
fn on_disks(args: &Args, with: &Given, progress: Progress<'_>) -> Result<RekeyReply> {
    let options = args.open.options(Intent::Change);
    let done = metadata_server::server::rekey(
        &args.room,
        &with.credential()?,
        !args.drop_slots,
        options,
        &*bucket::files_of(&args.room),
        progress,
    );
    let report = done.map_err(|e| refused(&args.room, e))?;
    Ok(work::rekey_reply(report))
}
