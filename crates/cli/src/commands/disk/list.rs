//! `strongroom disk list`: the disks of a room.

use std::path::PathBuf;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::commands::metadata::admin::{self, Reply, Request};
use crate::error::Result;
use crate::output;

/// List the network disks of a room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let Reply::Disks(disks) = admin::ask(&args.room, &args.open, Request::Disks {})? else {
        return Err(admin::unexpected());
    };
    if global.json {
        output::json_line(&disks);
        return Ok(());
    }
    for disk in disks {
        let state = match disk.reachable {
            Some(true) => format!(
                "answers, {} of {} used",
                output::size(disk.used),
                output::size(disk.bytes)
            ),
            Some(false) => "does not answer".into(),
            None => "not asked: no metadata server runs".into(),
        };
        output::line(format!(
            "{}  {}  {}  {}  {state}{}",
            disk.name,
            disk.id,
            disk.address,
            disk.protection,
            disk.removal()
        ));
    }
    Ok(())
}
