//! `strongroom serve-mount`: the process behind a mount in the background. `mount` starts it; nobody types it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::args::Global;
use crate::control::{Answer, REQUEST_LINE_MAX, Reply, encode_line};
use crate::error::{Error, Result};
use crate::mounting::launch::Plan;
use crate::mounting::serve;

/// The process behind a mount; `strongroom mount` starts it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For the list of processes; what counts comes through standard input
    _room: PathBuf,
    /// The same
    _mountpoint: PathBuf,
}

pub(crate) fn run(_args: Args, _global: &Global) -> Result<()> {
    let plan = read_plan()?;
    let mut start = InBackground {
        plan: &plan,
        pipe: None,
        log: None,
        reported: false,
    };
    let served = serve::serve(&plan, &mut start);
    match served {
        Err(error) if !start.reported => {
            start.report(&Answer::from(&error));
            Ok(())
        }
        other => other,
    }
}

/// Reporting to the starting process how it went, and leaving its terminal.
struct InBackground<'p> {
    plan: &'p Plan,
    /// The pipe that was our standard output.
    pipe: Option<OwnedFd>,
    /// Opened before the process can no longer reach it.
    log: Option<File>,
    reported: bool,
}

impl InBackground<'_> {
    fn report(&mut self, answer: &Answer) {
        self.reported = true;
        let line = encode_line(answer);
        // If the parent process is gone, the work is done all the same.
        let _ = match self.pipe.take() {
            Some(pipe) => rustix::io::write(&pipe, &line),
            None => rustix::io::write(std::io::stdout(), &line),
        };
    }
}

impl serve::Start for InBackground<'_> {
    fn begun(&mut self) -> Result<()> {
        self.log = Some(serve::log_of(self.plan)?);
        Ok(())
    }

    fn opened(&mut self) -> Result<()> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3);
        self.pipe = Some(pipe.map_err(|e| Error::failed(format!("standard output: {e}")))?);
        if let Some(log) = self.log.take() {
            serve::detach(&log)?;
        }
        crate::logging::log_everything();
        Ok(())
    }

    fn mounted(&mut self) {
        self.report(&Answer::Done(Reply::Nothing));
    }

    fn has_terminal(&self) -> bool {
        false
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
