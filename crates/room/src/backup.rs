//! A copy of a room as of one moment, in another directory, while the room is in use.
//!
//! 1. The moment is a commit: its catalog is copied while no change is made, the open segment is closed, and from then
//!    on the segments it refers to are pinned and do not change.
//! 2. An earlier backup stays whole until the new one is: new segments come first, then header and catalog, in an order
//!    in which an opening at any point finds one of the two, and only then old segments go.
//! 3. A segment is kept from an earlier backup only where it is the same: the same header, with its random salt, and
//!    long enough. Sealed segments never change.
//!
//! It deliberately does not know keys: what is copied is copied sealed.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use catalog::{SegmentAccount, SegmentNo};
use seal::{Header, MasterKey, RoomId};
use segments::SegmentStore;
use storage::{HostStorage, Storage};

use crate::core::{BLOCK, Core};
use crate::header::{self, BACKUP, HEADER, HEADER_MAX};
use crate::lock::RoomLock;
use crate::maintenance::{BackupReport, Progress};
use crate::open::{NEW_CATALOG, SEGMENTS, put_new_catalog_in_place};
use crate::pins::Pin;
use crate::{Error, Result};

/// The catalog's copy until everything it refers to is there.
const CATALOG_COPY: &str = "catalog.db.copy";
/// Marks a first backup that is not complete; holds the room's id.
const INCOMPLETE: &str = "backup.incomplete";
/// Bytes copied at once.
const STEP: u64 = 8 << 20;

/// What a backup is made of.
struct Moment {
    generation: u64,
    header: Vec<u8>,
    master: MasterKey,
    rekeying: bool,
    segments: Vec<SegmentAccount>,
}

impl Core {
    /// Brings a backup up to date, or makes the first one.
    pub(crate) fn backup(&self, target: &Path, progress: Progress<'_>) -> Result<BackupReport> {
        self.backup_watched(target, progress, &|| {})
    }

    /// Calls `watch` between any two steps that change which room an opening of the target finds.
    fn backup_watched(
        &self,
        target: &Path,
        progress: Progress<'_>,
        watch: &dyn Fn(),
    ) -> Result<BackupReport> {
        let room = self.header.lock().header.room_id();
        let earlier = prepare(self.storage.path(), target, &room)?;
        let _lock = RoomLock::take(target, false)?;
        let storage = HostStorage::open(target)?;
        if !earlier {
            storage::replace(&storage, INCOMPLETE, room.to_string().as_bytes())?;
        }
        match storage.create_dir(SEGMENTS) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
        let (moment, pin) = self.moment(target)?;
        let mut report = BackupReport {
            generation: moment.generation,
            ..BackupReport::default()
        };
        report.bytes_copied = fs::metadata(target.join(CATALOG_COPY))?.len();
        self.copy_segments(target, &moment.segments, &mut report, progress)?;
        drop(pin);
        storage.sync_dir(SEGMENTS)?;
        watch();
        put_in_place(&storage, &moment, earlier, watch)?;
        remove_others(&storage, &moment.segments)?;
        Ok(report)
    }

    /// Commits and takes the catalog of that moment.
    fn moment(&self, target: &Path) -> Result<(Moment, Pin<'_>)> {
        let copy = target.join(CATALOG_COPY);
        match fs::remove_file(&copy) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        // Header and catalog must be of one key.
        let _swap = self.swap.read();
        self.commit_and(|| {
            if !self.options.read_only {
                self.segments.rotate()?;
            }
            // Read now: a header older than what the catalog remembers would be refused.
            let state = self.header.lock();
            let (header, master) = (state.bytes.clone(), state.master.clone());
            let key = master.catalog_key(&state.header.room_id());
            let rekeying = state.header.rekey_under_way();
            drop(state);
            let pin = self.pin_segments();
            let catalog = self.catalog();
            catalog.copy_to(&copy, &key)?;
            let (generation, segments) = (catalog.generation(), catalog.segments()?);
            Ok((
                Moment {
                    generation,
                    header,
                    master,
                    rekeying,
                    segments,
                },
                pin,
            ))
        })
    }

