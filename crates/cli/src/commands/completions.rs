//! `strongroom completions`: what a shell needs to complete our commands.

use clap_complete::Shell;

use super::bench;
use crate::args::Global;
use crate::error::Result;
use crate::output;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For bash: strongroom completions bash > ~/.local/share/bash-completion/completions/strongroom"
)]
pub(crate) struct Args {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

pub(crate) fn run(args: Args, _global: &Global) -> Result<()> {
    // The benchmark knows its own options and ours: its script completes both.
    if bench::is_installed() {
        match bench::start(["completions", &args.shell.to_string()])? {}
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "strongroom", &mut script);
    output::bytes(&script);
    Ok(())
}
