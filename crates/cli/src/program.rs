//! What the programs of this package share: the options of every command, credentials, output, logs, exit codes, and how
//! one program finds another.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use tracing::Subscriber;

pub use crate::args::Global;
pub use crate::commands::volume::image::CredentialArgs as VolumeCredentialArgs;
pub use crate::confinement::Confinement;
pub use crate::credentials::CredentialArgs;
pub use crate::error::{Error, Result, io_exit};
pub use crate::exit::Exit;
pub use crate::siblings::{PROGRAM_VARIABLE, find};
pub use crate::size::bytes;

/// Writing results, notes and failures.
pub mod output {
    pub use crate::output::{
        bytes, done, entry, json_entry, json_line, line, note, report, to_stderr,
    };
}

/// Manual pages, one for each command.
pub mod manual {
    pub use crate::commands::man::{page, write_pages};
}

/// The command line of `strongroom`.
pub fn command() -> clap::Command {
    crate::commands::Cli::command()
}

/// What is wrong with an encrypted volume, with its exit code.
pub fn volume_error(image: &std::path::Path, source: volume::VolumeError) -> Error {
    crate::commands::volume::image::said(image, source)
}

/// The log of a command in a terminal, on standard error.
pub fn log(global: &Global) -> impl Subscriber + Send + Sync + use<> {
    crate::logging::log(global, false)
}

/// Parses a command line. `Err`: how the program ends, after help or a refusal was printed.
pub fn parse<P: clap::Parser>(arguments: &[OsString]) -> std::result::Result<P, ExitCode> {
    P::try_parse_from(arguments).map_err(|refusal| refused(&refusal))
}

/// Reports how a command ended.
pub fn end(result: Result<()>, global: &Global) -> ExitCode {
    match result {
        // What could not be written was reported already.
        Ok(()) if crate::output::is_lost() => Exit::Failed.into(),
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            crate::output::report(&error, global);
            error.exit().into()
        }
    }
}

/// Prints what clap has to say; returns the exit code.
pub(crate) fn refused(refusal: &clap::Error) -> ExitCode {
    // Nothing can be reported where standard output or error is closed.
    let _ = refusal.print();
    if refusal.use_stderr() {
        Exit::Usage.into()
    } else {
        Exit::Ok.into()
    }
}
