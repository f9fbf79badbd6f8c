//! `strongroom compact`: gives space of deleted data back.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::Result;
use crate::output;
use crate::place::room_argument;
use crate::progress::Bar;

/// Rewrite thinly filled segments, so that deleted data's space goes back to the disk
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// Rewrite segments with less live data than this, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
    thinner_than: u8,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let access = Access::reach(&args.room, &args.open, Intent::Change)?;
    let bar = Bar::start("compacting", global);
    let reply = access.run(
        &Request::Compact {
            percent: args.thinner_than,
        },
        &|done, total| bar.report(done, total),
    );
    bar.end();
    let Reply::Compacted(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    if global.json {
        output::json_line(&report);
    } else {
        for range in &report.unreadable {
            output::line(format!(
                "left where it is, because it fails authentication: {}",
                output::shown(range.as_ref())
            ));
        }
        output::note(
            global,
            format!(
                "{} freed; {} rewritten, {} moved.",
                output::size(report.bytes_given_back),
                output::count(report.segments_rewritten, "segment"),
                output::size(report.bytes_moved)
            ),
        );
    }
    if report.stopped {
        Err(crate::progress::interrupted())
    } else {
        Ok(())
    }
}
