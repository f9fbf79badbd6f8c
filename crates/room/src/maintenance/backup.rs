//! A copy of a room as of one moment, in another directory, while the room is in use.
//!
//! 1. The moment is a commit: its catalog is copied while no change is made, the open segment is closed, and from then
//!    on the segments it refers to are pinned and do not change.
//! 2. An earlier backup stays whole until the new one is: new segments come first, then header and catalog, in an order
//!    in which an opening at any point finds one of the two, and only then old segments go.
//! 3. A segment is kept from an earlier backup only where it is the same: the same header, with its random salt, and
//!    long enough. Sealed segments never change. Those on network disks to which clients may still be writing are listed in the
//!    backup, and copied again by the next one.
//! 4. A backup is a lineage of its own: its catalog says so, in one commit more than the room has (see `rollback`).
//! 5. Only a backup that nobody has worked in is replaced (see `mark`).
//!
//! It deliberately does not know keys: what is copied is copied sealed.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Catalog, SegmentAccount, SegmentNo};
use seal::{CatalogKey, Header, MasterKey, RoomId};
use storage::{HostStorage, OpenMode, Storage, remove_if_there};

use super::{Maintenance, mark};
use crate::blocks::BLOCK;
use crate::freed::Pin;
use crate::header::{self, BACKUP, HEADER, HEADER_MAX};
use crate::layout::{
    HEADER_REVISION, LINEAGE, NETWORK_BACKED, NEW_CATALOG, NEW_CATALOG_TABLE, SEGMENTS,
    put_new_catalog_in_place,
};
use crate::lock::{self, RoomLock};
use crate::reports::{BackupReport, Progress};
use crate::rollback;
use crate::{Error, Result};

/// The catalog's copy until everything it refers to is there.
const CATALOG_COPY: &str = "catalog.db.copy";
const CATALOG_COPY_TABLE: &str = "catalog.db.copy-pages";
/// Marks a first backup that is not complete; holds the room's id.
const INCOMPLETE: &str = "backup.incomplete";
/// In a backup of a room on network disks: the segments that clients were still writing to, a decimal number a line. A later
/// backup copies them again.
const GROWING: &str = "backup.growing";
/// Bytes of that list, at most.
const GROWING_MAX: u64 = 1 << 20;
/// Bytes copied at once.
const STEP: u64 = 8 << 20;

/// What a backup is made of.
struct Moment {
    generation: u64,
    header: Vec<u8>,
    revision: u64,
    master: MasterKey,
    rekeying: bool,
    segments: Vec<SegmentAccount>,
    key: CatalogKey,
    /// Segments to which clients of a metadata server may still be writing.
    in_use: BTreeSet<SegmentNo>,
}

impl Maintenance {
    /// Brings a backup up to date, or makes the first one.
    pub(crate) fn backup(&self, target: &Path, progress: Progress<'_>) -> Result<BackupReport> {
        prepare_backup(&self.env.dir, target)?;
        let storage = Arc::new(HostStorage::open(target)?);
        self.backup_on(storage, target.to_owned(), progress, &|| {})
    }

