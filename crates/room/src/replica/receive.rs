//! The end of a stream that has no key.
//!
//! 1. Everything is written beside what is there, under names that end in `.incoming`. The replica is another moment from the instant [`DONE`] has
//!    its name; before that, nothing of it was touched.
//! 2. What a transfer has brought stays when it is cut off, as far as its frames are whole: [`PARTIAL`] says how far, once that
//!    is durable. Another transfer throws it away.
//!
//! It deliberately does not know what the bytes mean.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use seal::RoomId;
use segments::SegmentNo;
use storage::{HostStorage, OpenMode, Storage, StorageFile, remove_if_there};

use super::complete::{
    Done, beside, complete, has_others, segment_beside, segments_beside, start_over,
};
use super::stream::{self, Begin, Frame, Name, Reader, refused};
use super::{
    DONE, INCREMENTS, MomentId, PARTIAL, Partial, REPLICA, ReplicaStatus, State, Unfinished,
    read_json, write_json,
};
use crate::blocks::BLOCK;
use crate::header::HEADER_MAX;
use crate::layout::SEGMENTS;
use crate::lock::{LOCK, RoomLock};
use crate::options::OpenOptions;
use crate::reports::Progress;
use crate::rollback;
use crate::{Error, Result};

const VERSION: u32 = 1;
/// Bytes after which what was received is made durable.
const CHECKPOINT: u64 = 64 << 20;

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveReport {
    /// The moment that the replica is now.
    pub moment: MomentId,
    /// Bytes of data, those that an earlier, interrupted transfer brought included.
    pub bytes: u64,
    /// Whether it is a new replica.
    pub whole: bool,
}

/// Reads a stream into the replica in `target`, or makes a new one there; no key is needed. `progress` is called with bytes of
/// data; when it returns false, the transfer stops as if it were cut off.
///
/// What is verified: that the stream is whole and in order, and follows the moment that the replica is. That it was written by a
/// holder of the key is not known before the replica is opened.
///
/// # Errors
/// `Io` with the kind `UnexpectedEof` where the stream is cut off, `InvalidData` where it is damaged or does not follow the
/// replica; in all cases the replica stays the moment that it was. `NotEmptyTarget` where the directory holds anything else,
/// `InUse` where it is open.
pub fn receive(
    target: &Path,
    from: &mut dyn Read,
    options: &OpenOptions,
    progress: Progress<'_>,
) -> Result<ReceiveReport> {
    if !target.exists() {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(target)?;
        let above = std::path::absolute(target)?;
        if let Some(parent) = above.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    } else if !target.is_dir() {
        return Err(Error::NotEmptyTarget(target.to_owned()));
    }
    receive_for(&HostStorage::open(target)?, target, from, options, progress)
}

/// The same with a storage as the target, which `dir` represents on this machine.
pub fn receive_for(
    storage: &dyn Storage,
    dir: &Path,
    from: &mut dyn Read,
    options: &OpenOptions,
    progress: Progress<'_>,
) -> Result<ReceiveReport> {
    let (report, begin) = receive_as(storage, dir, from, progress)?;
    if report.whole {
        let room = RoomId::from_bytes(begin.room);
        rollback::note_backup(&room, dir, &begin.lineage, begin.generation, options);
    }
    Ok(report)
}

/// The same with a storage that nothing represents: no generation is remembered.
pub fn receive_on(
    target: &dyn Storage,
    from: &mut dyn Read,
    progress: Progress<'_>,
) -> Result<ReceiveReport> {
    Ok(receive_as(target, Path::new(""), from, progress)?.0)
}

impl ReplicaStatus {
    /// What a directory holds; nothing, where it is not there.
    ///
    /// # Errors
    /// `InUse`, `NotEmptyTarget` where it holds something else than a replica.
    pub fn of(target: &Path) -> Result<Self> {
        if !target.exists() {
            return Ok(Self::default());
        }
        let storage = HostStorage::open(target)?;
        Self::of_storage(&storage, target)
    }

