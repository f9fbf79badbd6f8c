//! `strongroom send`: a snapshot of a room as a stream.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use room::{Keep, ResumeToken, SendRequest};
use serde_json::json;

use super::must_not_be_remote;
use crate::access::{Intent, OpenArgs};
use crate::args::Global;
use crate::blamed::BlamedWriter;
use crate::commands::snapshot::Reached;
use crate::confinement::directory;
use crate::error::{Error, Result};
use crate::limit::Limited;
use crate::output;
use crate::place::readable_path;
use crate::progress::Bar;

/// Write a snapshot of a room as a stream, which `receive` reads without the key
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  strongroom send work.strongroom@monday | ssh backup strongroom receive work\n  strongroom send work.strongroom@tuesday --since monday --to tuesday.stream"
)]
pub(crate) struct Args {
    /// The room's directory and the snapshot: ROOM@SNAPSHOT
    #[arg(value_name = "ROOM@SNAPSHOT")]
    what: OsString,
    /// Send only what changed since this snapshot, which the receiver has
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Write to this file, which must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Leave out what an interrupted transfer brought: the token that `receive` printed
    #[arg(long, value_name = "TOKEN")]
    resume: Option<ResumeToken>,
    /// Send at most so many bytes a second, as 500KiB or 2MiB
    #[arg(long, value_name = "RATE", value_parser = crate::size::bytes)]
    limit: Option<u64>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (dir, to) = parse(&args.what)?;
    if args.to.is_none() && std::io::stdout().is_terminal() {
        return Err(Error::usage(
            "the stream is not text for a terminal: give a file with --to, or a pipe",
        ));
    }
    must_not_be_remote(&dir)?;
    let access = Reached::find(&dir, &args.open, Intent::Read)?;
    let request = SendRequest {
        to,
        since: args.since,
        resume: args.resume,
        keep: Keep::default(),
        scratch: None,
    };
    let bar = Bar::start("sending", global);
    let progress = |done, total| bar.report(done, total);
    let write = |out: &mut dyn Write, name: &Path| {
        let mut out = BlamedWriter::new(out);
        let sent = access.send(&request, &mut Limited::new(&mut out, args.limit), &progress);
        out.end(sent, name)
    };
    let sent = match &args.to {
        Some(path) => to_file(path, |file| write(file, path)),
        None => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            write(&mut out, Path::new("standard output"))
        }
    };
    bar.end();
    let Some(report) = sent? else {
        return Err(Error::failed_at(
            &dir,
            "the token is of other snapshots, or what was sent has moved since: send without it",
        ));
    };
    let text = format!(
        "Sent {} as {}: moment {}.",
        output::size(report.data),
        output::size(report.sent),
        report.moment
    );
    if global.json && args.to.is_some() {
        output::json_line(&json!({
            "moment": report.moment,
            "sent": report.sent,
            "data": report.data,
        }));
    } else {
        output::note(global, text);
    }
    Ok(())
}

fn parse(what: &OsStr) -> Result<(PathBuf, String)> {
    let place = readable_path(what)?;
    match place.snapshot {
        Some(snapshot) if place.path == Path::new("/") => Ok((place.room, snapshot)),
        _ => Err(Error::usage(format!(
            "{}: name a room and one of its snapshots: ROOM@SNAPSHOT",
            what.to_string_lossy()
        ))),
    }
}

/// A file that is there only when it is complete.
fn to_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let named = |e| Error::host(path, e);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = file.map_err(named)?;
    let written = fill(&file, write, path);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

fn fill<T>(file: &File, write: impl FnOnce(&mut dyn Write) -> Result<T>, path: &Path) -> Result<T> {
    let mut out = BufWriter::new(file);
    let value = write(&mut out)?;
    let done = out.flush().and_then(|()| {
        file.sync_all()?;
        // And its name.
        File::open(directory(path))?.sync_all()
    });
    done.map_err(|e| Error::host(path, e))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed: only the contents were synced, so that a power cut could take the file after `send` had ended.
    #[test]
    fn a_file_whose_name_cannot_be_synced_is_not_sent() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("streams");
        std::fs::create_dir(&directory).unwrap();
        let write = |moves: bool| {
            let path = directory.join(if moves { "lost" } else { "kept" });
            to_file(&path, |out| {
                out.write_all(b"stream").unwrap();
                if moves {
                    std::fs::rename(&directory, place.path().join("moved")).unwrap();
                }
                Ok(())
            })
        };
        write(false).unwrap();
        assert!(write(true).is_err());
    }
}
