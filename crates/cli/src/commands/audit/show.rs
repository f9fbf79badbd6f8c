//! `strongroom audit show`: the entries of a log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;

/// Show the entries of a log; `--json` shows them as they are stored. Nothing is verified
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The log's directory, or its files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Only entries of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only entries of this kind: open, refused, removed, rights-changed, user-added, ...
    #[arg(long, value_name = "KIND")]
    event: Option<String>,
    /// Only entries that name this file, by its number: `stat -c %i FILE` on a mount
    #[arg(long, value_name = "N")]
    inode: Option<u64>,
}

impl Args {
    fn wants(&self, entry: &Map<String, Value>) -> bool {
        let is = |key: &str, wanted: &Option<String>| {
            let wanted = wanted.as_deref();
            wanted.is_none_or(|wanted| entry.get(key).and_then(Value::as_str) == Some(wanted))
        };
        let inode = self.inode.map(|no| no.to_string());
        is("user", &self.user) && is("event", &self.event) && is("inode", &inode)
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let files =
        metadata_server::audit::files(&args.paths).map_err(|e| Error::host(&args.paths[0], e))?;
    for path in files {
        let of_file = |e| Error::host(&path, e);
        let file = BufReader::new(File::open(&path).map_err(of_file)?);
        for line in file.split(b'\n') {
            let line = line.map_err(of_file)?;
            let Ok(Value::Object(entry)) = serde_json::from_slice(&line) else {
                continue;
            };
            if !args.wants(&entry) {
                continue;
            }
            if global.json {
                output::entry(String::from_utf8_lossy(&line));
            } else {
                output::entry(for_people(&entry));
            }
        }
    }
    Ok(())
}

/// One line: time, event, user, and the rest by name. What links the chain is left out.
fn for_people(entry: &Map<String, Value>) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    let of = |key: &str| entry.get(key).map(text).unwrap_or_default();
    let mut line = format!("{}  {:<16} {}", of("time"), of("event"), of("user"));
    for (key, value) in entry {
        if !["time", "event", "user", "prev", "mac"].contains(&key.as_str()) {
            line.push_str(&format!(" {key}={}", text(value)));
        }
    }
    line
}
