//! `strongroom audit verify`: whether a log is whole, and as the server wrote it.

use std::path::{Path, PathBuf};

use metadata_server::audit::{self, Expected, Key, Report};
use serde_json::json;

use crate::args::Global;
use crate::credentials::secret_file;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;

/// Longer than any key file, in bytes.
const KEY_FILE_MAX: u64 = 4096;

/// Check whether a log is whole, and as the server wrote it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The log's directory, or its files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The key that `audit init` wrote. Without it only the chain is checked, which an intruder can compute
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Older files are elsewhere: begin with the first one given
    #[arg(long)]
    partial: bool,
    /// The log had at least so many entries: a number that `metadata status` showed, noted elsewhere
    #[arg(long, value_name = "N", default_value_t = 0)]
    entries: u64,
}

fn read_key(path: &Path) -> Result<Key> {
    let text = secret_file(path, KEY_FILE_MAX)?;
    let text = std::str::from_utf8(text.expose()).ok();
    text.and_then(Key::parse).ok_or_else(|| {
        let path = path.display();
        Error::said(
            Exit::WrongCredential,
            format!("{path}: not the key of an audit log, which `audit init` writes"),
        )
    })
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let key = args.key.as_deref().map(read_key).transpose()?;
    let expected = Expected {
        key: key.as_ref(),
        partial: args.partial,
        entries: args.entries,
    };
    let report =
        audit::verify(&args.paths, &expected).map_err(|e| Error::host(&args.paths[0], e))?;
    if global.json {
        let times = report.times.as_ref();
        output::json_line(&json!({
            "log": report.log,
            "files": report.files,
            "entries": report.entries,
            "next": report.next,
            "first_time": times.map(|(first, _)| first),
            "last_time": times.map(|(_, last)| last),
            "stopped": report.stopped,
            "authenticated": report.authenticated,
            "faults": report.faults,
        }));
    } else {
        show(&report);
    }
    if report.faults.is_empty() {
        return Ok(());
    }
    let faults = report.faults.len() as u64 + report.more;
    Err(Error::said(
        Exit::Damaged,
        format!("the audit log has {}", output::count(faults, "fault")),
    ))
}

fn show(report: &Report) {
    for fault in &report.faults {
        output::line(fault);
    }
    if let Some((first, last)) = &report.times {
        output::line(format!(
            "log {}: {} in {}, from {first} to {last}",
            report.log,
            output::count(report.entries, "entry"),
            output::count(report.files as u64, "file")
        ));
    }
    let end = match report.stopped {
        true => "the server stopped after the last one",
        false => {
            "it ends without a stop: the server runs, was killed, or later entries were cut off"
        }
    };
    output::line(end);
    if !report.authenticated {
        output::line("only the chain was checked: give --key to know that the server wrote it");
    }
}
