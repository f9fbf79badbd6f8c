//! The end of a stream that has the key.
//!
//! 1. What the stream refers to stays where it is until it was read: nothing is freed meanwhile. The room can be used.
//! 2. Data comes first, in the order of its places, so that an interrupted transfer goes on at a place; then the changes.
//!    A whole stream carries a catalog to which they were applied.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Catalog, SegmentNo, SnapshotRow};
use seal::{Header, MasterKey, RoomId};
use storage::{OpenMode, Storage, StorageFile};

use super::changes::{self, Span};
use super::difference::{Difference, Places};
use super::keep::Keep;
use super::stream::{self, Begin, DATA_MAX, Name};
use super::{MomentId, ResumeToken, apply};
use crate::blocks::BLOCK;
use crate::layout::{CATALOG, CATALOG_TABLE, HEADER_REVISION, LINEAGE};
use crate::parts::Parts;
use crate::reports::Progress;
use crate::{Error, Result};

/// The name of the changes while they are collected.
const CHANGES: &str = "changes";

/// What is to be sent.
#[derive(Debug, Clone, Default)]
pub struct SendRequest {
    /// The snapshot that the receiver has afterwards.
    pub to: String,
    /// The one that it has: only what changed since is sent. `None`: everything.
    pub since: Option<String>,
    /// Leaves out what an interrupted transfer of the same snapshots brought.
    pub resume: Option<ResumeToken>,
    /// Which of its snapshots the receiver keeps although the room has deleted them.
    pub keep: Keep,
    /// A directory for what is collected before it is sent, sealed: the changes, or a catalog. `None`: the one for temporary files.
    pub scratch: Option<PathBuf>,
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReport {
    /// The moment that the receiver is then.
    pub moment: MomentId,
    /// Bytes of the stream.
    pub sent: u64,
    /// Bytes of data, those left out included.
    pub data: u64,
}

/// Writes a file from its beginning.
struct Append {
    file: Arc<dyn StorageFile>,
    at: u64,
}

impl Write for Append {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The room's key and header as they were when a transfer began.
struct Keys {
    header: Header,
    bytes: Vec<u8>,
    master: MasterKey,
}

impl Keys {
    fn of(parts: &Parts) -> Result<Self> {
        let state = parts.keys.header();
        if state.header.rekey_under_way() {
            return Err(Error::NotSupported(
                "sending a room whose rekey is unfinished: complete it with `strongroom rekey`",
            ));
        }
        Ok(Self {
            header: state.header.clone(),
            bytes: state.bytes.clone(),
            master: state.master.clone(),
        })
    }