    fn copy_segments(
        &self,
        target: &Path,
        segments: &[SegmentAccount],
        report: &mut BackupReport,
        progress: Progress<'_>,
    ) -> Result<()> {
        let total = segments.iter().map(|a| u64::from(a.length) * BLOCK).sum();
        let mut done = 0;
        for account in segments {
            let (from, to) = (
                file(self.storage.path(), account.id.no),
                file(target, account.id.no),
            );
            let needed = u64::from(account.length) * BLOCK;
            if is_kept(&from, &to, needed)? {
                report.segments_kept += 1;
            } else {
                let beside = to.with_extension("new");
                let copied = match copy(&from, &beside, |bytes| {
                    progress((done + bytes).min(total), total)
                }) {
                    // A segment that is gone cannot be copied; the rest can, and check says what it takes with it.
                    Err(e) if e.kind() == io::ErrorKind::NotFound && !from.exists() => {
                        report
                            .problems
                            .push(format!("segment {} is missing", account.id.no.0));
                        0
                    }
                    Err(e) => {
                        let _ = fs::remove_file(&beside);
                        return Err(e.into());
                    }
                    Ok(copied) => {
                        fs::rename(&beside, &to)?;
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

fn stopped() -> io::Error {
    io::Error::new(
        io::ErrorKind::Interrupted,
        "the backup was stopped; an earlier one in its place is unchanged",
    )
}

fn file(room: &Path, no: SegmentNo) -> PathBuf {
    room.join(SEGMENTS).join(format!("{:020}", no.0))
}

/// Makes the target directory, or finds that it is a backup of this room: true where a complete one is there.
fn prepare(source: &Path, target: &Path, room: &RoomId) -> Result<bool> {
    let source = fs::canonicalize(source)?;
    let above = std::path::absolute(target)?;
    let (parent, name) = (above.parent(), above.file_name());
    let (Some(parent), Some(name)) = (parent, name) else {
        return Err(Error::InvalidArgument(
            "the root directory cannot be a backup",
        ));
    };
    let resolved = match fs::canonicalize(&above) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::canonicalize(parent)
            .map_err(|e| about(parent, &e))?
            .join(name),
        other => other?,
    };
    if resolved.starts_with(&source) {
        return Err(Error::InvalidArgument(
            "a backup cannot lie within the room",
        ));
    }
    if !above.exists() {
        DirBuilder::new().mode(0o700).create(&above)?;
        File::open(parent)?.sync_all()?;
        return Ok(false);
    }
    let foreign = || Error::NotEmptyTarget(target.to_owned());
    if !above.is_dir() {
        return Err(foreign());
    }
    let names: Vec<_> = above.read_dir()?.collect::<io::Result<Vec<_>>>()?;
    // A directory with nothing but the lock of a backup that failed at once is as good as empty.
    if names.iter().all(|entry| entry.file_name() == "lock") {
        return Ok(false);
    }
    let storage = HostStorage::open(&above)?;
    if let Ok(id) = storage::read_limited(&storage, INCOMPLETE, 1024) {
        return if id == room.to_string().as_bytes() {
            Ok(false)
        } else {
            Err(foreign())
        };
    }
    for name in [HEADER, BACKUP] {
        let parsed = storage::read_limited(&storage, name, HEADER_MAX)
            .ok()
            .and_then(|b| Header::parse(&b).ok());
        if let Some(header) = parsed {
            return if header.room_id() == *room {
                Ok(true)
            } else {
                Err(foreign())
            };
        }
    }
    Err(foreign())
}

/// The error with the path it is about.
fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether the target's segment is the source's, and all of it.
fn is_kept(from: &Path, to: &Path, needed: u64) -> io::Result<bool> {
    let begin = |path: &Path| -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut block = vec![0; BLOCK as usize];
        let opened = File::open(path).and_then(|f| {
            f.read_exact_at(&mut block, 0)?;
            Ok(f.metadata()?.len())
        });
        match opened {
            Ok(len) => Ok(Some((block, len))),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    };
    let (Some((source, _)), Some((copy, len))) = (begin(from)?, begin(to)?) else {
        return Ok(false);
    };
    Ok(source == copy && len >= needed)
}

/// Copies a file, leaving its holes holes, and makes it durable. Returns the bytes copied.
fn copy(from: &Path, to: &Path, told: impl Fn(u64) -> bool) -> io::Result<u64> {
    use rustix::fs::SeekFrom;
    let source = File::open(from)?;
    let len = source.metadata()?.len();
    let copy = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to)?;
    let mut copied = 0;
    let mut at = 0;
    while at < len {
        // A file system that knows no holes has data everywhere.
        at = match rustix::fs::seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = match rustix::fs::seek(&source, SeekFrom::Hole(at)) {
            Ok(hole) if hole > at => hole.min(len),
            _ => len,
        };
        while at < end {
            let step = (end - at).min(STEP);
            copy_range(&source, &copy, at, step).map_err(|e| about(from, &e))?;
            at += step;
            copied += step;
            if !told(at) {
                return Err(stopped());
            }
        }
    }
    copy.set_len(len)?;
    copy.sync_all()?;
    Ok(copied)
}

/// Copies a range to the same place: within the kernel where that works, which shares blocks where it can.
fn copy_range(from: &File, to: &File, offset: u64, len: u64) -> io::Result<()> {
    let (mut read, mut written) = (offset, offset);
    while read < offset + len {
        let left = (offset + len - read) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), left) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Err(_) => {
                let mut buffer = vec![0; left];
                from.read_exact_at(&mut buffer, read)?;
                return to.write_all_at(&buffer, read);
            }
        }
    }
    Ok(())
}

/// Puts header and catalog in place. Which of them comes first decides what an opening in between finds.
fn put_in_place(
    storage: &HostStorage,
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
        // A header newer than the catalog is fine, an older one is refused. The finished catalog beside the old one is
        // put in place by whoever opens the backup, if need be.
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
fn put_catalog_copy(storage: &HostStorage) -> Result<()> {
    storage.rename(CATALOG_COPY, NEW_CATALOG)?;
    Ok(storage.sync_dir("")?)
}

/// Removes what the catalog does not refer to.
fn remove_others(storage: &HostStorage, segments: &[SegmentAccount]) -> Result<()> {
    let known: HashSet<String> = segments
        .iter()
        .map(|a| format!("{:020}", a.id.no.0))
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
    use crate::testing::{copy_tree, credential, options, room_in};
    use crate::{Error, Room};

    /// Backs up and opens a copy of the target as it is between any two steps.
    fn opens_at_every_step(room: &Room, target: &Path, each: impl Fn(crate::Result<Room>)) {
        let dir = tempfile::tempdir().unwrap();
        let copies = RefCell::new(Vec::new());
        room.core
            .backup_watched(target, &|_, _| true, &|| {
                let copy = dir.path().join(copies.borrow().len().to_string());
                copy_tree(target, &copy);
                copies.borrow_mut().push(copy);
            })
            .unwrap();
        assert!(copies.borrow().len() >= 4);
        for copy in copies.into_inner() {
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
                let report = copy.check(true, false, &|_, _| true).unwrap();
                assert!(
                    report.findings.is_empty() && report.lost.is_empty(),
                    "{report:?}"
                );
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
}
