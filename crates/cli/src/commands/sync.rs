//! `strongroom sync`: makes everything written to a mounted room durable now.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::Request;
use crate::error::Result;

/// Make everything done to a mounted room so far durable
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, _global: &Global) -> Result<()> {
    let access = Access::reach(&args.room, &args.open, Intent::Change)?;
    access.fetch_written();
    access.run(&Request::Sync {}, &|_, _| true)?;
    access.close()
}
