//! One module a command: its arguments, and a `run` that does it.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod check;
mod cli;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod df;
pub(crate) mod disk;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod header;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod ln;
pub(crate) mod lock;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod metadata;
pub(crate) mod mkdir;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod rekey;
pub(crate) mod replica;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod serve;
pub(crate) mod serve_mount;
pub(crate) mod snapshot;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod tree;
pub(crate) mod umount;
pub(crate) mod undelete;
pub(crate) mod user;
pub(crate) mod volume;

use crate::args::Global;
use crate::error::Result;

pub(crate) use cli::{Cli, Command, command};

/// The commands that are servers, whose options may also be in a file and in the environment.
pub(crate) const SERVERS: &[service::ServerCommand] = &[
    service::ServerCommand {
        path: &["disk", "serve"],
        word: "disk",
    },
    service::ServerCommand {
        path: &["metadata", "serve"],
        word: "metadata",
    },
    service::ServerCommand {
        path: &["serve", "nbd"],
        word: "nbd",
    },
];

/// Does the command.
pub(crate) fn run(command: Command, global: &Global) -> Result<()> {
    match command {
        Command::Create(args) => create::run(args, global),
        Command::Mount(args) => mount::run(args, global),
        Command::Umount(args) => umount::run(args, global),
        Command::Lock(args) => lock::run(args, global),
        Command::Info(args) => info::run(args, global),
        Command::Ls(args) => ls::run(args, global),
        Command::Tree(args) => tree::run(args, global),
        Command::Cat(args) => cat::run(args, global),
        Command::Cp(args) => cp::run(args, global),
        Command::Mv(args) => mv::run(args, global),
        Command::Rm(args) => rm::run(args, global),
        Command::Mkdir(args) => mkdir::run(args, global),
        Command::Ln(args) => ln::run(args, global),
        Command::Stat(args) => stat::run(args, global),
        Command::Df(args) => df::run(args, global),
        Command::Du(args) => du::run(args, global),
        Command::Key(args) => key::run(args, global),
        Command::Header(args) => header::run(args, global),
        Command::Check(args) => check::run(args, global),
        Command::Compact(args) => compact::run(args, global),
        Command::Backup(args) => backup::run(args, global),
        Command::Snapshot(args) => snapshot::run(args, global),
        Command::Undelete(args) => undelete::run(args, global),
        Command::Restore(args) => restore::run(args, global),
        Command::Send(args) => replica::send::run(args, global),
        Command::Receive(args) => replica::receive::run(args, global),
        Command::Replicate(args) => replica::replicate::run(args, global),
        Command::Import(args) => import::run(args, global),
        Command::Export(args) => export::run(args, global),
        Command::Rekey(args) => rekey::run(args, global),
        Command::Sync(args) => sync::run(args, global),
        Command::Disk(args) => disk::run(args, global),
        Command::Metadata(args) => metadata::run(args, global),
        Command::User(args) => user::run(args, global),
        Command::Audit(args) => audit::run(args, global),
        Command::Volume(args) => volume::run(args, global),
        Command::Bench(args) => bench::run(args, global),
        Command::Completions(args) => completions::run(args, global),
        Command::Man(args) => man::run(args, global),
        Command::Serve(args) => serve::run(&args, global),
        Command::ServeMount(args) => serve_mount::run(args, global),
    }
}
