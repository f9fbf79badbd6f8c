//! Segments as files in the directory [`SEGMENTS_DIR`] of a room.
//!
//! 1. A reservation hands each position of a segment out once; what fails after it leaves the position unused.
//! 2. Segments known when the store was opened are never appended to, and numbers of files found then are passed over.
//! 3. Locks nest in one order: the lanes, the tail, a segment's making, then the ledger, the known segments, the readers. None is
//!    held while data is sealed, written, read or synced; the tail is while zeros are written ahead of it.
//!
//! It deliberately does not know which ranges are alive, and keeps no tags or digests.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use storage::{OpenMode, Storage, StorageFile, spans};

use crate::buffers::Buffers;
use crate::extent::{merge, offset, read_whole_units};
use crate::lanes::Lanes;
use crate::ledger::{Due, Ledger};
use crate::readers::{Reader, Readers};
use crate::tail::{Closed, Tail};
use crate::writing::Writing;
use crate::{
    APPEND_BLOCKS_MAX, BLOCK_LEN, BlockRange, INCOMING_SUFFIX, Keyring, Proofs, SEGMENTS_DIR,
    Sealed, SealedUnits, SegmentError, SegmentFile, SegmentId, SegmentNo, Tags, UNIT_BLOCKS,
    UNIT_LEN, file_name, header, parse_file_name,
};

/// The segments of one room in a directory.
#[derive(Debug)]
pub struct DirStore {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) keyring: RwLock<Arc<Keyring>>,
    pub(crate) tail: Mutex<Tail>,
    pub(crate) lanes: Mutex<Lanes>,
    pub(crate) known: RwLock<HashMap<SegmentNo, SegmentId>>,
    begun: Mutex<Vec<SegmentId>>,
    readers: Readers,
    buffers: Buffers,
    pub(crate) ledger: Ledger,
    flushing: Mutex<()>,
    poisoned: AtomicBool,
    cannot_punch: AtomicBool,
}

impl DirStore {
    /// Opens the segments in `storage`. `known` are the segments the catalog knows, `next` is a number above all of
    /// theirs. The directory is made when the first segment is.
    ///
    /// # Errors
    /// `Io` when the directory is there and cannot be listed.
    pub fn open(
        storage: Arc<dyn Storage>,
        keyring: Keyring,
        known: Vec<SegmentId>,
        next: SegmentNo,
    ) -> Result<Self, SegmentError> {
        let names = storage::list_if_there(&*storage, SEGMENTS_DIR)?;
        let known: HashMap<_, _> = known.into_iter().map(|id| (id.no, id)).collect();
        // Whatever the caller says, a number that is known or has a file is not used again.
        let next = known
            .keys()
            .map(|no| no.0 + 1)
            .chain([next.0, 1])
            .max()
            .unwrap_or(1);
        let found = names
            .iter()
            .filter_map(|name| parse_file_name(name))
            .map(|no| no.0);
        Ok(Self {
            tail: Mutex::new(Tail::new(next, found)),
            storage,
            keyring: RwLock::new(Arc::new(keyring)),
            known: RwLock::new(known),
            lanes: Mutex::default(),
            begun: Mutex::default(),
            readers: Readers::default(),
            buffers: Buffers::default(),
            ledger: Ledger::default(),
            flushing: Mutex::default(),
            poisoned: AtomicBool::new(false),
            cannot_punch: AtomicBool::new(false),
        })
    }

    /// Seals from now on under the current epoch of another keyring: the open segment is closed. An append under way in
    /// another thread may still go into it.
    pub fn set_keyring(&self, keyring: Keyring) {
        let closed = {
            let mut lanes = self.lanes.lock();
            let mut tail = self.tail.lock();
            *self.keyring.write() = Arc::new(keyring);
            lanes.close().into_iter().chain(tail.close())
        };
        // A keyring that no longer has an epoch shall not leave keys of it behind.
        self.readers.clear();
        self.cut(closed);
    }

