//! `strongroom volume`: encrypted disk images, block devices and sticks of other systems, without root and without the kernel.

mod attach;
mod data;
mod dump;
mod format;
mod header;
pub(crate) mod image;
mod kdf;
mod key;
mod reencrypt;
mod settings;

use clap::Subcommand;

use crate::args::Global;
use crate::error::Result;

/// Make, open and change encrypted volumes (LUKS, Android, FileVault 2): disk images and block devices, without root
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Format(format::Args),
    Dump(dump::Args),
    Check(data::CheckArgs),
    Export(data::ExportArgs),
    Import(data::ImportArgs),
    Key(key::Args),
    Header(header::Args),
    Resize(settings::ResizeArgs),
    Convert(settings::ConvertArgs),
    Reencrypt(reencrypt::Args),
    Attach(Box<attach::Args>),
    Detach(attach::DetachArgs),
}

/// What a command keeps; `None`: it starts programs of the system, as root.
fn profile(command: &Command) -> Option<confine::Profile> {
    Some(match command {
        Command::Format(args) => args.profile(),
        Command::Dump(args) => args.profile(),
        Command::Check(args) => args.profile(),
        Command::Export(args) => args.profile(),
        Command::Import(args) => args.profile(),
        Command::Key(args) => args.profile(),
        Command::Header(args) => args.profile(),
        Command::Resize(args) => args.profile(),
        Command::Convert(args) => args.profile(),
        Command::Reencrypt(args) => args.profile(),
        Command::Attach(_) | Command::Detach(_) => return None,
    })
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    if let Some(profile) = profile(&args.command) {
        global.confinement.enter(&profile, "this command")?;
    }
    match args.command {
        Command::Format(args) => format::run(&args, global),
        Command::Dump(args) => dump::run(&args, global),
        Command::Check(args) => data::check(&args, global),
        Command::Export(args) => data::export(&args, global),
        Command::Import(args) => data::import(&args, global),
        Command::Key(args) => key::run(args, global),
        Command::Header(args) => header::run(args, global),
        Command::Resize(args) => settings::resize(&args, global),
        Command::Convert(args) => settings::convert(&args, global),
        Command::Reencrypt(args) => reencrypt::run(&args, global),
        Command::Attach(args) => attach::run(&args, global),
        Command::Detach(args) => attach::detach(&args),
    }
}
