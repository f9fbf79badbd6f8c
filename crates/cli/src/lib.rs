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
mod commands;
pub mod control;
mod copy;
mod credentials;
mod error;
mod exit;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod mounting;
mod output;
mod place;
pub mod program;
mod progress;
mod runtime;
mod size;
mod socket;
mod tree;
mod walk;
mod work;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use exit::Exit;

/// Runs the command with these arguments, the program's own name first. Reports failures on standard error.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    seal::protect_process();
    if mounting::helper::is_helper(&arguments) {
        return mounting::helper::run(&arguments);
    }
    if arguments
        .get(1)
        .is_some_and(|word| word == commands::import::CHILD_COMMAND)
    {
        return commands::import::become_child(&arguments);
    }
    let command = service::settings::fill(
        args::command(),
        &arguments,
        commands::SERVERS,
        std::env::vars_os(),
    );
    let command = match command {
        Ok(command) => command,
        Err(refusal) => {
            eprintln!("strongroom: {refusal}");
            return Exit::Usage.into();
        }
    };
    if commands::bench::asks_for_help(&arguments) {
        let Err(error) = commands::bench::help(&arguments);
        eprintln!("strongroom: {error}");
        return error.exit().into();
    }
    let cli = match args::Cli::parse_with(command, &arguments) {
        Ok(cli) => cli,
        Err(refusal) => return refused(&refusal),
    };
    let global = cli.global;
    if let Some(common) = cli.command.server() {
        service::logs::start(common.log_format, level(&global, true));
    } else {
        let serving = matches!(cli.command, args::Command::ServeMount(_));
        init_tracing(&global, serving);
    }
    program::end(commands::run(cli.command, &global), &global)
}

/// Prints what clap has to say; returns the exit code.
fn refused(refusal: &clap::Error) -> ExitCode {
    // Nothing can be reported where standard output or error is closed.
    let _ = refusal.print();
    if refusal.use_stderr() {
        Exit::Usage.into()
    } else {
        Exit::Ok.into()
    }
}

/// The least level that is written.
fn level(global: &args::Global, serving: bool) -> &'static str {
    match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) if !serving => "warn",
        (false, 0 | 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    }
}

fn init_tracing(global: &args::Global, serving: bool) {
    // A second call (a test that runs the command in its own process) keeps the first subscriber.
    let _ = log(global, serving).try_init();
}

/// `serving`: for a log file, not for a terminal.
fn log(global: &args::Global, serving: bool) -> impl tracing::Subscriber + Send + Sync + use<> {
    let colour = !serving && std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(Log { serving })
        .with_ansi(colour)
        .with_target(serving)
        .finish()
        .with(service::logs::filter(level(global, serving)))
}

/// Whether the process that serves a mount has its log, and need not spare the user's terminal any more.
static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// From here on standard error is a log, which takes everything.
fn log_everything() {
    HAS_LOG.store(true, Ordering::Relaxed);
}

/// Standard error; while it is still the terminal of the mounting user, the serving process only writes warnings there.
struct Log {
    serving: bool,
}

impl<'w> tracing_subscriber::fmt::MakeWriter<'w> for Log {
    type Writer = Box<dyn std::io::Write>;

    fn make_writer(&'w self) -> Self::Writer {
        Box::new(std::io::stderr())
    }

    fn make_writer_for(&'w self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        if self.serving && !HAS_LOG.load(Ordering::Relaxed) && *meta.level() > tracing::Level::WARN
        {
            Box::new(std::io::sink())
        } else {
            self.make_writer()
        }
    }
}