    pub(crate) fn usable(&self) -> Result<(), SegmentError> {
        if self.poisoned.load(Ordering::Acquire) {
            Err(SegmentError::Poisoned)
        } else {
            Ok(())
        }
    }

    /// Takes `blocks` positions of the open segment, or of a new one.
    pub(crate) fn reserve(&self, blocks: u32) -> Result<(Arc<Writing>, u32), SegmentError> {
        let mut tail = self.tail.lock();
        if let Some(taken) = tail.take(blocks) {
            return Ok(taken);
        }
        let begun = self.begin(&mut tail)?;
        let closed = tail.begin(begun);
        // A segment just begun has room for any append.
        let taken = tail
            .take(blocks)
            .expect("an append fits in an empty segment");
        drop(tail);
        self.cut(closed);
        Ok(taken)
    }

    /// Frees what closed segments did not use, where their storage set it aside. Positions behind the end had no user.
    pub(crate) fn cut(&self, closed: impl IntoIterator<Item = Closed>) {
        for (writing, end) in closed {
            if let Some(file) = writing.made()
                && let Err(e) = cut(&**file, end)
            {
                tracing::warn!("segment {}: its unused end is kept: {e}", writing.id.no.0);
            }
        }
    }

    /// Frees what a closed segment does not need, where its storage set it aside: all but the first `blocks`.
    ///
    /// # Errors
    /// `Io` where the storage fails.
    pub fn cut_to(&self, segment: SegmentNo, blocks: u32) -> Result<(), SegmentError> {
        match self
            .storage
            .open(&file_name(segment), OpenMode::ReadWrite)
            .and_then(|file| cut(&*file, blocks))
        {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Takes positions in a segment whose file is there, and is long enough.
    fn reserve_made(&self, blocks: u32) -> Result<(Arc<Writing>, u32), SegmentError> {
        loop {
            let (writing, position) = self.reserve(blocks)?;
            self.file_of(&writing)?;
            if position + blocks <= writing.capacity() {
                return Ok((writing, position));
            }
            // Taken before it was known how short it is. The first who took some of it fits.
            self.close_if_open(writing.id.no);
        }
    }

    /// A fresh segment, whose file is not made yet.
    pub(crate) fn begin(&self, tail: &mut Tail) -> Result<Arc<Writing>, SegmentError> {
        let keyring = self.keyring.read().clone();
        let id = SegmentId {
            no: tail.number(),
            key_epoch: keyring.current(),
            salt: fresh_salt()?,
        };
        // The keyring has the keys of its current epoch by construction.
        let keys = keyring
            .unit_keys(&id)
            .expect("a keyring holds its current epoch");
        Ok(Arc::new(Writing::new(id, Arc::new(keys), keyring)))
    }

    /// The file of the segment reserved in, created by the first caller.
    pub(crate) fn file_of<'w>(
        &self,
        writing: &'w Arc<Writing>,
    ) -> Result<&'w Arc<dyn StorageFile>, SegmentError> {
        let made = |file: &Arc<dyn StorageFile>| {
            let id = writing.id;
            self.ledger.made(id.no, file);
            self.known.write().insert(id.no, id);
            self.readers.put(
                id.no,
                Arc::new(Reader {
                    file: file.clone(),
                    keys: writing.keys.clone(),
                }),
            );
            self.begun.lock().push(id);
        };
        writing.file(&*self.storage, made).map_err(|e| {
            self.close_if_open(writing.id.no);
            e.into()
        })
    }

    pub(crate) fn close_if_open(&self, no: SegmentNo) {
        let lane = self.lanes.lock().close_if(no);
        let tail = self.tail.lock().close_if(no);
        self.cut(lane.into_iter().chain(tail));
    }

