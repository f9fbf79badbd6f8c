//! What commands that make their own stores begin with.

use std::path::Path;
use std::sync::Arc;

use bench::progress::{Progress, Quiet, Terminal};
use bench::run_file::{self, Run, WorkDir};

use strongroom_cli::program::{Error, Global, Result};

use super::failed;

/// The bar, unless nothing but the result was asked for.
pub(super) fn progress(global: &Global) -> Box<dyn Progress> {
    if global.quiet || global.json {
        Box::new(Quiet)
    } else {
        Box::new(Terminal::new())
    }
}

/// The seed that was given, or a new one.
pub(super) fn seed(given: Option<u64>) -> u64 {
    given.unwrap_or_else(bench::work::new_seed)
}

/// A directory below `under` that a run file names, and that is gone when it is dropped.
pub(super) fn work_directory(under: &Path) -> Result<WorkDir> {
    run()?.directory(under).map_err(failed)
}

/// Begins a run: what it makes is written down first.
pub(super) fn run() -> Result<Arc<Run>> {
    let state = run_file::default_dir().ok_or_else(|| {
        Error::failed("there is no home directory for the file that says what has to be removed: set XDG_STATE_HOME")
    })?;
    Run::begin(&state).map_err(failed)
}
