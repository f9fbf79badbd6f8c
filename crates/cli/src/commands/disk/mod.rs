//! `strongroom disk`: making and serving network disks, and which disks a metadata server uses.

mod init;
mod serve;

use crate::args::Global;
use crate::error::Result;

/// Make, serve, add and remove network disks
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Init(init::Args),
    Serve(Box<serve::Args>),
    // The metadata server's: add, remove, list.
}

impl Args {
    /// Whether this process is a server, whose log somebody reads later.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.command, Command::Serve(_))
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Init(args) => init::run(&args, global),
        Command::Serve(args) => serve::run(&args, global),
    }
}