    /// The file and key of a segment; `position` is where the caller wants to read.
    fn reader(&self, no: SegmentNo, position: u32) -> Result<Arc<Reader>, SegmentError> {
        if let Some(reader) = self.readers.get(no) {
            return Ok(reader);
        }
        let missing = SegmentError::Missing {
            segment: no,
            position,
        };
        let Some(id) = self.known.read().get(&no).copied() else {
            return Err(missing);
        };
        let keys = self.keyring.read().unit_keys(&id);
        let keys = keys.ok_or(SegmentError::UnknownEpoch {
            segment: no,
            key_epoch: id.key_epoch,
        })?;
        let file = match self.storage.open(&file_name(no), OpenMode::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing),
            other => other?,
        };
        let reader = Arc::new(Reader {
            file,
            keys: Arc::new(keys),
        });
        self.readers.put(no, reader.clone());
        Ok(reader)
    }

    /// Reads and opens until a unit fails. The second value is how many bytes of `out` are good.
    fn read_units(
        &self,
        range: BlockRange,
        proofs: Proofs<'_>,
        out: &mut [u8],
    ) -> (Result<(), SegmentError>, usize) {
        let reader = match self.reader(range.segment, range.position) {
            Ok(reader) => reader,
            Err(e) => return (Err(e), 0),
        };
        let (there, cut) = match read_whole_units(&*reader.file, offset(range.position), out) {
            Ok(there) if there == out.len() => (there, Ok(())),
            Ok(there) => {
                let position = range.position + (there / BLOCK_LEN) as u32;
                (
                    there,
                    Err(SegmentError::Missing {
                        segment: range.segment,
                        position,
                    }),
                )
            }
            Err(e) => return (Err(e.into()), 0),
        };
        let mut block = range.position;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::OPENING).entered();
        let mut cipher = reader.keys.cipher();
        let are_given = reader.keys.are_given();
        let units = out[..there].chunks_mut(UNIT_LEN).zip(proofs.tags);
        for (index, (unit, tag)) in units.enumerate() {
            let opened = seal::check_digest(proofs, index, unit, are_given)
                .and_then(|()| cipher.open(proofs.nonce, block, tag, unit));
            if opened.is_err() {
                let corrupt = SegmentError::Corrupt {
                    segment: range.segment,
                    position: block,
                };
                return (Err(corrupt), index * UNIT_LEN);
            }
            block += UNIT_BLOCKS;
        }
        (cut, there)
    }

    /// Takes what was appended since the last flush, and not taken before, for another place to make durable. The next flush
    /// does it too. `None` where only a flush can: much was appended, a segment was begun, or another flush is under way.
    pub fn take_unflushed(&self) -> Option<Vec<SealedUnits>> {
        self.ledger.take_copies()
    }

    /// Nobody made durable what was [taken](Self::take_unflushed) last: the next flush does.
    pub fn put_unflushed_back(&self) {
        self.ledger.not_made_durable();
    }

    /// Writes zeros after the open segment's last position when that will spare later flushes work.
    fn write_ahead(&self, due: &Due) {
        // Under the lock: no position may be handed out and written while zeros go there.
        let mut tail = self.tail.lock();
        if let Some((writing, from, blocks)) = tail.write_ahead(due)
            && let Some(file) = writing.made()
        {
            let len = blocks as usize * BLOCK_LEN;
            let done = self.buffers.with(len, |zeros| {
                zeros.fill(0);
                file.write_at(zeros, offset(from))
            });
            // Not needed for anything: a disk too full for zeros may still take data.
            if let Err(e) = done {
                tracing::debug!(error = %e, "no zeros written ahead");
            }
        }
    }

    fn sync_due(&self) -> io::Result<()> {
        let Some(due) = self.ledger.take() else {
            return Ok(());
        };
        self.write_ahead(&due);
        for file in due.files.values() {
            file.sync()?;
        }
        if due.names {
            self.storage.sync_dir(SEGMENTS_DIR)?;
        }
        self.ledger.settled();
        Ok(())
    }
}

