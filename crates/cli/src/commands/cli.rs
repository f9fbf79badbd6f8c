//! The command line as clap sees it: the list of commands. Each command's own arguments are with it.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::*;

/// Encrypted rooms: POSIX file systems kept in ordinary directories.
#[derive(Debug, Parser)]
#[command(
    name = "strongroom",
    version,
    about = "Encrypted rooms: POSIX file systems kept in ordinary directories",
    propagate_version = true,
    arg_required_else_help = true,
    override_usage = "strongroom <COMMAND> [OPTIONS]",
    after_help = "First steps:\n  strongroom create work.strongroom\n  mkdir -p ~/work && strongroom mount work.strongroom ~/work\n  strongroom umount ~/work\n\nPaths in a room are written ROOM:/path: strongroom ls work.strongroom:/papers\n\nA room in an S3 bucket is written s3://BUCKET/PREFIX. Every command then has\nthese options, and all but --log are mount options too:\n  --cache DIR              where this machine keeps its cache of the room\n  --cache-size SIZE        the most that the cache keeps (10GiB)\n  --log PLACE              commits are in postgres://HOST/DB or etcd://HOST:PORT\n  --store-timeout SECONDS  how long a request is tried before it fails (60)\n  --take-over              write although another machine has the room open"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line, with its commands in groups.
pub(crate) fn command() -> clap::Command {
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        crate::groups::help()
    );
    Cli::command().help_template(template)
}

impl Cli {
    /// The same as `try_parse_from`, of a command whose defaults were changed.
    pub(crate) fn parse_with(
        command: clap::Command,
        arguments: &[OsString],
    ) -> clap::error::Result<Cli> {
        let mut command = command;
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Args),
    Mount(mount::Args),
    #[command(visible_alias = "unmount")]
    Umount(umount::Args),
    Lock(lock::Args),
    Info(info::Args),
    Ls(ls::Args),
    Tree(tree::Args),
    Cat(cat::Args),
    Cp(cp::Args),
    Mv(mv::Args),
    Rm(rm::Args),
    Mkdir(mkdir::Args),
    Ln(ln::Args),
    Stat(stat::Args),
    Df(df::Args),
    Du(du::Args),
    Key(key::Args),
    Header(header::Args),
    Check(check::Args),
    Compact(compact::Args),
    Backup(backup::Args),
    Snapshot(snapshot::Args),
    Undelete(undelete::Args),
    Restore(restore::Args),
    Send(replica::send::Args),
    Receive(replica::receive::Args),
    Replicate(replica::replicate::Args),
    Import(import::Args),
    Export(export::Args),
    Rekey(rekey::Args),
    Sync(sync::Args),
    Disk(disk::Args),
    Metadata(metadata::Args),
    User(user::Args),
    Audit(audit::Args),
    Volume(volume::Args),
    Serve(serve::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Man(man::Args),
    /// The process that serves a mount; started by `mount`, never typed.
    #[command(hide = true)]
    ServeMount(serve_mount::Args),
}

impl Command {
    /// Settings of this process as a server, if it is one.
    pub(crate) fn server(&self) -> Option<&service::Common> {
        match self {
            Command::Disk(args) => args.server(),
            Command::Metadata(args) => args.server(),
            Command::Serve(args) => Some(args.service()),
            _ => None,
        }
    }
}