    /// Calls `watch` between any two steps that change which room an opening of the target finds.
    pub(crate) fn backup_on(
        &self,
        target: Arc<dyn Storage>,
        dir: PathBuf,
        progress: Progress<'_>,
        watch: &dyn Fn(),
    ) -> Result<BackupReport> {
        let room = self.keys.header().header.room_id();
        is_backup_of(&*target, dir.clone(), &room)?;
        let _lock = RoomLock::take(&*target, false)?;
        // Again: until the lock was there, anybody could have used it.
        let earlier = is_backup_of(&*target, dir.clone(), &room)?;
        if let Some(header) = header_of(&*target) {
            self.must_be_replaceable(&target, &dir, &header, earlier)?;
        }
        if !earlier {
            storage::replace(&*target, INCOMPLETE, room.to_string().as_bytes())?;
        }
        storage::create_dir_if_missing(&*target, SEGMENTS)?;
        let (mut moment, pin) = self.moment(&target)?;
        let lineage = mark_lineage(&target, &mut moment, self.env.options.network_backed)?;
        let growing = read_growing(&*target)?;
        write_growing(&*target, &growing.union(&moment.in_use).copied().collect())?;
        let mut report = BackupReport {
            generation: moment.generation,
            ..BackupReport::default()
        };
        report.bytes_copied = target.open(CATALOG_COPY, OpenMode::Read)?.len()?;
        self.copy_segments(&*target, &moment, &growing, &mut report, progress)?;
        drop(pin);
        target.sync_dir(SEGMENTS)?;
        watch();
        mark::write(
            &*target,
            &mark::digest(&*target, &[CATALOG_COPY_TABLE], CATALOG_COPY)?,
        )?;
        watch();
        put_in_place(&*target, &moment, earlier, watch)?;
        write_growing(&*target, &moment.in_use)?;
        remove_others(&*target, &moment.segments)?;
        rollback::note_backup(&room, &dir, &lineage, moment.generation, &self.env.options);
        Ok(report)
    }

    /// Commits and takes the catalog of that moment.
    fn moment(&self, target: &Arc<dyn Storage>) -> Result<(Moment, Pin<'_>)> {
        Catalog::remove(&**target, CATALOG_COPY)?;
        // Header and catalog must be of one key.
        let _swap = self.catalog.keep();
        self.commits.commit_and(|| {
            if !self.env.options.read_only {
                self.blocks.segments().rotate()?;
            }
            // Read now: a header older than what the catalog remembers would be refused.
            let state = self.keys.header();
            let (header, master) = (state.bytes.clone(), state.master.clone());
            let key = state.header.catalog_key(&master);
            let rekeying = state.header.rekey_under_way();
            let revision = state.header.revision();
            drop(state);
            let pin = self.freed.pin(self.blocks.accounts().last());
            let catalog = self.catalog.get();
            catalog.copy_to(target, CATALOG_COPY, &key)?;
            let (generation, segments) = (catalog.generation(), catalog.segments()?);
            let in_use = match self.env.options.network_backed {
                true => self.blocks.segments().in_use(),
                false => BTreeSet::new(),
            };
            Ok((
                Moment {
                    generation,
                    header,
                    revision,
                    master,
                    rekeying,
                    segments,
                    key,
                    in_use,
                },
                pin,
            ))
        })
    }

    fn copy_segments(
        &self,
        target: &dyn Storage,
        moment: &Moment,
        growing: &BTreeSet<SegmentNo>,
        report: &mut BackupReport,
        progress: Progress<'_>,
    ) -> Result<()> {
        let segments = &moment.segments;
        let total = segments.iter().map(|a| u64::from(a.length) * BLOCK).sum();
        let mut done = 0;
        for account in segments {
            let name = segments::file_name(account.id.no);
            let needed = u64::from(account.length) * BLOCK;
            let may_differ = growing.contains(&account.id.no);
            if !may_differ && is_kept(&*self.env.storage, target, &name, needed)? {
                report.segments_kept += 1;
            } else {
                let beside = format!("{name}.new");
                let reported = |bytes: u64| progress((done + bytes).min(total), total);
                // A place on a network disk is longer than what was written there.
                let most = if self.env.options.network_backed {
                    needed
                } else {
                    u64::MAX
                };
                let copied = match copy(&*self.env.storage, &name, target, &beside, most, reported)
                {
                    // A segment that is gone cannot be copied; the rest can, and check says what it takes with it.
                    Ok(None) => {
                        report
                            .problems
                            .push(format!("segment {} is missing", account.id.no.0));
                        0
                    }
                    Err(e) => {
                        let _ = target.remove(&beside);
                        return Err(e.into());
                    }
                    Ok(Some(copied)) => {
                        target.rename(&beside, &name)?;
                        report.segments_copied += 1;
                        copied
                    }
                };
                report.bytes_copied += copied;
            }
            done += needed;
            if !progress(done, total) {
                return Err(stopped().into());
            }
        }
        Ok(())
    }
}

