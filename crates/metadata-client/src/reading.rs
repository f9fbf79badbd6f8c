//! Reading file data: what is on its way from here over what the disks hold.
//!
//! 1. A unit that has not its digest, or fails authentication, is never handed out. It is read once more with a fresh map before it is
//!    reported as damaged: the map may have been old.
//! 2. A read counts only if the server lost nothing meanwhile: its map may lack data that was committed and not yet durable.
//! 3. A disk that does not take the right to read for valid has a fresh map and rights asked for, a bounded number of times.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata_proto::rpc::Map;
use model::{BLOCK_LEN, Error, InodeNo, Piece, Result, Stored, UNIT_BLOCKS, UNIT_LEN, spans};

use super::client::{ClientCore, PAUSE};
use super::disks::{Next, REQUEST_BLOCKS, covering};
use super::errors::gone;
use super::files::{BLOCK, File, Version};
use super::maps::{ChunkMap, Segment, ahead, take};

const CHUNK_LEN: u64 = model::CHUNK_LEN;

/// Why a read with the present map failed.
pub(super) enum Failed {
    /// The server lost something meanwhile.
    Again,
    /// The map or the rights are old.
    Old,
    /// The disk may answer later.
    Later(Error),
    For(Error),
}

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Self::For(e)
    }
}

/// A file's maps: how they are kept, and how they are asked for.
pub(super) struct MapsOf<'a> {
    pub(super) no: InodeNo,
    pub(super) version: Version,
    /// Asks for those of so many chunks from this one on.
    pub(super) ask: &'a dyn Fn(u64, u32) -> Result<Map>,
}

impl ClientCore {
    pub(super) fn read_file(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.files.get_or_new(no);
        if file.state.lock().is_unknown() {
            self.attributes_of(no)?;
        }
        self.judge(&file);
        let len = {
            let state = file.state.lock();
            state.usable()?;
            state.size().saturating_sub(offset).min(buf.len() as u64) as usize
        };
        if len > 0 {
            self.read_range(&file, offset, &mut buf[..len])?;
        }
        file.state.lock().read_end = offset + len as u64;
        Ok(len)
    }

