//! `strongroom snapshot diff`: what differs between two moments of a room.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use super::InRoom;
use crate::access::Intent;
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{ChangeReply, Reply, Request};
use crate::error::Result;
use crate::hex::name_from_hex;
use crate::output;
use crate::progress::{Bar, interrupted};

pub(super) const HELP: &str = "One line a change: what (added, removed, renamed, changed, attributes), bytes before and after, path. A file \
that was renamed has both paths, and another line where its contents or attributes changed too. What is below a renamed directory is \
not listed for that.\n\nWith -0 each change is these fields, each ended by a NUL byte: what, bytes before, bytes after, path, and for \
renamed the earlier path. Bytes are empty for what is no regular file, or was not there.";

pub(super) fn run(
    room: &InRoom,
    from: String,
    to: Option<String>,
    null: bool,
    global: &Global,
) -> Result<()> {
    let access = room.reach(Intent::Read)?;
    if to.is_none() {
        access.fetch_written();
    }
    let bar = Bar::of_files("comparing", global);
    let request = Request::DiffSnapshots { from, to };
    let reply = access.run(&request, &|_, _| bar.count(0, 0).is_ok());
    bar.end();
    if bar.count(0, 0).is_err() {
        return Err(interrupted());
    }
    let reply = reply?;
    access.close()?;
    let Reply::Changes(changes) = reply else {
        return Err(unexpected());
    };
    for change in &changes {
        if null {
            output::bytes(&with_nulls(change)?);
        } else if global.json {
            output::json_entry(&as_json(change)?);
        } else {
            output::entry(line(change)?);
        }
    }
    if !null && !global.json {
        output::note(global, summary(&changes));
    }
    Ok(())
}

fn digits(bytes: Option<u64>) -> String {
    bytes.map(|bytes| bytes.to_string()).unwrap_or_default()
}

fn with_nulls(change: &ChangeReply) -> Result<Vec<u8>> {
    let mut record = Vec::new();
    let mut field = |bytes: &[u8]| {
        record.extend_from_slice(bytes);
        record.push(0);
    };
    field(change.change.as_bytes());
    field(digits(change.before).as_bytes());
    field(digits(change.after).as_bytes());
    field(name_from_hex(&change.path)?.as_os_str().as_bytes());
    if let Some(from) = &change.from {
        field(name_from_hex(from)?.as_os_str().as_bytes());
    }
    Ok(record)
}

fn as_json(change: &ChangeReply) -> Result<Value> {
    let path = name_from_hex(&change.path)?;
    let mut value = json!({
        "change": change.change,
        "kind": change.kind,
        "path": path.to_string_lossy(),
        "bytes_before": change.before,
        "bytes_after": change.after,
    });
    // A path that is not text is reported exactly as well.
    let exact = |path: &Path, hex: &String| path.to_str().is_none().then(|| hex.clone());
    if let Some(hex) = exact(&path, &change.path) {
        value["path_hex"] = hex.into();
    }
    if let Some(from) = &change.from {
        let path = name_from_hex(from)?;
        value["from"] = path.to_string_lossy().into();
        if let Some(hex) = exact(&path, from) {
            value["from_hex"] = hex.into();
        }
    }
    Ok(value)
}

fn line(change: &ChangeReply) -> Result<String> {
    let path = output::shown_path(&name_from_hex(&change.path)?);
    let paths = match &change.from {
        Some(from) => format!("{} -> {path}", output::shown_path(&name_from_hex(from)?)),
        None => path,
    };
    let bytes = match (change.before, change.after) {
        (Some(before), Some(after)) if before != after => format!("{before} -> {after}"),
        (before, after) => digits(after.or(before)),
    };
    Ok(format!("{:<10}  {bytes:>24}  {paths}", change.change))
}

/// How many of each kind, with the bytes that came and went.
fn summary(changes: &[ChangeReply]) -> String {
    let of = |word: &str| {
        let these: Vec<_> = changes.iter().filter(|c| c.change == word).collect();
        let sum = |bytes: fn(&ChangeReply) -> Option<u64>| -> u64 {
            these.iter().filter_map(|change| bytes(change)).sum()
        };
        (these.len(), sum(|c| c.before), sum(|c| c.after))
    };
    let (added, _, came) = of("added");
    let (removed, went, _) = of("removed");
    let (changed, before, after) = of("changed");
    format!(
        "{added} added ({}), {removed} removed ({}), {changed} changed ({} before, {} after), {} renamed, {} with other attributes.",
        output::size(came),
        output::size(went),
        output::size(before),
        output::size(after),
        of("renamed").0,
        of("attributes").0
    )
}
