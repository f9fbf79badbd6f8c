//! `strongroom disk`: making and serving network disks, and which disks a metadata server uses.

pub(crate) mod add;
mod in_bucket;
mod init;
mod key;
mod list;
mod observed;
mod remove;
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
    Key(key::Args),
    Add(add::Args),
    Remove(remove::Args),
    List(list::Args),
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
        Command::Init(args) => init::run(&args, global),
        Command::Serve(args) => serve::run(&args, global),
        Command::Key(args) => key::run(&args, global),
        Command::Add(args) => add::run(&args, global),
        Command::Remove(args) => remove::run(&args, global),
        Command::List(args) => list::run(&args, global),
    }
}
