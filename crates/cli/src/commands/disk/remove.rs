//! `strongroom disk remove`: takes an empty disk from a room.

use std::path::PathBuf;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::commands::metadata::admin::{self, Reply, Request};
use crate::error::Result;
use crate::output;

/// Take a network disk from a room: refused while data lies there, but from then on nothing new comes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// The disk's name
    name: String,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let name = args.name.clone();
    match admin::ask(&args.room, &args.open, Request::RemoveDisk { name })? {
        Reply::Done => {
            output::note(
                global,
                format!(
                    "{} is not a disk of {} any more.",
                    args.name,
                    args.room.display()
                ),
            );
            Ok(())
        }
        _ => Err(admin::unexpected()),
    }
}
