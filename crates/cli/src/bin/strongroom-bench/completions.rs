//! Completions of `strongroom` with its benchmark's commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use strongroom_cli::program::{Result, command, output};

use super::Cli;

/// Which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let bench = Cli::command().name("bench");
    let mut whole = command().mut_subcommand("bench", |_| bench);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut whole, "strongroom", &mut script);
    output::bytes(&script);
    Ok(())
}
