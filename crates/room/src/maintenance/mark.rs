//! Whether a directory is a backup that nobody has worked in: only then may a newer one take its place.
//!
//! 1. A backup notes what its catalog is, in [`MARK`]. Whatever changes a room changes its catalog, or leaves a log beside it.
//! 2. A mark names the catalog before an update and the one after it, so it holds at each step of one that is killed.
//! 3. A backup of a version that wrote no mark is known by its lineage, and by that this machine never had it open for writing.
//!
//! No key is needed for a mark: it also vouches for a backup from before a rekey.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::Catalog;
use seal::Header;
use storage::{HostStorage, OpenMode, Storage};

use super::Maintenance;
use crate::layout::{
    APPLIED, CATALOG, CATALOG_LOG, CATALOG_RECORDS, CATALOG_TABLE, LINEAGE, NEW_CATALOG,
    NEW_CATALOG_TABLE, is_replica,
};
use crate::rollback;
use crate::{Error, Result};

/// In a backup: digests of its catalog, one a line in hexadecimal. One that has none of them was changed as a room.
const MARK: &str = "backup.catalog";
/// Bytes of that file, at most.
const MARK_MAX: u64 = 1024;
/// Bytes read at once.
const STEP: u64 = 1 << 20;

/// The digest of a catalog: of its table, which is another one after every change, or of its file where it has no table.
pub(super) fn digest(storage: &dyn Storage, tables: &[&str], catalog: &str) -> Result<String> {
    for name in tables.iter().chain([&catalog]) {
        let file = match storage.open(name, OpenMode::Read) {
            Err(e) if e.kind() == ErrorKind::NotFound && name != &catalog => continue,
            other => other?,
        };
        let mut hasher = blake3::Hasher::new();
        let (len, mut at) = (file.len()?, 0);
        let mut buffer = vec![0; STEP.min(len) as usize];
        while at < len {
            let step = &mut buffer[..STEP.min(len - at) as usize];
            file.read_at(step, at)?;
            hasher.update(step);
            at += step.len() as u64;
        }
        return Ok(hasher.finalize().to_string());
    }
    unreachable!("the catalog's file is the last one")
}

/// The digest of the catalog in its place. One whose table has not got its name yet is in its place too.
fn digest_in_place(storage: &dyn Storage) -> Result<String> {
    digest(storage, &[CATALOG_TABLE, NEW_CATALOG_TABLE], CATALOG)
}

fn read(target: &dyn Storage) -> Result<Option<Vec<u8>>> {
    match storage::read_limited(target, MARK, MARK_MAX) {
        Ok(mark) => Ok(Some(mark)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn fits(target: &dyn Storage, mark: &[u8]) -> Result<bool> {
    let there = digest_in_place(target)?;
    Ok(mark
        .split(|byte| *byte == b'\n')
        .any(|line| line == there.as_bytes()))
}

/// A log is beside a catalog while its room is open, and after a crash.
fn has_logs(storage: &dyn Storage) -> Result<bool> {
    let names = storage.list("")?;
    Ok(names
        .iter()
        .any(|name| [CATALOG_LOG, CATALOG_RECORDS].contains(&name.as_str())))
}

/// Whether a closed room is a backup as it was written.
pub(crate) fn is_unchanged_backup(storage: &dyn Storage) -> Result<bool> {
    match read(storage)? {
        Some(mark) => Ok(!has_logs(storage)? && fits(storage, &mark)?),
        None => Ok(false),
    }
}

/// Notes that the catalog with this digest is about to come to its place; one that is there is vouched for as before.
pub(super) fn write(target: &dyn Storage, new: &str) -> Result<()> {
    let mut text = format!("{new}\n");
    match digest_in_place(target) {
        Ok(there) => text.push_str(&format!("{there}\n")),
        Err(Error::Io(e)) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    Ok(storage::replace(target, MARK, text.as_bytes())?)
}

/// Makes the backup in a directory a room of its own, as it is after a restore: no later backup takes its place. It need not be open.
///
/// # Errors
/// What the host says.
pub fn detach_backup(dir: &Path) -> Result<()> {
    // No catalog has this digest.
    Ok(storage::replace(
        &HostStorage::open(dir)?,
        MARK,
        b"restored\n",
    )?)
}

impl Maintenance {
    /// Refuses a target that is this room, or a room of the same origin, and no backup that is as it was written. `header` is the target's,
    /// which is locked; `is_complete` is false where its first backup was stopped.
    pub(super) fn must_be_replaceable(
        &self,
        target: &Arc<dyn Storage>,
        dir: &Path,
        header: &Header,
        is_complete: bool,
    ) -> Result<()> {
        let refuse = || Err(Error::NotEmptyTarget(PathBuf::from(dir)));
        if is_replica(&**target)? || has_logs(&**target)? {
            return refuse();
        }
        let replaceable = match read(&**target)? {
            Some(mark) => fits(&**target, &mark)?,
            None if !is_complete => true,
            None => self.is_older_backup(target, dir, header)?,
        };
        match replaceable {
            true => Ok(()),
            false => refuse(),
        }
    }

    /// The same of a target without a mark, which may be the backup of a version that wrote none.
    fn is_older_backup(
        &self,
        target: &Arc<dyn Storage>,
        dir: &Path,
        header: &Header,
    ) -> Result<bool> {
        if rollback::is_remembered(&header.room_id(), dir, &self.env.options) {
            return Ok(false);
        }
        let (masters, epoch) = {
            let state = self.keys.header();
            let previous = state.header.unlock_with(&state.master)?;
            let previous = previous.map(|(_, master)| master);
            let masters: Vec<_> = [Some(state.master.clone()), previous]
                .into_iter()
                .flatten()
                .collect();
            (masters, state.header.epoch())
        };
        if !masters.iter().any(|master| header.verify(master).is_ok()) {
            // From before a rekey: there is no key any more to look at it with.
            return Ok(header.epoch() < epoch);
        }
        let options = catalog::OpenOptions::for_reading();
        let may_be_applied = self.catalog.get().meta(APPLIED)?.is_some();
        let names = target.list("")?;
        let mut opened = 0;
        for name in [CATALOG, NEW_CATALOG] {
            for master in masters.iter().filter(|_| names.iter().any(|n| n == name)) {
                let key = header.catalog_key(master);
                let Ok(catalog) = Catalog::open(target, name, &key, &options) else {
                    continue;
                };
                opened += 1;
                // One that was a replica has a lineage, and what was applied to it.
                let is_promoted = !may_be_applied && catalog.meta(APPLIED)?.is_some();
                if catalog.meta(LINEAGE)?.is_none() || is_promoted {
                    return Ok(false);
                }
            }
        }
        Ok(opened > 0)
    }
}
