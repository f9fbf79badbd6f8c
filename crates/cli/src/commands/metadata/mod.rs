//! `strongroom metadata`: the server of a room on network disks, and what is said to it from beside.

pub(crate) mod admin;
pub(crate) mod remote;
mod rotate;
mod serve;
mod status;
mod step_down;

use crate::args::Global;
use crate::error::Result;

/// Serve a room on network disks to its users, and look at the server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Status(status::Args),
    Rotate(rotate::Args),
    StepDown(step_down::Args),
}

impl Args {
    /// Settings of this process as a server, if it is one.
    pub(crate) fn server(&self) -> Option<&service::Common> {
        match &self.command {
            Command::Serve(args) => Some(args.service()),
            _ => None,
        }
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Serve(args) => serve::run(&args, global),
        Command::Status(args) => status::run(&args, global),
        Command::Rotate(args) => rotate::run(&args, global),
        Command::StepDown(args) => step_down::run(&args, global),
    }
}
