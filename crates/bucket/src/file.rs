//! A file as it is open: what is in the store, and what was written since.
//!
//! 1. Reading shows every write before it, durable or not.
//! 2. `changed` has every range whose bytes differ from those of the last commit, so that the next one of this file carries them.
//! 3. Bytes that are in memory stay there until an object that holds them is in the store.
//!
//! It does not know when a commit comes.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::manifest::{FileMap, LENGTH_MAX, Stored};
use crate::names::ObjectName;
use crate::pieces::{Piece, Pieces, Source};
use crate::record::Op;

/// Where bytes of an open file are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Written, and in memory alone.
    Dirty(Bytes),
    /// The same, and on the way into an object.
    Sending(Bytes),
    /// In a commit, which is also kept in memory.
    Inline { stored: Stored, bytes: Bytes },
    /// In an object of so many bytes.
    Stored { stored: Stored, size: u64 },
}

impl Source for Place {
    fn skip(&self, by: u64) -> Self {
        match self {
            Self::Dirty(bytes) => Self::Dirty(bytes.slice(by as usize..)),
            Self::Sending(bytes) => Self::Sending(bytes.slice(by as usize..)),
            Self::Inline { stored, bytes } => Self::Inline {
                stored: stored.skip(by),
                bytes: bytes.slice(by as usize..),
            },
            Self::Stored { stored, size } => Self::Stored {
                stored: stored.skip(by),
                size: *size,
            },
        }
    }

    fn keep(&self, len: u64) -> Self {
        match self {
            Self::Dirty(bytes) => Self::Dirty(bytes.slice(..len as usize)),
            Self::Sending(bytes) => Self::Sending(bytes.slice(..len as usize)),
            Self::Inline { stored, bytes } => Self::Inline {
                stored: *stored,
                bytes: bytes.slice(..len as usize),
            },
            Self::Stored { .. } => self.clone(),
        }
    }

    fn continues(&self, len: u64, next: &Self) -> bool {
        match (self, next) {
            (Self::Stored { stored, .. }, Self::Stored { stored: next, .. }) => {
                stored.continues(len, next)
            }
            _ => false,
        }
    }
}

/// What a read still needs from the store: bytes of the caller's buffer from `to`, and where they are.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) to: usize,
    pub(crate) len: usize,
    pub(crate) stored: Stored,
    pub(crate) size: u64,
}

/// Bytes in memory, and their place in the file.
pub(crate) type Unsent = (u64, Bytes);

/// What a commit carries of one file.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Length, holes, and data that is in objects already.
    pub(crate) ops: Vec<Op>,
    /// Data that is in memory.
    pub(crate) unsent: Vec<Unsent>,
    /// Objects that the changes refer to, and their sizes.
    pub(crate) objects: Vec<(ObjectName, u64)>,
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) number: u64,
    /// It has no name any more: nothing of it is durable again.
    is_removed: AtomicBool,
    state: Mutex<State>,
    sent: Condvar,
}

#[derive(Debug, Default)]
struct State {
    len: u64,
    committed_len: u64,
    pieces: Pieces<Place>,
    changed: Pieces<()>,
    /// Bytes of pieces that are dirty.
    dirty: u64,
    /// Uploads that were begun, by number, and are not done.
    sending: BTreeSet<u64>,
    uploads: u64,
}

impl State {
    fn replace(&mut self, offset: u64, len: u64, place: Option<Place>) {
        let removed = match place {
            Some(place) => {
                if let Place::Dirty(bytes) = &place {
                    self.dirty += bytes.len() as u64;
                }
                self.pieces.put(offset, len, place)
            }
            None => self.pieces.cut(offset, offset + len),
        };
        for piece in removed {
            if let Place::Dirty(_) = piece.source {
                self.dirty -= piece.len;
            }
        }
    }
}