    /// The same with a storage, which `dir` represents on this machine. Nothing is written but the file of the lock, where that is missing.
    pub fn of_storage(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let _lock = lock_at(storage, dir, true)?;
        if let Some(Done { state }) = read_json(storage, DONE)? {
            // Complete. The next one to open it or receive puts it in its place.
            return Ok(Self {
                moment: Some(state.moment),
                epoch: Some(state.epoch),
                unfinished: None,
            });
        }
        let state = state_of(storage, dir)?;
        let partial: Option<Partial> = read_json(storage, PARTIAL)?;
        Ok(Self {
            epoch: state.as_ref().map(|state| state.epoch),
            moment: state.map(|state| state.moment),
            unfinished: partial.and_then(|partial| {
                Some(Unfinished {
                    since: (partial.since != MomentId::NONE).then_some(partial.since),
                    to: partial.to,
                    token: partial.token()?,
                })
            }),
        })
    }
}

/// Takes the lock of a replica, or of what may become one. A directory of something else is refused without a file of the lock in it.
fn lock_at(storage: &dyn Storage, dir: &Path, read_only: bool) -> Result<RoomLock> {
    let names = storage.list("")?;
    // The holder of the lock may be putting a transfer in its place: only afterwards can be said what is here.
    if !names.iter().any(|name| name == LOCK || name == DONE) {
        state_of(storage, dir)?;
    }
    RoomLock::take(storage, read_only)
}

/// What the replica is, with everything in its place; `None` where nothing is there yet.
fn begin_at(storage: &dyn Storage, dir: &Path) -> Result<Option<State>> {
    complete(storage)?;
    state_of(storage, dir)
}

/// What the replica says that it is.
fn state_of(storage: &dyn Storage, dir: &Path) -> Result<Option<State>> {
    let state: Option<State> = read_json(storage, REPLICA)?;
    match &state {
        Some(state) if state.version > VERSION => {
            return Err(Error::Unsupported("the replica has a newer form".into()));
        }
        Some(_) => {}
        None => {
            let ours = [
                LOCK,
                PARTIAL,
                "incoming.partial.new",
                "incoming.done.new",
                "replica.new",
            ];
            if has_others(storage, &ours)? {
                return Err(Error::NotEmptyTarget(dir.to_owned()));
            }
        }
    }
    Ok(state)
}

fn receive_as(
    storage: &dyn Storage,
    dir: &Path,
    from: &mut dyn Read,
    progress: Progress<'_>,
) -> Result<(ReceiveReport, Begin)> {
    let _lock = lock_at(storage, dir, false)?;
    let state = begin_at(storage, dir)?;
    let mut reader = Reader::new(from)?;
    let Frame::Begin(begin) = reader.next()? else {
        return Err(refused("has no beginning"));
    };
    let next = follow(state.as_ref(), &begin)?;
    // It is at the moment at which its sender left it.
    storage.accept();
    // A receiver may have been killed when it had just removed [`DONE`]. Were that there again after a power cut, what is
    // received now would be taken for what it was about.
    storage.sync_dir("")?;
    let mut incoming = Incoming::prepare(storage, &begin)?;
    let received = incoming
        .take(&mut reader, &begin, progress)
        .and_then(|()| incoming.check(&begin));
    if let Err(e) = received {
        // What can be kept of it is; why it ended is what counts.
        if let Err(e) = incoming.checkpoint() {
            tracing::warn!("what was received is not kept: {e}");
        }
        return Err(e);
    }
    incoming.finish()?;
    write_json(storage, DONE, &Done { state: next })?;
    complete(storage)?;
    let report = ReceiveReport {
        moment: MomentId(begin.to),
        bytes: begin.bytes,
        whole: MomentId(begin.since) == MomentId::NONE,
    };
    Ok((report, begin))
}