    /// Fills `out` from `offset` on; what is nowhere reads as zeros.
    pub(super) fn read_range(&self, file: &File, offset: u64, out: &mut [u8]) -> Result<()> {
        let (first, last) = (offset / BLOCK, (offset + out.len() as u64 - 1) / BLOCK);
        let (deadline, tried) = (self.deadline(), Cell::new(None));
        let read = || {
            let incarnation = self.incarnation();
            // A new session brings back what the server lost: before the blocks in flight are read.
            self.connected(deadline)?;
            // And may show that another client's data is newer than what was brought back.
            self.judge(file);
            let (overlay, version, count) = {
                let state = file.state.lock();
                let count = match &state.inode {
                    Some(inode) => ahead(state.read_end, inode.size, offset),
                    None => 1,
                };
                (state.overlay(first, last), state.version, count)
            };
            tried.set(Some(version));
            let all_here = overlay.len() as u64 == last - first + 1;
            if !all_here {
                let no = file.no;
                let ask = |index, count| {
                    self.call_for_capability(|client, context, session| async move {
                        client.map(context, session, no, index, count).await
                    })
                };
                let maps = MapsOf {
                    no,
                    version,
                    ask: &ask,
                };
                self.read_stored(&maps, offset, count, out)?;
            }
            if self.incarnation() != incarnation {
                return Err(Failed::Again);
            }
            for (at, block) in &overlay {
                let start = at * BLOCK;
                let (from, to) = (
                    start.max(offset),
                    (start + BLOCK).min(offset + out.len() as u64),
                );
                out[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
            }
            Ok(())
        };
        self.until_read(read, || {
            let mut state = file.state.lock();
            if Some(state.version) == tried.get() {
                state.outdate();
            }
        })
    }

    /// Repeats a read with a fresh map, and while a disk may answer later. `outdate`: the map that was used may be old.
    pub(super) fn until_read(
        &self,
        mut read: impl FnMut() -> std::result::Result<(), Failed>,
        outdate: impl Fn(),
    ) -> Result<()> {
        let deadline = self.deadline();
        let mut pause = Duration::ZERO;
        let mut corrupt_before = false;
        loop {
            match read() {
                Ok(()) => return Ok(()),
                Err(Failed::Again) => continue,
                Err(Failed::For(e @ Error::Corrupt { .. })) if corrupt_before => return Err(e),
                Err(Failed::For(Error::Corrupt { .. })) => corrupt_before = true,
                Err(Failed::For(e)) => return Err(e),
                Err(Failed::Old) if Instant::now() + pause < deadline => {}
                Err(Failed::Old) => {
                    return Err(Error::Unreachable(
                        "a disk that refuses fresh rights".into(),
                    ));
                }
                Err(Failed::Later(_)) if Instant::now() + pause < deadline => {}
                Err(Failed::Later(e)) => return Err(e),
            }
            outdate();
            std::thread::sleep(pause);
            pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
        }
    }

    pub(super) fn read_stored(
        &self,
        of: &MapsOf<'_>,
        offset: u64,
        count: u32,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let end = offset + out.len() as u64;
        let mut at = offset;
        while at < end {
            let index = at / CHUNK_LEN;
            let piece_end = end.min((index + 1).saturating_mul(CHUNK_LEN));
            let piece = &mut out[(at - offset) as usize..(piece_end - offset) as usize];
            let map = self.chunk_map(of, index, count)?;
            self.read_chunk(of.no, index, &map, at - index * CHUNK_LEN, piece)?;
            at = piece_end;
        }
        Ok(())
    }

    /// Reads within one chunk; `start` is a byte offset in it.
    fn read_chunk(
        &self,
        no: InodeNo,
        index: u64,
        map: &ChunkMap,
        start: u64,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let mut rest = out;
        for piece in map.chunk.pieces(start, rest.len()) {
            let (out, more) = rest.split_at_mut(piece.len());
            rest = more;
            let stored = match piece {
                Piece::Hole { .. } => {
                    out.fill(0);
                    continue;
                }
                Piece::Stored(stored) => stored,
            };
            if stored.is_whole() {
                self.open_units(no, index, map, &stored, out)?;
            } else {
                let mut units = vec![0; stored.range.blocks as usize * BLOCK_LEN];
                self.open_units(no, index, map, &stored, &mut units)?;
                out.copy_from_slice(&units[stored.skip..stored.skip + stored.len]);
            }
        }
        Ok(())
    }

    /// Reads and opens whole units.
    fn open_units(
        &self,
        no: InodeNo,
        index: u64,
        map: &ChunkMap,
        stored: &Stored<'_>,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let range = stored.range;
        let segment = map.source.segments.get(&range.segment);
        let segment = segment.ok_or(Failed::Old)?;
        self.read_units(map, segment, range.position, out)?;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::OPENING).entered();
        let mut cipher = segment.keys.cipher();
        let proofs = stored.proofs;
        for ((at, unit), tag) in out.chunks_mut(UNIT_LEN).enumerate().zip(proofs.tags) {
            let position = range.position + at as u32 * UNIT_BLOCKS;
            let opened = seal::check_digest(proofs, at, unit, true)
                .and_then(|()| cipher.open(proofs.nonce, position, tag, unit));
            if opened.is_err() {
                return Err(Failed::For(Error::Corrupt {
                    inode: no,
                    offset: index * CHUNK_LEN + stored.hidden_by(position).0,
                    segment: range.segment.0,
                    position,
                }));
            }
        }
        Ok(())
    }

    /// Fetches sealed units from their disk.
    fn read_units(
        &self,
        map: &ChunkMap,
        segment: &Segment,
        position: u32,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let disk = self.disks.get(segment.disk).ok_or(Failed::Old)?;
        let start = segment.start.checked_add(position.into());
        let mut start = start.ok_or(Failed::Old)?;
        let mut rest = out;
        while !rest.is_empty() {
            let wanted = (rest.len() / BLOCK_LEN).min(REQUEST_BLOCKS as usize) as u64;
            let (ticket, covered) =
                covering(&map.source.tickets, segment.disk, start, wanted).ok_or(Failed::Old)?;
            let (piece, more) = rest.split_at_mut(covered as usize * BLOCK_LEN);
            let network = tracing::trace_span!(target: spans::TARGET, spans::NETWORK).entered();
            let read = disk.read(ticket, start, piece);
            drop(network);
            read.map_err(|e| match self.disks.next(segment.disk, e) {
                Next::AskAgain => Failed::Old,
                Next::Later(e) => Failed::Later(e),
                Next::Never(e) => Failed::For(e),
            })?;
            start += covered;
            rest = more;
        }
        Ok(())
    }

    /// The map of a chunk, fetched with `ahead` that follow if it is not known.
    fn chunk_map(&self, of: &MapsOf<'_>, index: u64, ahead: u32) -> Result<Arc<ChunkMap>> {
        if let Some(known) = self.maps.get(of.no, of.version, index) {
            return Ok(known);
        }
        let count = ahead.clamp(1, 64);
        let map = (of.ask)(index, count).map_err(gone)?;
        let found = take(map, index, count).ok_or_else(|| {
            Error::Io(std::io::Error::other(
                "the metadata server sent an impossible map",
            ))
        })?;
        let first = found.first().cloned();
        self.maps.put(of.no, of.version, index, found);
        first.ok_or_else(|| Error::Io(std::io::Error::other("the metadata server sent no map")))
    }
}
