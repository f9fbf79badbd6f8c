//! `strongroom serve`: the process behind a mount in the background. `mount` starts it; nobody types it.

use std::io::Read;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::args::Global;
use crate::control::{Answer, REQUEST_LINE_MAX, Reply, encode_line};
use crate::error::{Error, Result};
use crate::mounting::launch::Plan;
use crate::mounting::serve;
use crate::output;

/// The process behind a mount; `strongroom mount` starts it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For whoever looks at the list of processes; what counts comes through standard input
    _room: PathBuf,
    /// The same
    _mountpoint: PathBuf,
}

pub(crate) fn run(_args: Args, _global: &Global) -> Result<()> {
    let plan = read_plan()?;
    let mut told = false;
    let served = serve::serve(&plan, &mut || {
        // What is needed for the log is done first: once the answer is out, the terminal belongs to somebody else.
        let answer = encode_line(&Answer::Done(Reply::Nothing));
        let pipe = rustix::io::dup(std::io::stdout())
            .map_err(|e| Error::failed(format!("standard output: {e}")))?;
        serve::detach(&plan)?;
        crate::log_everything();
        told = true;
        // If whoever started us is gone, the room is mounted all the same.
        let _ = rustix::io::write(&pipe, &answer);
        Ok(())
    });
    match served {
        Err(error) if !told => {
            output::bytes(&encode_line(&Answer::from(&error)));
            Ok(())
        }
        other => other,
    }
}

fn read_plan() -> Result<Plan> {
    let mut line = Zeroizing::new(Vec::with_capacity(REQUEST_LINE_MAX));
    let read = std::io::stdin()
        .lock()
        .take(REQUEST_LINE_MAX as u64)
        .read_to_end(&mut line);
    read.map_err(|e| Error::failed(format!("standard input: {e}")))?;
    serde_json::from_slice(&line)
        .map_err(|_| Error::usage("this command is started by `strongroom mount`; use that one"))
}
