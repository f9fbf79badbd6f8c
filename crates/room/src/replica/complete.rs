//! Putting what was received in its place, once all of it is there.
//!
//! 1. A crash in between is no matter: it is done again, by the next one to open the replica or receive.
//! 2. Data comes to its segments before the changes that refer to it come to theirs, and what the replica is comes last.

use std::io::ErrorKind;

use segments::{INCOMING_SUFFIX, SegmentNo, file_name, parse_file_name};
use serde::{Deserialize, Serialize};
use storage::{
    OpenMode, Storage, StorageFile, create_dir_if_missing, list_if_there, remove_if_there,
};

use super::stream::Name;
use super::{DONE, INCREMENTS, PARTIAL, REPLICA, State, increment, read_json, write_json};
use crate::Result;
use crate::blocks::BLOCK;
use crate::header::{self, HEADER_MAX};
use crate::layout::{CATALOG, CATALOG_TABLE, SEGMENTS};

/// Bytes copied at once.
const STEP: usize = 1 << 20;
/// Where versions before the end of November 2026 put all of a transfer.
const OLDER: &str = "incoming";

/// A transfer that is complete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    pub(super) state: State,
}

/// What a file is called before it is in its place. It is in the same directory: a crash may lose both names of one that changes its directory.
pub(super) fn beside(name: Name) -> String {
    let place = match name {
        Name::Header => "header",
        Name::Changes => return format!("{INCREMENTS}/changes{INCOMING_SUFFIX}"),
        Name::Catalog => CATALOG,
        Name::CatalogPages => CATALOG_TABLE,
    };
    format!("{place}{INCOMING_SUFFIX}")
}

/// The same of a segment.
pub(super) fn segment_beside(no: SegmentNo) -> String {
    format!("{}{INCOMING_SUFFIX}", file_name(no))
}

/// The segment whose incoming file has this name in its directory.
fn parse_beside(name: &str) -> Option<SegmentNo> {
    parse_file_name(name.strip_suffix(INCOMING_SUFFIX)?)
}

/// What a file is called now that older versions called `name`, in a directory of its own.
fn of_older(name: &str) -> Option<String> {
    Some(match name {
        "header" => beside(Name::Header),
        "changes" => beside(Name::Changes),
        CATALOG => beside(Name::Catalog),
        CATALOG_TABLE => beside(Name::CatalogPages),
        "partial" | "partial.new" => PARTIAL.into(),
        _ => segment_beside(parse_file_name(name)?),
    })
}

/// The segments of which something came.
pub(super) fn segments_beside(storage: &dyn Storage) -> Result<Vec<SegmentNo>> {
    let names = list_if_there(storage, SEGMENTS)?.into_iter();
    Ok(names.filter_map(|name| parse_beside(&name)).collect())
}

/// Whether a directory without a replica holds anything but what a first transfer brought, and what is `ours` at its top.
pub(super) fn has_others(storage: &dyn Storage, ours: &[&str]) -> Result<bool> {
    let beside = Name::ALL.map(beside);
    let is_known = |path: &String| beside.contains(path) || ours.contains(&path.as_str());
    for name in storage.list("")? {
        let has_others = match name.as_str() {
            SEGMENTS => storage
                .list(SEGMENTS)?
                .iter()
                .any(|name| parse_beside(name).is_none()),
            INCREMENTS => storage
                .list(INCREMENTS)?
                .iter()
                .any(|name| !is_known(&format!("{INCREMENTS}/{name}"))),
            OLDER => storage
                .list(OLDER)?
                .iter()
                .any(|name| of_older(name).is_none()),
            _ => !is_known(&name),
        };
        if has_others {
            return Ok(true);
        }
    }
    Ok(false)
}

fn create_dirs(storage: &dyn Storage) -> Result<()> {
    create_dir_if_missing(storage, SEGMENTS)?;
    Ok(create_dir_if_missing(storage, INCREMENTS)?)
}

