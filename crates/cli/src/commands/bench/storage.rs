//! `strongroom bench storage`.

use super::Common;
use crate::args::Global;
use crate::error::{Error, Result};

/// Measure one store: a directory, file, block device, nbd:// address or room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure: DIRECTORY, FILE, DEVICE, nbd://HOST/NAME, ROOM, or KIND:DIRECTORY (room, mounted, gocryptfs, ...)
    #[arg(value_name = "STORE")]
    store: String,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let _ = (args, global);
    Err(Error::failed("bench storage: not there yet"))
}