/// What the replica will be, if the stream follows what it is.
fn follow(state: Option<&State>, begin: &Begin) -> Result<State> {
    let (since, to) = (MomentId(begin.since), MomentId(begin.to));
    let room = RoomId::from_bytes(begin.room);
    let next = |increments| State {
        version: VERSION,
        room,
        epoch: begin.epoch,
        moment: to,
        increments,
    };
    let Some(state) = state else {
        return match since {
            // It is remembered, and compared with that of rooms.
            MomentId::NONE if !rollback::is_of_copy(&begin.lineage) => {
                Err(refused("names no lineage of its own"))
            }
            MomentId::NONE => Ok(next(0)),
            _ => Err(refused(format!(
                "holds the changes since moment {since}, and there is no replica here yet: send everything"
            ))),
        };
    };
    if state.room != room {
        return Err(refused("is of another room than the replica"));
    }
    if since == MomentId::NONE {
        return Err(refused(
            "holds everything, and there is a replica here already: send the changes since its moment, or receive into an empty directory",
        ));
    }
    if state.moment == to {
        return Err(refused(format!(
            "leads to moment {to}, which the replica is already"
        )));
    }
    if state.epoch != begin.epoch {
        return Err(refused(
            "is sealed with other keys than the replica: the room was rekeyed; send everything to an empty directory",
        ));
    }
    if state.moment != since {
        return Err(refused(format!(
            "follows moment {since}, and the replica is moment {}",
            state.moment
        )));
    }
    Ok(next(state.increments + 1))
}

/// What is being received.
struct Incoming<'a> {
    storage: &'a dyn Storage,
    partial: Partial,
    /// The segment that is being written.
    segment: Option<(u64, Arc<dyn StorageFile>)>,
    file: Option<(Name, Arc<dyn StorageFile>)>,
    lengths: [u64; 4],
    unsynced: u64,
    places: [u8; 32],
    bytes: u64,
    /// Something could not be made durable. The kernel may have dropped it, and reports that only once.
    failed: bool,
}

impl<'a> Incoming<'a> {
    /// Goes on with what is there, where the stream does; else begins.
    fn prepare(storage: &'a dyn Storage, begin: &Begin) -> Result<Self> {
        let first = stream::no_places(&begin.room, &begin.since, &begin.to);
        let there: Option<Partial> = read_json(storage, PARTIAL)?;
        let (since, to) = (MomentId(begin.since), MomentId(begin.to));
        let mut partial = Partial {
            room: RoomId::from_bytes(begin.room),
            since,
            to,
            frames: begin.skipped,
            places: blake3::Hash::from(begin.places).to_string(),
        };
        if begin.skipped > 0 {
            if there.as_ref() != Some(&partial) {
                return Err(refused(
                    "goes on with a transfer that is not here: send it without a token to resume with",
                ));
            }
        } else {
            partial.places = blake3::Hash::from(first).to_string();
            start_over(storage)?;
        }
        let mut incoming = Self {
            storage,
            partial,
            segment: None,
            file: None,
            lengths: [0; 4],
            unsynced: 0,
            places: if begin.skipped > 0 {
                begin.places
            } else {
                first
            },
            bytes: 0,
            failed: false,
        };
        for name in Name::ALL {
            remove_if_there(storage, &beside(name))?;
        }
        incoming.bytes = incoming.present()?;
        Ok(incoming)
    }

    /// Bytes of data that an earlier transfer brought: at least, because blocks of it may be zeros.
    fn present(&self) -> Result<u64> {
        let mut bytes = 0;
        for no in segments_beside(self.storage)? {
            let file = self.storage.open(&segment_beside(no), OpenMode::Read)?;
            bytes += file.allocated()?.unwrap_or(0);
        }
        Ok(bytes)
    }

    fn take(
        &mut self,
        reader: &mut Reader<'_>,
        begin: &Begin,
        progress: Progress<'_>,
    ) -> Result<()> {
        loop {
            match reader.next()? {
                Frame::Begin(_) => return Err(refused("begins twice")),
                Frame::End { .. } => return Ok(()),
                Frame::Data {
                    segment,
                    block,
                    bytes,
                } => {
                    self.data(segment, block, &bytes)?;
                    if !progress(self.bytes.min(begin.bytes), begin.bytes) {
                        let stopped = std::io::Error::new(
                            ErrorKind::Interrupted,
                            "the transfer was stopped; what it brought is kept",
                        );
                        return Err(stopped.into());
                    }
                }
                Frame::File {
                    name,
                    offset,
                    bytes,
                } => self.file(name, offset, &bytes)?,
            }
        }
    }

