//! `strongroom rekey`: a new master key.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::room_argument;
use crate::progress::Bar;

/// Re-encrypt a room under a new master key; resumes a stopped run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The credential you give keeps its slot, and so do age and SSH recipients. Other passphrases and key \
files cannot be carried over, because the room does not know them: their slots are dropped and listed, to be added \
again with `strongroom key add`."
)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (access, with) = Access::reach_with_key(&args.room, &args.open, Intent::Change)?;
    let bar = Bar::start("re-encrypting", global);
    let reply = access.run(&Request::Rekey { with }, &|done, total| {
        bar.tell(done, total)
    });
    bar.end();
    let Reply::Rekeyed(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
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
                "not re-encrypted, because it fails authentication: {range}"
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
        Err(Error::said(
            Exit::Damaged,
            format!(
                "{}: the old key is kept, because damaged ranges are sealed under it; `strongroom check --read-data \
                 --repair` gives them up, and another `strongroom rekey` then ends the work",
                args.room.display()
            ),
        ))
    }
}
