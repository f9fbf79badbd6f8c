//! What the programs of this package share: the options of every command, credentials, output, logs, exit codes, and how
//! one program finds another.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use tracing::Subscriber;

pub use crate::args::Global;
pub use crate::commands::volume::image::CredentialArgs as VolumeCredentialArgs;
pub use crate::credentials::CredentialArgs;
pub use crate::error::{Error, Result, io_exit};
pub use crate::exit::Exit;
pub use crate::size::bytes;

/// Writing results, notes and failures.
pub mod output {
    pub use crate::output::{bytes, json_line, line, note, report};
}

/// Manual pages, one for each command.
pub mod manual {
    pub use crate::commands::man::{page, write_pages};
}

/// Environment variable by which `strongroom` names itself to the programs that it starts.
pub const PROGRAM_VARIABLE: &str = "STRONGROOM_PROGRAM";

/// The command line of `strongroom`.
pub fn command() -> clap::Command {
    crate::args::Cli::command()
}

/// The path of a program of this package: in the directory of the running one, else in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let own = std::env::current_exe().ok();
    let beside = own.iter().filter_map(|own| own.parent()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(program))
        .find(|file| {
            let meta = file.metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// What is wrong with an encrypted volume, with its exit code.
pub fn volume_error(image: &std::path::Path, source: volume::VolumeError) -> Error {
    crate::commands::volume::image::said(image, source)
}

/// The log of a command in a terminal, on standard error.
pub fn log(global: &Global) -> impl Subscriber + Send + Sync + use<> {
    crate::log(global, false)
}

/// Parses a command line. `Err`: how the program ends, after help or a refusal was printed.
pub fn parse<P: clap::Parser>(arguments: &[OsString]) -> std::result::Result<P, ExitCode> {
    P::try_parse_from(arguments).map_err(|refusal| crate::refused(&refusal))
}

/// Reports how a command ended.
pub fn end(result: Result<()>, global: &Global) -> ExitCode {
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            crate::output::report(&error, global);
            error.exit().into()
        }
    }
}
