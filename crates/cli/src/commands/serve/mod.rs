//! `strongroom serve`: contents of volumes, images and rooms for other programs, over protocols they speak.

pub(crate) mod nbd;
mod observed;
mod room_device;
pub(crate) mod target;

use crate::args::Global;
use crate::error::Result;

/// Serve volumes, images and files of rooms to other programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Nbd(Box<nbd::Args>),
}

impl Args {
    /// Settings of this process as a server.
    pub(crate) fn service(&self) -> &service::Common {
        match &self.command {
            Command::Nbd(args) => args.service(),
        }
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    match &args.command {
        Command::Nbd(args) => nbd::run(args, global),
    }
}
