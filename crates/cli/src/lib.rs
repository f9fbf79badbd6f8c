//! The `strongroom` command: the composition root, where arguments, terminals, sockets and signals meet the library.
//!
//! 1. A secret comes from a prompt, a file or standard input, never from an argument or the environment, is wiped after
//!    use, and is handed to another process only through a pipe or the control socket.
//! 2. What works on an unmounted room works on a mounted one: through its control socket, or through the mounted tree.
//!    One function ([`work`]) carries a request out for both, one trait ([`tree`]) names both kinds of tree.
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
mod progress;
mod socket;
mod tree;
mod walk;
mod work;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

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
    let cli = match args::Cli::parse_with(command, &arguments) {
        Ok(cli) => cli,
        Err(refusal) => {
            // A closed standard output or error leaves nobody to tell.
            let _ = refusal.print();
            return if refusal.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Ok.into()
            };
        }
    };
    let global = cli.global;
    let listens = matches!(&cli.command, args::Command::Bench(args) if args.listens());
    if let Some(common) = cli.command.server() {
        service::logs::start(common.log_format, level(&global, true));
    } else {
        let serving = matches!(cli.command, args::Command::ServeMount(_));
        init_tracing(&global, serving, listens);
    }
    match commands::run(cli.command, &global) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            output::report(&error, &global);
            error.exit().into()
        }
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

/// `serving`: for a log that somebody reads later, not for a terminal. `listens`: where the time of this process goes is added up.
fn init_tracing(global: &args::Global, serving: bool, listens: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("STRONGROOM_LOG")
        .unwrap_or_else(|_| EnvFilter::new(level(global, serving)));
    let colour = !serving && std::io::stderr().is_terminal();
    // A second call (a test that runs the command in its own process) keeps the first subscriber.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Log { serving })
        .with_ansi(colour)
        .with_target(serving);
    if listens {
        let _ = bench::spans::Spans::listen(log.finish());
    } else {
        let _ = log.try_init();
    }
}

/// Whether the process that serves a mount has its log, and need not spare the user's terminal any more.
static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// From here on standard error is a log, which takes everything.
fn log_everything() {
    HAS_LOG.store(true, Ordering::Relaxed);
}

/// Standard error; while it is still the terminal of whoever mounts, the serving process only writes warnings there.
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