impl DirStore {
    /// Seals `plain` (a multiple of [`BLOCK_LEN`], 1 to [`APPEND_BLOCKS_MAX`] blocks) and writes it once, to a fresh
    /// place. Not durable before [`flush`](Self::flush). `NoSpace` leaves nothing behind that matters.
    pub fn append(&self, plain: &[u8]) -> Result<Sealed, SegmentError> {
        let blocks = (plain.len() / BLOCK_LEN) as u32;
        assert!(
            plain.len().is_multiple_of(BLOCK_LEN) && (1..=APPEND_BLOCKS_MAX).contains(&blocks),
            "an append of {} bytes: it has 1 to {APPEND_BLOCKS_MAX} blocks of {BLOCK_LEN}",
            plain.len()
        );
        self.usable()?;
        let (writing, position) = self.reserve_made(blocks)?;
        // As late as can be: a copy of this memory that was taken before draws another one.
        let nonce = seal::nonce_part(self.append_nonces())?;
        let units = plain.len().div_ceil(UNIT_LEN);
        let mut tags = Tags::with_capacity(units);
        let mut digests = Vec::new();
        if writing.keys.are_given() {
            digests.reserve_exact(units);
        }
        self.buffers.with(plain.len(), |sealed| {
            let mut block = position;
            let mut cipher = writing.keys.cipher();
            let sealing = tracing::trace_span!(target: spans::TARGET, spans::SEALING).entered();
            for (unit, plain) in sealed.chunks_mut(UNIT_LEN).zip(plain.chunks(UNIT_LEN)) {
                unit.copy_from_slice(plain);
                tags.push(cipher.seal(nonce, block, unit));
                if writing.keys.are_given() {
                    digests.push(seal::unit_digest(unit));
                }
                block += UNIT_BLOCKS;
            }
            drop(sealing);
            let file = self.file_of(&writing)?;
            file.write_at(sealed, offset(position))?;
            self.ledger.written(writing.id.no, file, position, sealed);
            Ok(Sealed {
                segment: writing.id.no,
                position,
                blocks,
                nonce,
                tags,
                digests,
            })
        })
    }

    /// Reads whole units of one append: `out` has the length of `range`, whose first block is the first of a unit; `proofs` has the
    /// append's nonce part, and a tag, and in rooms whose clients write a digest, for each unit of [`UNIT_BLOCKS`] blocks, the last possibly shorter. On `Corrupt` and `Missing` the contents of
    /// `out` from that unit on are zeros; `position` names the first unit that failed.
    pub fn read(
        &self,
        range: BlockRange,
        proofs: Proofs<'_>,
        out: &mut [u8],
    ) -> Result<(), SegmentError> {
        assert_eq!(
            out.len(),
            range.blocks as usize * BLOCK_LEN,
            "a buffer has the length of its range"
        );
        assert!(
            proofs.fit(out.len().div_ceil(UNIT_LEN)),
            "each unit has a tag, and a digest where any has"
        );
        let (result, good) = self.read_units(range, proofs, out);
        if result.is_err() {
            out[good..].fill(0);
        }
        result
    }

    /// Reads a part of whole units: as [`read`](Self::read), but only the bytes from `skip` on that fill `out`.
    pub fn read_part(
        &self,
        range: BlockRange,
        proofs: Proofs<'_>,
        skip: usize,
        out: &mut [u8],
    ) -> Result<(), SegmentError> {
        self.buffers
            .with(range.blocks as usize * BLOCK_LEN, |units| {
                self.read(range, proofs, units)?;
                out.copy_from_slice(&units[skip..][..out.len()]);
                Ok(())
            })
    }

    /// Says that a range will be read soon.
    pub fn prefetch(&self, range: BlockRange) {
        if let Ok(reader) = self.reader(range.segment, range.position) {
            reader
                .file
                .prefetch(offset(range.position), offset(range.blocks));
        }
    }

    /// Makes everything appended so far durable, file names included.
    pub fn flush(&self) -> Result<(), SegmentError> {
        // One at a time: a second flush returns after the first has made durable what it took.
        let _one = {
            let _span = tracing::trace_span!(target: spans::TARGET, spans::WAITING).entered();
            self.flushing.lock()
        };
        self.usable()?;
        self.sync_due().map_err(|e| {
            self.poisoned.store(true, Ordering::Release);
            tracing::error!(error = %e, "segments could not be made durable");
            e.into()
        })
    }

