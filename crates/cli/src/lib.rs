//! The `strongroom` command: the composition root, where arguments, terminals, sockets and signals meet the library.
//!
//! To begin with, copy `examples/own_command.rs`.
//!
//! 1. A secret comes from a prompt, a file or standard input, never from an argument or the environment, is wiped after
//!    use, and is handed to another process only through a pipe or the control socket.
//! 2. What works on an unmounted room works on a mounted one: through its control socket, or through the mounted tree.
//!    One function (`work`) carries a request out for both, one trait (`tree`) names both kinds of tree.
//! 3. Every failure has a message that says what to do and an exit code from one list ([`Exit`]).
//!
//! It deliberately does not know formats, keys' derivations, or FUSE.

#![forbid(unsafe_code)]

mod access;
mod acls;
mod args;
mod ask;
mod blamed;
mod broker;
pub mod bucket;
mod commands;
mod confinement;
pub mod control;
mod copy;
mod credentials;
mod descriptors;
mod error;
mod exit;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod hex;
mod limit;
mod logging;
mod mounting;
mod mounts;
mod outlet;
mod output;
mod place;
mod prices;
pub mod program;
mod progress;
mod proxy;
mod reporting;
mod runtime;
mod sending;
mod siblings;
mod size;
mod snapshots;
mod socket;
mod stderr;
mod tree;
mod unmount;
mod walk;
mod wire;
mod words;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use error::Error;
pub use exit::Exit;

/// Whether failures are objects, of a command line that is not understood yet.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "--json")
}

/// Reports why nothing was begun.
fn refused(error: &Error, arguments: &[OsString]) -> ExitCode {
    let global = args::Global {
        json: asks_for_json(arguments),
        verbose: 0,
        quiet: false,
        confinement: confinement::Confinement::default(),
    };
    output::report(error, &global);
    error.exit().into()
}

/// Runs the command with these arguments, the program's own name first. Reports failures on standard error.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    seal::protect_process();
    // A limit on the size of files (`ulimit -f`) fails a write then. Where this cannot be set, it ends the process, and a mount with it.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    if let Err(error) = bucket::hand_over(&arguments) {
        return refused(&error, &arguments);
    }
    if mounting::helper::is_helper(&arguments) {
        return mounting::helper::run(&arguments);
    }
    if mounting::mounter::is_helper(&arguments) {
        return mounting::mounter::run();
    }
    if arguments
        .get(1)
        .is_some_and(|word| word == commands::import::CHILD_COMMAND)
    {
        return commands::import::become_child(&arguments);
    }
    let command = service::settings::fill(
        commands::command(),
        &arguments,
        commands::SERVERS,
        std::env::vars_os(),
    );
    let command = match command {
        Ok(command) => command,
        Err(refusal) => return refused(&Error::usage(refusal.to_string()), &arguments),
    };
    if commands::bench::asks_for_help(&arguments) {
        let Err(error) = commands::bench::help(&arguments);
        return refused(&error, &arguments);
    }
    let cli = match commands::Cli::parse_with(command, &arguments) {
        Ok(cli) => cli,
        Err(refusal) if refusal.use_stderr() && asks_for_json(&arguments) => {
            let words = refusal.to_string();
            let why = words.split("\n\n").next().unwrap_or(&words);
            return refused(&Error::usage(why.trim_start_matches("error: ")), &arguments);
        }
        Err(refusal) => return program::refused(&refusal),
    };
    let global = cli.global;
    if let Some(common) = cli.command.server() {
        service::raise_file_limit();
        service::logs::start(common.log_format, logging::level(&global, true));
    } else {
        let serving = matches!(cli.command, commands::Command::ServeMount(_));
        logging::init_tracing(&global, serving);
    }
    program::end(commands::run(cli.command, &global), &global)
}