    fn data(&mut self, segment: u64, block: u32, bytes: &[u8]) -> Result<()> {
        if self.segment.as_ref().is_none_or(|(no, _)| *no != segment) {
            self.sync_segment()?;
            let name = segment_beside(SegmentNo(segment));
            let file = match self.storage.open(&name, OpenMode::ReadWrite) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    self.storage.open(&name, OpenMode::CreateNew)
                }
                other => other,
            };
            self.segment = Some((segment, file?));
        }
        if let Some((_, file)) = &self.segment {
            file.write_at(bytes, u64::from(block) * BLOCK)?;
        }
        let len = bytes.len() as u64;
        self.places = stream::place_digest(&self.places, segment, block, len);
        self.partial.frames += 1;
        self.bytes += len;
        self.unsynced += len;
        if self.unsynced >= CHECKPOINT {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn file(&mut self, name: Name, offset: u64, bytes: &[u8]) -> Result<()> {
        let length = &mut self.lengths[name as usize];
        if *length != offset || (name == Name::Header && offset + bytes.len() as u64 > HEADER_MAX) {
            return Err(refused("has a file that is not in order"));
        }
        *length += bytes.len() as u64;
        if self.file.as_ref().is_none_or(|(open, _)| *open != name) {
            self.sync_file()?;
            let path = beside(name);
            if offset > 0 {
                return Err(refused("has a file in parts"));
            }
            let file = self.storage.open(&path, OpenMode::CreateNew)?;
            self.file = Some((name, file));
        }
        if let Some((_, file)) = &self.file {
            file.write_at(bytes, offset)?;
        }
        Ok(())
    }

    /// Whether everything is there that must be.
    fn check(&self, begin: &Begin) -> Result<()> {
        let has = |name: Name| self.lengths[name as usize] > 0;
        let whole = MomentId(begin.since) == MomentId::NONE;
        let fits = has(Name::Header)
            && has(Name::Changes) != whole
            && has(Name::Catalog) == whole
            && (whole || !has(Name::CatalogPages));
        match fits {
            true => Ok(()),
            false => Err(refused("lacks a file")),
        }
    }

    fn sync_segment(&mut self) -> Result<()> {
        match self.segment.take() {
            Some((_, file)) => self.durably(|_| file.sync()),
            None => Ok(()),
        }
    }

    /// Makes something durable. Once that failed nothing is taken for durable any more: not what is written again either.
    fn durably(&mut self, sync: impl FnOnce(&dyn Storage) -> std::io::Result<()>) -> Result<()> {
        let synced = sync(self.storage);
        self.failed |= synced.is_err();
        Ok(synced?)
    }

    fn sync_file(&mut self) -> Result<()> {
        match self.file.take() {
            Some((_, file)) => Ok(file.sync()?),
            None => Ok(()),
        }
    }

    /// Makes durable what was received, and says how far that is.
    fn checkpoint(&mut self) -> Result<()> {
        self.unsynced = 0;
        // What an earlier checkpoint says holds.
        if self.partial.frames == 0 || self.failed {
            return Ok(());
        }
        self.sync_segment()?;
        self.durably(|storage| storage.sync_dir(SEGMENTS))?;
        self.partial.places = blake3::Hash::from(self.places).to_string();
        write_json(self.storage, PARTIAL, &self.partial)
    }

    fn finish(&mut self) -> Result<()> {
        self.sync_segment()?;
        self.sync_file()?;
        self.storage.sync_dir(SEGMENTS)?;
        self.storage.sync_dir(INCREMENTS)?;
        Ok(self.storage.sync_dir("")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed: a stream that called itself the room, or anything at all, was remembered so. From then on this machine refused
    /// the room as older than that, or for a memory that cannot be read, at every place where it was new.
    #[test]
    fn a_whole_stream_has_a_lineage_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("replica");
        let options = OpenOptions {
            state_dir: Some(place.path().join("state")),
            ..OpenOptions::default()
        };
        let receive = |lineage: &str| {
            let whole = stream::sample_of(lineage, [0; 16], [1; 16]);
            receive(&target, &mut &whole[..], &options, &|_, _| true)
        };
        let own = "0123456789abcdef0123456789abcdef";
        for lineage in ["original", "", "one", &own[1..], &format!("{own}\n0")] {
            let refused = receive(lineage).unwrap_err();
            assert!(
                refused.to_string().contains("lineage"),
                "{lineage:?}: {refused}"
            );
        }
        receive(own).unwrap();
    }
}