    /// Whether anything was appended since the last flush.
    pub fn is_dirty(&self) -> bool {
        self.ledger.is_dirty()
    }

    /// Segments begun since this was last called: the catalog must know them before it refers to them.
    pub fn take_new(&self) -> Vec<SegmentId> {
        std::mem::take(&mut self.begun.lock())
    }

    /// The segment now appended to, if any, and its length in blocks.
    pub fn open_segment(&self) -> Option<(SegmentNo, u32)> {
        self.tail.lock().open()
    }

    /// Closes the open segment, and those of the lanes: the next append or grant begins another.
    pub fn rotate(&self) -> Result<(), SegmentError> {
        self.usable()?;
        let lanes = self.lanes.lock().close();
        let tail = self.tail.lock().close();
        self.cut(lanes.into_iter().chain(tail));
        Ok(())
    }

    /// Gives the space of dead ranges back where the storage can. Nothing may refer to them any more.
    pub fn release(&self, ranges: &[BlockRange]) -> Result<(), SegmentError> {
        if self.cannot_punch.load(Ordering::Relaxed) {
            return Ok(());
        }
        let merged = merge(ranges);
        for of_segment in merged.chunk_by(|a, b| a.segment == b.segment) {
            let file = match self
                .storage
                .open(&file_name(of_segment[0].segment), OpenMode::ReadWrite)
            {
                // It has no space left to free.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            for range in of_segment {
                match file.punch(offset(range.position), offset(range.blocks)) {
                    Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                        tracing::info!(
                            "the storage cannot punch holes: dead ranges stay until their segment goes"
                        );
                        self.cannot_punch.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Deletes a dead segment.
    pub fn remove(&self, segment: SegmentNo) -> Result<(), SegmentError> {
        self.close_if_open(segment);
        match self.storage.remove(&file_name(segment)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        self.known.write().remove(&segment);
        self.readers.forget(segment);
        Ok(())
    }

    /// The files of the segments present in the storage, by number.
    pub fn list(&self) -> Result<Vec<SegmentFile>, SegmentError> {
        let names = storage::list_if_there(&*self.storage, SEGMENTS_DIR)?;
        let mut segments = Vec::with_capacity(names.len());
        for name in names {
            let Some(no) = parse_file_name(&name) else {
                if name.ends_with(INCOMING_SUFFIX) {
                    continue;
                }
                tracing::warn!(%name, "a file among the segments is not one; it is left alone");
                continue;
            };
            match self.storage.open(&file_name(no), OpenMode::Read) {
                // Removed since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => {
                    let file = other?;
                    segments.push(SegmentFile {
                        no,
                        len: file.len()?,
                        allocated: file.allocated()?,
                    });
                }
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    /// Checks a segment's own header against what the catalog knows of it.
    pub fn check_header(&self, segment: SegmentNo) -> Result<(), SegmentError> {
        let missing = SegmentError::Missing {
            segment,
            position: 0,
        };
        let Some(id) = self.known.read().get(&segment).copied() else {
            return Err(missing);
        };
        let keyring = self.keyring.read().clone();
        let mut block = [0; BLOCK_LEN];
        let read = self
            .storage
            .open(&file_name(segment), OpenMode::Read)
            .and_then(|f| f.read_at(&mut block, 0));
        match read {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Err(missing)
            }
            Err(e) => Err(e.into()),
            Ok(()) => header::check(&block, &id, &keyring)
                .map_err(|problem| SegmentError::Header { segment, problem }),
        }
    }
}

fn cut(file: &dyn StorageFile, blocks: u32) -> io::Result<()> {
    match file.capacity()? {
        Some(bytes) if bytes > offset(blocks) => file.set_len(offset(blocks)),
        _ => Ok(()),
    }
}

fn fresh_salt() -> Result<[u8; 32], SegmentError> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    Ok(salt)
}
