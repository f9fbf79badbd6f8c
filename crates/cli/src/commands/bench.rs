//! `strongroom bench`: starts the separate program `strongroom-bench`, as git and cargo start theirs.
//!
//! 1. The program is looked for beside this one first, then in PATH.
//! 2. It replaces this process: its exit code, its signals and its terminal are the caller's.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::args::Global;
use crate::error::{Error, Result};
use crate::siblings::{PROGRAM_VARIABLE, find};

/// The program's name.
const PROGRAM: &str = "strongroom-bench";

/// Measure what encryption costs here, and mark unreliable measurements as INVALID
///
/// Runs the program strongroom-bench with the arguments that follow.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// A measurement and its options; `--help` lists them
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.extend(global.json.then(|| "--json".into()));
    arguments.extend(global.quiet.then(|| "--quiet".into()));
    arguments.extend((0..global.verbose).map(|_| "--verbose".into()));
    arguments.extend(args.arguments);
    match start(arguments)? {}
}

/// `strongroom help bench ...`: the same as `strongroom bench --help`.
pub(crate) fn asks_for_help(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, help, bench, ..] if help == "help" && bench == "bench")
}

/// Shows the help of `strongroom-bench` for the words behind `strongroom help bench`.
pub(crate) fn help(arguments: &[OsString]) -> Result<Infallible> {
    start(
        [OsString::from("help")]
            .into_iter()
            .chain(arguments.iter().skip(3).cloned()),
    )
}

/// Whether `strongroom-bench` is installed.
pub(crate) fn is_installed() -> bool {
    find(PROGRAM).is_some()
}

/// Command that runs `strongroom-bench`; `None` if it is not installed.
pub(crate) fn command() -> Option<Command> {
    let mut command = Command::new(find(PROGRAM)?);
    if let Ok(own) = std::env::current_exe() {
        command.env(PROGRAM_VARIABLE, own);
    }
    Some(command)
}

/// Replaces this process by `strongroom-bench`; returns only if that fails.
pub(crate) fn start<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Infallible> {
    let mut command = command().ok_or_else(|| {
        Error::failed(format!(
            "{PROGRAM} is not installed: it is neither in the directory of strongroom nor in PATH; install the package \
             {PROGRAM}, or build it with `make build`"
        ))
    })?;
    let error = command.args(arguments).exec();
    let program = command.get_program().display();
    Err(Error::failed(format!("{program}: {error}")))
}
