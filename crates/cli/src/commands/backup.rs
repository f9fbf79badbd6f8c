//! `strongroom backup`: a consistent copy of a room, mounted or not.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::output;
use crate::progress::Bar;
use crate::work::path_to_hex;

/// Copy a room, mounted or not, to a directory; a later copy to the same place takes only what is new
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// The copy's directory: new, empty, or an earlier copy
    target: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let target = std::path::absolute(&args.target).map_err(|e| Error::host(&args.target, e))?;
    let access = Access::reach(&args.room, &args.open, Intent::Change)?;
    access.fetch_written();
    let bar = Bar::start("copying", global);
    let reply = access.run(
        &Request::Backup {
            target: path_to_hex(&target),
        },
        &|done, total| bar.tell(done, total),
    );
    bar.end();
    let Reply::Backup(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    if global.json {
        output::json_line(&report);
    } else {
        output::note(
            global,
            format!(
                "Copied generation {} to {}: {} in {} segments; {} segments were there already.",
                report.generation,
                args.target.display(),
                output::size(report.bytes_copied),
                report.segments_copied,
                report.segments_kept
            ),
        );
    }
    Ok(())
}
