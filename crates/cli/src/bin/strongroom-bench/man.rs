//! The benchmark's manual pages: strongroom-bench.1 and one for each measurement.

use std::path::PathBuf;

use clap::CommandFactory;

use strongroom_cli::program::{Result, manual};

use super::Cli;

/// Where the pages go.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    manual::write_pages(&command, "strongroom-bench", &args.directory)
}