fn end_of(offset: u64, len: u64) -> io::Result<u64> {
    let end = offset.checked_add(len).filter(|end| *end <= LENGTH_MAX);
    end.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

impl File {
    /// A file that is not in the store yet.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            is_removed: AtomicBool::new(false),
            state: Mutex::default(),
            sent: Condvar::new(),
        }
    }

    /// A file as a commit has it; `place` says where bytes of an object are.
    pub(crate) fn of(
        number: u64,
        map: &FileMap,
        place: impl Fn(&Stored, u64) -> io::Result<Place>,
    ) -> io::Result<Self> {
        let file = Self::new(number);
        {
            let mut state = file.state.lock();
            (state.len, state.committed_len) = (map.len, map.len);
            for Piece {
                offset,
                len,
                source,
            } in map.pieces.iter()
            {
                state.pieces.put(offset, len, place(&source, len)?);
            }
        }
        Ok(file)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    pub(crate) fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    pub(crate) fn len(&self) -> u64 {
        self.state.lock().len
    }

    /// Bytes that are no hole.
    pub(crate) fn allocated(&self) -> u64 {
        self.state.lock().pieces.iter().map(|piece| piece.len).sum()
    }

    /// Fills what is in memory or a hole; returns the rest.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<Vec<Wanted>> {
        let state = self.state.lock();
        let end = end_of(offset, buf.len() as u64)?;
        if end > state.len && !buf.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut wanted = Vec::new();
        let mut filled = 0;
        for piece in state.pieces.within(offset, end) {
            let to = (piece.offset - offset) as usize;
            let len = piece.len as usize;
            buf[filled..to].fill(0);
            filled = to + len;
            match &piece.source {
                Place::Dirty(bytes) | Place::Sending(bytes) | Place::Inline { bytes, .. } => {
                    buf[to..filled].copy_from_slice(bytes);
                }
                Place::Stored { stored, size } => wanted.push(Wanted {
                    to,
                    len,
                    stored: *stored,
                    size: *size,
                }),
            }
        }
        buf[filled..].fill(0);
        Ok(wanted)
    }

    /// The last byte before a place of the file, where an object has it.
    pub(crate) fn before(&self, place: u64) -> Option<Stored> {
        let last = place.checked_sub(1)?;
        match self.state.lock().pieces.within(last, place).pop()?.source {
            Place::Stored { stored, .. } => Some(stored),
            _ => None,
        }
    }

    /// Pieces of a range that are in objects.
    pub(crate) fn stored_within(&self, offset: u64, len: u64) -> Vec<(Stored, u64, u64)> {
        let state = self.state.lock();
        let pieces = state
            .pieces
            .within(offset, offset.saturating_add(len).min(state.len));
        pieces
            .into_iter()
            .filter_map(|piece| match piece.source {
                Place::Stored { stored, size } => Some((stored, piece.len, size)),
                _ => None,
            })
            .collect()
    }

    /// Writes; returns the number of bytes that are dirty now.
    pub(crate) fn write(&self, buf: &[u8], offset: u64) -> io::Result<u64> {
        let len = buf.len() as u64;
        let end = end_of(offset, len)?;
        // A hole costs nothing: the file of the log is made of zeros.
        let is_hole = buf.len() >= 4096 && buf.iter().all(|byte| *byte == 0);
        let place = (!is_hole && len > 0).then(|| Place::Dirty(Bytes::copy_from_slice(buf)));
        let mut state = self.state.lock();
        state.replace(offset, len, place);
        state.changed.put(offset, len, ());
        state.len = state.len.max(end);
        Ok(state.dirty)
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        end_of(0, len)?;
        let mut state = self.state.lock();
        if len < state.len {
            let gone = state.len - len;
            state.replace(len, gone, None);
            // Should it grow again before the next commit, these are holes.
            state.changed.put(len, gone, ());
        }
        state.len = len;
        Ok(())
    }

    pub(crate) fn punch(&self, offset: u64, len: u64) {
        let mut state = self.state.lock();
        let end = offset.saturating_add(len).min(state.len);
        if offset < end {
            state.replace(offset, end - offset, None);
            state.changed.put(offset, end - offset, ());
        }
    }

    /// Takes dirty bytes for an upload, in order, until there are `least`, which has to end with [`File::sent`] or [`File::unsendable`].
    /// `None` where there are fewer.
    pub(crate) fn take_for_upload(&self, least: u64) -> Option<(u64, Vec<Unsent>)> {
        let mut state = self.state.lock();
        if state.dirty < least {
            return None;
        }
        let mut taken = Vec::new();
        let mut sum = 0;
        for piece in state.pieces.iter() {
            if let Place::Dirty(bytes) = piece.source {
                sum += piece.len;
                taken.push((piece.offset, bytes));
                if sum >= least {
                    break;
                }
            }
        }
        for (offset, bytes) in &taken {
            state.replace(
                *offset,
                bytes.len() as u64,
                Some(Place::Sending(bytes.clone())),
            );
        }
        state.uploads += 1;
        let upload = state.uploads;
        state.sending.insert(upload);
        Some((upload, taken))
    }

    /// Bytes that were taken are in an object of `size` bytes, one after the other.
    pub(crate) fn sent(&self, upload: u64, taken: &[Unsent], object: ObjectName, size: u64) {
        let mut at = 0;
        for (offset, bytes) in taken {
            let stored = Stored { object, at };
            self.settle(*offset, bytes, |by| Place::Stored {
                stored: stored.skip(by),
                size,
            });
            at += bytes.len() as u64;
        }
        self.unsendable(upload);
    }

    /// An upload is over.
    pub(crate) fn unsendable(&self, upload: u64) {
        self.state.lock().sending.remove(&upload);
        self.sent.notify_all();
    }

    /// Waits for the uploads that were begun before.
    pub(crate) fn wait_for_uploads(&self) {
        let mut state = self.state.lock();
        let last = state.uploads;
        while state.sending.first().is_some_and(|first| *first <= last) {
            self.sent.wait(&mut state);
        }
    }

    /// What is still the memory of `bytes` has another place from now on: `place` of that many bytes behind its begin.
    pub(crate) fn settle(&self, offset: u64, bytes: &Bytes, place: impl Fn(u64) -> Place) {
        let mut state = self.state.lock();
        for piece in state.pieces.within(offset, offset + bytes.len() as u64) {
            let by = piece.offset - offset;
            let (Place::Dirty(memory) | Place::Sending(memory)) = &piece.source else {
                continue;
            };
            if memory.as_ptr() == bytes[by as usize..].as_ptr() {
                state.replace(piece.offset, piece.len, Some(place(by).keep(piece.len)));
            }
        }
    }

    /// Bytes of one object are in another one too: there they are read from now on.
    pub(crate) fn relocate(&self, offset: u64, len: u64, from: Stored, to: &Place) {
        let mut state = self.state.lock();
        for piece in state.pieces.within(offset, offset + len) {
            let by = piece.offset - offset;
            let (Place::Inline { stored, .. } | Place::Stored { stored, .. }) = &piece.source
            else {
                continue;
            };
            if *stored == from.skip(by) {
                state.replace(piece.offset, piece.len, Some(to.skip(by).keep(piece.len)));
            }
        }
    }

    /// Takes what the next commit carries of this file.
    pub(crate) fn take_changes(&self) -> Changes {
        let mut state = self.state.lock();
        let mut changes = Changes::default();
        let file = self.number;
        let len = state.len;
        if len != state.committed_len {
            changes.ops.push(Op::Length { file, len });
            state.committed_len = len;
        }
        let changed = std::mem::take(&mut state.changed);
        for range in changed.iter() {
            let (from, to) = (range.offset.min(len), (range.offset + range.len).min(len));
            let mut filled = from;
            let hole = |from: u64, to: u64, ops: &mut Vec<Op>| {
                if from < to {
                    ops.push(Op::Hole {
                        file,
                        offset: from,
                        len: to - from,
                    });
                }
            };
            for piece in state.pieces.within(from, to) {
                hole(filled, piece.offset, &mut changes.ops);
                filled = piece.offset + piece.len;
                match piece.source {
                    Place::Dirty(bytes) | Place::Sending(bytes) => {
                        changes.unsent.push((piece.offset, bytes));
                    }
                    Place::Stored { stored, size } => {
                        changes.objects.push((stored.object, size));
                        changes
                            .ops
                            .push(data(file, piece.offset, piece.len, stored));
                    }
                    Place::Inline { stored, .. } => {
                        changes
                            .ops
                            .push(data(file, piece.offset, piece.len, stored));
                    }
                }
            }
            hole(filled, to, &mut changes.ops);
        }
        changes
    }

    /// Objects that the file has bytes in.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectName> {
        let state = self.state.lock();
        let stored = state.pieces.iter().filter_map(|piece| match piece.source {
            Place::Stored { stored, .. } => Some(stored.object),
            _ => None,
        });
        stored.collect()
    }
}

/// A file's range has bytes of an object.
pub(crate) fn data(file: u64, offset: u64, len: u64, stored: Stored) -> Op {
    Op::Data {
        file,
        offset,
        len,
        object: stored.object,
        at: stored.at,
    }
}