/// The segments of the earlier backup that may have got more blocks since.
fn read_growing(target: &dyn Storage) -> Result<BTreeSet<SegmentNo>> {
    match storage::read_limited(target, GROWING, GROWING_MAX) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes)
            .split_whitespace()
            .filter_map(|number| number.parse().ok().map(SegmentNo))
            .collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(e.into()),
    }
}

fn write_growing(target: &dyn Storage, segments: &BTreeSet<SegmentNo>) -> Result<()> {
    if segments.is_empty() {
        return match target.remove(GROWING) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        };
    }
    let lines: String = segments.iter().map(|no| format!("{}\n", no.0)).collect();
    Ok(storage::replace(target, GROWING, lines.as_bytes())?)
}

/// Makes the catalog's copy a lineage of its own, so that using the backup is not taken for using the room. One of a room on
/// network disks has its segments in its directory.
fn mark_lineage(
    target: &Arc<dyn Storage>,
    moment: &mut Moment,
    was_network_backed: bool,
) -> Result<String> {
    // As unlikely to come twice as the id of a room.
    let lineage = RoomId::random().to_string();
    let options = catalog::OpenOptions::default();
    let copy = Catalog::open(target, CATALOG_COPY, &moment.key, &options)?;
    copy.set_meta(LINEAGE, lineage.as_bytes())?;
    // Otherwise the first opening for writing would note it, and the backup would count as one that somebody changed.
    copy.set_meta(HEADER_REVISION, moment.revision.to_string().as_bytes())?;
    if was_network_backed {
        copy.set_meta(NETWORK_BACKED, b"")?;
    }
    moment.generation = copy.commit()?;
    // The copy is renamed without its log.
    copy.checkpoint()?;
    Ok(lineage)
}

fn stopped() -> io::Error {
    io::Error::new(
        io::ErrorKind::Interrupted,
        "the backup was stopped; an earlier one in its place is unchanged",
    )
}

/// Creates the directory of a backup of the room in `source` where it is not there yet; its parent must be.
///
/// # Errors
/// `InvalidArgument` where it is inside the room, `NotEmptyTarget` where it is no directory.
pub fn prepare_backup(source: &Path, target: &Path) -> Result<()> {
    let above = std::path::absolute(target)?;
    let (parent, name) = (above.parent(), above.file_name());
    let (Some(parent), Some(name)) = (parent, name) else {
        return Err(Error::InvalidArgument(
            "the root directory cannot be a backup",
        ));
    };
    let resolved = match fs::canonicalize(&above) {
        Err(e) if e.kind() == ErrorKind::NotFound => fs::canonicalize(parent)
            .map_err(|e| about(&parent.display(), &e))?
            .join(name),
        other => other?,
    };
    if !source.as_os_str().is_empty() && resolved.starts_with(fs::canonicalize(source)?) {
        return Err(Error::InvalidArgument("a backup cannot be inside the room"));
    }
    if !above.exists() {
        DirBuilder::new().mode(0o700).create(&above)?;
        File::open(parent)?.sync_all()?;
    } else if !above.is_dir() {
        return Err(Error::NotEmptyTarget(target.to_owned()));
    }
    Ok(())
}

/// Whether the target holds a complete backup of this room; not, where it is empty or holds the beginning of one.
/// `NotEmptyTarget` where it holds anything else.
fn is_backup_of(target: &dyn Storage, dir: PathBuf, room: &RoomId) -> Result<bool> {
    // A directory with nothing but the lock of a backup that failed at once is as good as empty.
    if lock::is_alone(target)? {
        return Ok(false);
    }
    if let Ok(id) = storage::read_limited(target, INCOMPLETE, 1024) {
        return if id == room.to_string().as_bytes() {
            Ok(false)
        } else {
            Err(Error::NotEmptyTarget(dir))
        };
    }
    match header_of(target) {
        Some(header) if header.room_id() == *room => Ok(true),
        _ => Err(Error::NotEmptyTarget(dir)),
    }
}

