//! `strongroom bench dd`.

use super::Common;
use crate::args::Global;
use crate::error::{Error, Result};

/// Read a raw device or file and its decrypted twin as dd does, and compare
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The encrypted device or file
    raw: std::path::PathBuf,
    /// The same, decrypted: a device or file
    decrypted: std::path::PathBuf,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let _ = (args, global);
    Err(Error::failed("bench dd: not there yet"))
}