    fn moment(&self, row: &SnapshotRow) -> MomentId {
        MomentId::of(&self.master.moment_key(&self.header.room_id()), row)
    }
}

/// The name of a snapshot's moment.
pub(crate) fn moment(parts: &Parts, name: &str) -> Result<MomentId> {
    let row = parts.past.find(name)?;
    Ok(Keys::of(parts)?.moment(&row))
}

/// The snapshot whose moment has this name, if there is one.
pub(crate) fn snapshot_of(parts: &Parts, moment: &MomentId) -> Result<Option<String>> {
    let rows = parts.catalog.get().snapshots();
    if rows.is_empty() {
        return Ok(None);
    }
    let keys = Keys::of(parts)?;
    let mut there = rows.iter().filter(|row| !row.doomed);
    let found = there.find(|row| keys.moment(row) == *moment);
    Ok(found.map(|row| row.snapshot.name.clone()))
}

/// Writes a stream; what is collected before it is in `scratch`.
pub(crate) fn send(
    parts: &Parts,
    request: &SendRequest,
    scratch: &Arc<dyn Storage>,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<SendReport> {
    // One key for header, catalog and what it refers to.
    let swap = parts.catalog.keep();
    let keys = Keys::of(parts)?;
    let to = parts.past.find(&request.to)?;
    let since = match &request.since {
        None => None,
        Some(name) => Some(parts.past.find(name)?),
    };
    if since.as_ref().is_some_and(|since| since.no() >= to.no()) {
        return Err(Error::InvalidArgument(
            "the snapshot to send is not younger than the one that the receiver has",
        ));
    }
    let span = Span {
        since: since
            .as_ref()
            .map_or(MomentId::NONE, |row| keys.moment(row)),
        to: keys.moment(&to),
    };
    // Whatever it is, and whenever it was written.
    let _pin = parts.freed.pin(SegmentNo(u64::MAX));
    let ends = (since.as_ref(), &to);
    let places = collect(parts, &keys, &**scratch, ends, &span, request.keep)?;
    drop(swap);
    let mut begin = Begin {
        room: *keys.header.room_id().as_bytes(),
        epoch: keys.header.epoch(),
        since: span.since.0,
        to: span.to.0,
        skipped: 0,
        places: [0; 32],
        bytes: 0,
        lineage: String::new(),
        generation: 0,
    };
    if since.is_none() {
        (begin.lineage, begin.generation) = build(&keys, scratch)?;
    }
    let runs = places.runs((DATA_MAX / BLOCK) as u32);
    begin.bytes = runs.iter().map(|run| u64::from(run.2) * BLOCK).sum();
    let mut places = stream::no_places(&begin.room, &begin.since, &begin.to);
    if let Some(token) = request.resume {
        let done = usize::try_from(token.frames).unwrap_or(usize::MAX);
        for (segment, block, blocks) in runs.iter().take(done) {
            let len = u64::from(*blocks) * BLOCK;
            places = stream::place_digest(&places, segment.0, *block, len);
        }
        if done > runs.len() || places != token.places {
            return Err(Error::InvalidArgument(
                "the token is of other snapshots, or what was sent has moved since: send without it",
            ));
        }
        (begin.skipped, begin.places) = (token.frames, places);
    }
    let sent = write(parts, &keys, &**scratch, &begin, &runs, out, progress)?;
    Ok(SendReport {
        moment: span.to,
        sent,
        data: begin.bytes,
    })
}

/// Collects the changes in a file, and where their data is.
fn collect(
    parts: &Parts,
    keys: &Keys,
    scratch: &dyn Storage,
    (since, to): (Option<&SnapshotRow>, &SnapshotRow),
    span: &Span,
    keep: Keep,
) -> Result<Places> {
    // Everything that the snapshots refer to is in the segments' files from here on.
    parts.commits.commit_and(|| Ok(()))?;
    // It may be waited for.
    let file = scratch.open(CHANGES, OpenMode::CreateNew)?;
    let _still = parts.past.hold_still();
    let catalog = parts.catalog.get();
    let rows = catalog.snapshots();
    let is_there = |wanted: &SnapshotRow| rows.iter().any(|r| r.no() == wanted.no() && !r.doomed);
    // What is kept for one that was deleted meanwhile may be another's already.
    if !since.into_iter().chain([to]).all(is_there) {
        return Err(Error::NotFound);
    }
    let key = keys
        .master
        .changes_key(&keys.header.room_id(), keys.header.suite());
    let file = BufWriter::with_capacity(DATA_MAX as usize, Append { file, at: 0 });
    let mut writer = changes::Writer::new(&key, file, span)?;
    let places = {
        let mut difference = Difference::new(&catalog, &rows, |item: &_| writer.put(item));
        difference.find(since, to, keys.header.revision(), keep)?;
        difference.places
    };
    writer.finish()?;
    Ok(places)
}

/// Makes the catalog of a whole replica: one of its own lineage, to which the changes are applied. Its lineage and generation.
fn build(keys: &Keys, storage: &Arc<dyn Storage>) -> Result<(String, u64)> {
    let key = keys.header.catalog_key(&keys.master);
    let room = keys.header.room_id();
    let catalog = Catalog::create(storage, CATALOG, &key, &catalog::OpenOptions::default())?;
    // As unlikely to come twice as the id of a room.
    let lineage = RoomId::random().to_string();
    catalog.set_meta("room", room.to_string().as_bytes())?;
    catalog.set_meta(
        HEADER_REVISION,
        keys.header.revision().to_string().as_bytes(),
    )?;
    catalog.set_meta(LINEAGE, lineage.as_bytes())?;
    let file = storage.open(CHANGES, OpenMode::Read)?;
    let changes_key = keys.master.changes_key(&room, keys.header.suite());
    apply::apply(&catalog, &changes::Reader::new(&changes_key, &*file)?, 0)?;
    catalog.checkpoint()?;
    Ok((lineage, catalog.generation()))
}

fn write(
    parts: &Parts,
    keys: &Keys,
    scratch: &dyn Storage,
    begin: &Begin,
    runs: &[(SegmentNo, u32, u32)],
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<u64> {
    let mut writer = stream::Writer::new(out, begin)?;
    let mut buffer = vec![0; DATA_MAX as usize];
    let mut open = None;
    let mut done = 0;
    for (nth, (segment, block, blocks)) in runs.iter().enumerate() {
        let len = u64::from(*blocks) * BLOCK;
        done += len;
        if (nth as u64) < begin.skipped {
            continue;
        }
        let file = match open.take() {
            Some((no, file)) if no == *segment => file,
            _ => {
                let name = segments::file_name(*segment);
                let file = parts.env.storage.open(&name, OpenMode::Read);
                file.map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?
            }
        };
        let part = &mut buffer[..len as usize];
        file.read_at(part, u64::from(*block) * BLOCK).map_err(|e| {
            let what = format!("segment {}, block {block}: {e}", segment.0);
            io::Error::new(e.kind(), what)
        })?;
        writer.data(segment.0, *block, part)?;
        open = Some((*segment, file));
        if !progress(done, begin.bytes) {
            let stopped = io::Error::new(io::ErrorKind::Interrupted, "the transfer was stopped");
            return Err(stopped.into());
        }
    }
    writer.file(Name::Header, 0, &keys.bytes)?;
    let files = match begin.lineage.is_empty() {
        true => vec![(Name::Changes, CHANGES)],
        false => vec![
            (Name::Catalog, CATALOG),
            (Name::CatalogPages, CATALOG_TABLE),
        ],
    };
    for (name, path) in files {
        let file = match scratch.open(path, OpenMode::Read) {
            // A room whose catalog is not vouched for has no table.
            Err(e) if e.kind() == io::ErrorKind::NotFound && name == Name::CatalogPages => {
                continue;
            }
            other => other?,
        };
        let (mut at, len) = (0, file.len()?);
        while at < len {
            let part = &mut buffer[..DATA_MAX.min(len - at) as usize];
            file.read_at(part, at)?;
            writer.file(name, at, part)?;
            at += part.len() as u64;
        }
    }
    Ok(writer.end()?)
}