/// The target's header, if one of its copies is one. Nothing vouches for it.
fn header_of(target: &dyn Storage) -> Option<Header> {
    [HEADER, BACKUP].iter().find_map(|name| {
        let bytes = storage::read_limited(target, name, HEADER_MAX).ok()?;
        Header::parse(&bytes).ok()
    })
}

/// The error with the name of what it is about.
fn about(what: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Whether the target's segment is the source's, and all of it.
fn is_kept(
    source: &dyn Storage,
    target: &dyn Storage,
    name: &str,
    needed: u64,
) -> io::Result<bool> {
    let begin = |storage: &dyn Storage| -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut block = vec![0; BLOCK as usize];
        let opened = storage.open(name, OpenMode::Read).and_then(|f| {
            f.read_at(&mut block, 0)?;
            f.len()
        });
        match opened {
            Ok(len) => Ok(Some((block, len))),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    };
    let (Some((first, _)), Some((copy, len))) = (begin(source)?, begin(target)?) else {
        return Ok(false);
    };
    Ok(first == copy && len >= needed)
}

/// Copies a file, leaving blocks of zeros holes, and makes it durable. Returns the bytes copied; `None` where there is
/// nothing to copy.
fn copy(
    source: &dyn Storage,
    from: &str,
    target: &dyn Storage,
    to: &str,
    most: u64,
    reported: impl Fn(u64) -> bool,
) -> io::Result<Option<u64>> {
    let original = match source.open(from, OpenMode::Read) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| about(&from, &e))?,
    };
    remove_if_there(target, to)?;
    let copy = target.open(to, OpenMode::CreateNew)?;
    let len = original.len()?.min(most);
    let mut buffer = vec![0; STEP.min(len) as usize];
    let (mut copied, mut at) = (0, 0);
    while at < len {
        let step = &mut buffer[..STEP.min(len - at) as usize];
        original.read_at(step, at).map_err(|e| about(&from, &e))?;
        for (start, end) in filled_runs(step) {
            copy.write_at(&step[start..end], at + start as u64)?;
            copied += (end - start) as u64;
        }
        at += step.len() as u64;
        if !reported(at) {
            return Err(stopped());
        }
    }
    copy.set_len(len)?;
    copy.sync()?;
    Ok(Some(copied))
}

/// The longest ranges of whole blocks in which each block holds something else than zeros.
fn filled_runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut start = 0;
    for block in bytes.chunks(BLOCK as usize) {
        let end = start + block.len();
        if block.iter().any(|byte| *byte != 0) {
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
        }
        start = end;
    }
    runs
}

/// Puts header and catalog in place. Which of them comes first decides what an opening in between finds.
fn put_in_place(
    storage: &dyn Storage,
    moment: &Moment,
    earlier: bool,
    watch: &dyn Fn(),
) -> Result<()> {
    if !earlier {
        // Without a header it is no room yet: an opening in between is refused.
        put_catalog_copy(storage)?;
        watch();
        put_new_catalog_in_place(storage)?;
        watch();
        header::write_both(storage, &moment.header)?;
        watch();
        storage.remove(INCOMPLETE)?;
        return Ok(storage.sync_dir("")?);
    }
    let same_key = storage::read_limited(storage, HEADER, HEADER_MAX)
        .ok()
        .and_then(|bytes| Header::parse(&bytes).ok())
        .is_some_and(|h| {
            h.verify(&moment.master).is_ok() && h.rekey_under_way() == moment.rekeying
        });
    if same_key {
        // A header newer than the catalog is fine, an older one is refused. The next opening of the backup puts the
        // finished catalog beside the old one in place, if need be.
        header::write_both(storage, &moment.header)?;
        watch();
        put_catalog_copy(storage)?;
    } else {
        // The header decides which of the two catalogs it is.
        put_catalog_copy(storage)?;
        watch();
        header::write_both(storage, &moment.header)?;
    }
    watch();
    put_new_catalog_in_place(storage)?;
    watch();
    Ok(())
}

