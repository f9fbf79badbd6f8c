//! `strongroom bench clean`: removes what a killed run left.

use crate::args::Global;
use crate::error::{Error, Result};

/// Remove what a killed benchmark left: mounts, then files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let _ = (args, global);
    Err(Error::failed("bench clean: not there yet"))
}
