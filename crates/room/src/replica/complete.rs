//! Putting what was received in its place, once all of it is there.
//!
//! 1. A crash in between is no matter: it is done again, by the next one to open the replica or receive.
//! 2. Data comes to its segments before the changes that refer to it come to theirs, and what the replica is comes last.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use storage::{OpenMode, Storage, StorageFile, remove_if_there};

use super::stream::Name;
use super::{
    DONE, INCOMING, INCREMENTS, PARTIAL, REPLICA, State, increment, read_json, write_json,
};
use crate::Result;
use crate::blocks::BLOCK;
use crate::header::{self, HEADER_MAX};
use crate::layout::{CATALOG, CATALOG_TABLE, SEGMENTS};

/// Bytes copied at once.
const STEP: usize = 1 << 20;

/// A transfer that is complete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    pub(super) state: State,
}

pub(super) fn name_of(name: Name) -> &'static str {
    match name {
        Name::Header => "header",
        Name::Changes => "changes",
        Name::Catalog => CATALOG,
        Name::CatalogPages => CATALOG_TABLE,
    }
}

pub(super) fn beside(name: &str) -> String {
    format!("{INCOMING}/{name}")
}

/// Throws away what an interrupted transfer brought.
pub(super) fn clear(storage: &dyn Storage) -> Result<()> {
    create_dir(storage, INCOMING)?;
    // First: it says that the rest is there.
    remove_if_there(storage, PARTIAL)?;
    storage.sync_dir(INCOMING)?;
    for name in storage.list(INCOMING)? {
        remove_if_there(storage, &beside(&name))?;
    }
    Ok(())
}

pub(super) fn is_segment(name: &str) -> bool {
    name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit())
}

fn create_dir(storage: &dyn Storage, name: &str) -> Result<()> {
    match storage.create_dir(name) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e.into()),
        _ => Ok(()),
    }
}

/// Puts everything in its place after a transfer that is complete. A crash in between is no matter: it is done again.
pub(super) fn complete(storage: &dyn Storage) -> Result<()> {
    let Some(Done { state }) = read_json(storage, DONE)? else {
        return Ok(());
    };
    create_dir(storage, SEGMENTS)?;
    create_dir(storage, INCREMENTS)?;
    let names = storage.list(INCOMING)?;
    for name in names.iter().filter(|name| is_segment(name)) {
        put_segment(storage, &beside(name), &format!("{SEGMENTS}/{name}"))?;
    }
    storage.sync_dir(SEGMENTS)?;
    let has = |name: &str| names.iter().any(|there| there == name);
    let header = name_of(Name::Header);
    if has(header) {
        let bytes = storage::read_limited(storage, &beside(header), HEADER_MAX)?;
        header::write_both(storage, &bytes)?;
    }
    let changes = name_of(Name::Changes);
    if has(changes) {
        let to = increment(state.increments);
        // One that is there is a part, of a process that was killed.
        remove_if_there(storage, &to)?;
        copy(storage, &beside(changes), &to)?;
        storage.sync_dir(INCREMENTS)?;
        // Not renamed: a crash may lose both names of what changes its directory.
        storage.remove(&beside(changes))?;
    }
    for name in [CATALOG_TABLE, CATALOG] {
        if has(name) {
            storage.rename(&beside(name), name)?;
        }
    }
    storage.sync_dir("")?;
    write_json(storage, REPLICA, &state)?;
    clear(storage)?;
    remove_if_there(storage, DONE)?;
    Ok(storage.sync_dir("")?)
}

fn copy(storage: &dyn Storage, from: &str, to: &str) -> Result<()> {
    let file = storage.open(from, OpenMode::Read)?;
    let there = storage.open(to, OpenMode::CreateNew)?;
    each_step(&*file, |step, at| there.write_at(step, at))?;
    Ok(there.sync()?)
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
