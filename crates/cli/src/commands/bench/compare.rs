//! `strongroom bench compare`.

use super::Common;
use crate::args::Global;
use crate::error::{Error, Result};

/// Measure two or more stores in turns, and how many times as fast each is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The stores; the first is what the others are compared with
    #[arg(value_name = "STORE", required = true, num_args = 2..)]
    stores: Vec<String>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let _ = (args, global);
    Err(Error::failed("bench compare: not there yet"))
}
