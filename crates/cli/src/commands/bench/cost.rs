//! `strongroom bench cost`.

use super::Common;
use crate::args::Global;
use crate::error::{Error, Result};

/// Make a plain directory and a mounted room beside each other, and say what the room costs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where both are made [default: here]
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: std::path::PathBuf,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let _ = (args, global);
    Err(Error::failed("bench cost: not there yet"))
}