/// Gives the finished copy the name under which an opening looks for it.
fn put_catalog_copy(storage: &dyn Storage) -> Result<()> {
    match storage.rename(CATALOG_COPY_TABLE, NEW_CATALOG_TABLE) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    storage.rename(CATALOG_COPY, NEW_CATALOG)?;
    Ok(storage.sync_dir("")?)
}

/// Removes what the catalog does not refer to.
fn remove_others(storage: &dyn Storage, segments: &[SegmentAccount]) -> Result<()> {
    let known: HashSet<String> = segments
        .iter()
        .map(|a| segments::name_in_dir(a.id.no))
        .collect();
    for name in storage.list(SEGMENTS)? {
        if !known.contains(&name) {
            storage.remove(&format!("{SEGMENTS}/{name}"))?;
        }
    }
    Ok(storage.sync_dir(SEGMENTS)?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::testing::{copy_tree, credential, options, room_in, sound};
    use crate::{Error, Room};

    fn host(target: &Path) -> Arc<dyn Storage> {
        fs::create_dir_all(target).unwrap();
        Arc::new(HostStorage::open(target).unwrap())
    }

    /// Backs up and opens a copy of the target as it is between any two steps.
    fn opens_at_every_step(room: &Room, target: &Path, each: impl Fn(crate::Result<Room>)) {
        let dir = tempfile::tempdir().unwrap();
        let copies = RefCell::new(Vec::new());
        room.parts
            .maintenance
            .backup_on(host(target), target.to_owned(), &|_, _| true, &|| {
                let copy = dir.path().join(copies.borrow().len().to_string());
                copy_tree(target, &copy);
                copies.borrow_mut().push(copy);
            })
            .unwrap();
        assert!(copies.borrow().len() >= 4);
        for copy in copies.into_inner() {
            let again = copy.with_extension("again");
            copy_tree(&copy, &again);
            room.backup(&again, &|_, _| true).unwrap();
            let state = tempfile::tempdir().unwrap();
            each(Room::open(&copy, &credential(), options(state.path())));
        }
    }

    #[test]
    fn a_backup_killed_at_every_step_is_the_earlier_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let target = dir.path().join("copy");
        room.write_file("/a", &vec![1; 300_000]).unwrap();
        opens_at_every_step(&room, &target, |opened| match opened {
            Ok(copy) => assert_eq!(copy.read_file("/a").unwrap(), vec![1; 300_000]),
            Err(e) => assert!(
                matches!(e, Error::NotARoom(_) | Error::HeaderDamaged(_)),
                "{e}"
            ),
        });
        let either = |old: u8, new: u8| {
            move |opened: crate::Result<Room>| {
                let copy = opened.unwrap();
                sound(&copy);
                let data = copy.read_file("/a").unwrap();
                assert!(data == vec![old; 300_000] || data == vec![new; 300_000]);
            }
        };
        room.write_file("/a", &vec![2; 300_000]).unwrap();
        room.add_slot(
            seal::NewCredential::RawKey(seal::Secret::from(vec![7; 32])),
            "",
        )
        .unwrap();
        opens_at_every_step(&room, &target, either(1, 2));
        room.write_file("/a", &vec![3; 300_000]).unwrap();
        room.rekey(&credential(), &|_, _| true).unwrap();
        opens_at_every_step(&room, &target, either(2, 3));
    }

    /// What failed: the header of before the end of a rekey and the catalog of after it were together for a moment, and an opening in
    /// that moment refused the header, for good.
    #[test]
    fn a_backup_that_ends_a_rekey_is_the_earlier_one_or_the_new_one_when_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        let target = dir.path().join("copy");
        let long = vec![1; 8 << 20];
        room.write_file("/a", &long).unwrap();
        let stopped = room.rekey(&credential(), &|_, _| false).unwrap();
        assert!(!stopped.finished);
        opens_at_every_step(&room, &target, |_| {});
        room.write_file("/b", b"b").unwrap();
        assert!(room.rekey(&credential(), &|_, _| true).unwrap().finished);
        opens_at_every_step(&room, &target, |opened| {
            let copy = opened.unwrap();
            sound(&copy);
            assert!(copy.read_file("/a").unwrap() == long);
        });
    }
}
