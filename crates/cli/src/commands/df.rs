//! `strongroom df`: a room's space.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::Result;
use crate::output::{self, size};
use crate::place::room_argument;

/// Show a room's space and that of the disk it is stored on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(required = true, value_name = "ROOM", value_parser = room_argument())]
    rooms: Vec<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    if !global.json {
        output::line(format!(
            "{:<24} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
            "room", "data", "snapshots", "stored", "disk", "available", "files"
        ));
    }
    for room in &args.rooms {
        let access = Access::reach(room, &args.open, Intent::Read)?;
        let Reply::Space(space) = access.run(&Request::Space {}, &|_, _| true)? else {
            return Err(unexpected());
        };
        access.close()?;
        if global.json {
            // Our own report has text for keys.
            let mut value = serde_json::to_value(space).expect("our own reports are JSON");
            value["room"] = room.to_string_lossy().into();
            output::json_line(&value);
        } else {
            output::line(format!(
                "{:<24} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
                room.display().to_string(),
                size(space.live),
                size(space.snapshots),
                size(space.stored),
                size(space.total),
                size(space.available),
                space.inodes
            ));
        }
    }
    Ok(())
}