/// Prepares for a transfer; what an interrupted one brought is thrown away.
pub(super) fn start_over(storage: &dyn Storage) -> Result<()> {
    create_dirs(storage)?;
    clear(storage)
}

/// Throws away what an interrupted transfer brought.
pub(super) fn clear(storage: &dyn Storage) -> Result<()> {
    // First: it says that the rest is there.
    remove_if_there(storage, PARTIAL)?;
    storage.sync_dir("")?;
    for name in Name::ALL {
        remove_if_there(storage, &beside(name))?;
    }
    for no in segments_beside(storage)? {
        remove_if_there(storage, &segment_beside(no))?;
    }
    for name in list_if_there(storage, OLDER)? {
        if of_older(&name).is_some() {
            remove_if_there(storage, &format!("{OLDER}/{name}"))?;
        }
    }
    Ok(())
}

/// Brings a complete transfer that an older version received to where one is now.
fn adopt_older(storage: &dyn Storage) -> Result<()> {
    let names = list_if_there(storage, OLDER)?;
    if !names.is_empty() {
        create_dirs(storage)?;
    }
    for name in names {
        if let Some(to) = of_older(&name) {
            storage.rename(&format!("{OLDER}/{name}"), &to)?;
        }
    }
    Ok(())
}

/// Puts everything in its place after a transfer that is complete. A crash in between is no matter: it is done again.
pub(super) fn complete(storage: &dyn Storage) -> Result<()> {
    let Some(Done { state }) = read_json(storage, DONE)? else {
        return Ok(());
    };
    adopt_older(storage)?;
    for no in segments_beside(storage)? {
        put_segment(storage, &segment_beside(no), &file_name(no))?;
    }
    storage.sync_dir(SEGMENTS)?;
    let header = storage::read_limited(storage, &beside(Name::Header), HEADER_MAX);
    if let Some(bytes) = if_there(header)? {
        header::write_both(storage, &bytes)?;
    }
    let changes = storage.rename(&beside(Name::Changes), &increment(state.increments));
    if_there(changes)?;
    storage.sync_dir(INCREMENTS)?;
    for (name, place) in [
        (Name::CatalogPages, CATALOG_TABLE),
        (Name::Catalog, CATALOG),
    ] {
        if_there(storage.rename(&beside(name), place))?;
    }
    storage.sync_dir("")?;
    write_json(storage, REPLICA, &state)?;
    clear(storage)?;
    remove_if_there(storage, DONE)?;
    Ok(storage.sync_dir("")?)
}

/// `None` for a file that is not there: it was not received, or is in its place already.
fn if_there<T>(result: std::io::Result<T>) -> Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Adds what came of a segment to what is there.
fn put_segment(storage: &dyn Storage, from: &str, to: &str) -> Result<()> {
    let there = match storage.open(to, OpenMode::ReadWrite) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(storage.rename(from, to)?),
        other => other?,
    };
    let file = storage.open(from, OpenMode::Read)?;
    // A block of zeros is one that did not come; one that did and is all zeros never happens.
    let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    each_step(&*file, |step, at| {
        let blocks: Vec<&[u8]> = step.chunks(BLOCK as usize).collect();
        let mut from = 0;
        for run in blocks.chunk_by(|one, next| is_hole(one) == is_hole(next)) {
            let end = from + run.iter().map(|block| block.len()).sum::<usize>();
            if !is_hole(run[0]) {
                there.write_at(&step[from..end], at + from as u64)?;
            }
            from = end;
        }
        Ok(())
    })?;
    there.sync()?;
    Ok(storage.remove(from)?)
}

/// Calls `put` with each part of a file, and where it is.
fn each_step(
    file: &dyn StorageFile,
    mut put: impl FnMut(&[u8], u64) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (mut at, len) = (0, file.len()?);
    let mut buffer = vec![0; STEP];
    while at < len {
        let step = &mut buffer[..(STEP as u64).min(len - at) as usize];
        file.read_at(step, at)?;
        put(step, at)?;
        at += step.len() as u64;
    }
    Ok(())
}
