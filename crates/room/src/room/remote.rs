//! What a program that serves a room to other machines asks of it.

use std::collections::HashMap;
use std::ops::Range;

use catalog::{Chunk, InodeNo, SegmentNo};
use model::{Timestamp, WriteGrantId, WrittenExtent};
use seal::PositionKeys;

use super::Room;
use crate::grants::WriteGrant;
use crate::{Error, Quota, Result, Used};

/// Longest name of a note, in bytes.
const NOTE_NAME_MAX: usize = 64;
/// Longest note, in bytes.
const NOTE_MAX: usize = 16 << 20;

impl Room {
    /// Grants `blocks` blocks (1 to 1024) of a segment; fewer where the segment ends, but at least 256 or what was asked
    /// for. `lane` chooses among several open segments (64, taken modulo 64), so that clients write in parallel. Only a room
    /// whose segments are [on network disks](crate::OpenOptions::network_backed) grants writes.
    pub fn grant(&self, lane: usize, blocks: u32) -> Result<WriteGrant> {
        self.parts()?.remote.grant(lane, blocks)
    }

    /// Ends a grant: its client will neither write there nor commit written data any more.
    pub fn settle_grant(&self, grant: WriteGrantId) {
        if let Ok(parts) = self.parts() {
            parts.remote.settle_grant(grant);
        }
    }

    /// The keys of the units at these positions of a segment, and of no others; `None` where the catalog knows no such segment.
    /// None at all of a segment sealed before the room had such keys: a rekey seals its data again.
    pub fn position_keys(
        &self,
        segment: SegmentNo,
        positions: &[Range<u32>],
    ) -> Result<Option<PositionKeys>> {
        Ok(self
            .parts()?
            .blocks
            .segments()
            .position_keys(segment, positions)?)
    }

    /// Commits extents that were written under a grant to a file, all of them or, where it fails, none as a rule.
    /// `InvalidArgument` where one is not within the grant, was committed before, or does not fit into a chunk; `NotFound` where
    /// the grant is over or the file is gone. Returns the [stamp](Self::stamp) that covers it.
    pub fn place(
        &self,
        grant: WriteGrantId,
        no: InodeNo,
        extents: &[WrittenExtent],
    ) -> Result<u64> {
        self.place_onto(grant, no, extents, None)?;
        Ok(self.stamp())
    }

    /// The same, onto a file whose contents nobody has changed since a moment: `onto` is the modification time that it had then, and every
    /// change of data gives it another one. `None` where it has another one; nothing is committed then. Returns the times before and after.
    pub fn place_onto(
        &self,
        grant: WriteGrantId,
        no: InodeNo,
        extents: &[WrittenExtent],
        onto: Option<Timestamp>,
    ) -> Result<Option<[Timestamp; 2]>> {
        self.parts()?
            .remote
            .commit_extents(grant, no, extents, onto)
    }

    /// The newest maps of those of the `count` chunks (at most 1024) from index `first` on that are not holes.
    pub fn maps(&self, no: InodeNo, first: u64, count: usize) -> Result<Vec<(u64, Chunk)>> {
        self.parts()?.remote.maps(no, first, count)
    }

    /// The same of a snapshot, by its number: see [`snapshot_of_number`](Self::snapshot_of_number). `Stale` where it was deleted.
    pub fn past_maps(
        &self,
        snapshot: u64,
        no: InodeNo,
        first: u64,
        count: usize,
    ) -> Result<Vec<(u64, Chunk)>> {
        self.parts()?.remote.past_maps(snapshot, no, first, count)
    }

    /// A number that no file has had: all that are made from now on have higher ones.
    pub fn unused_inode(&self) -> Result<InodeNo> {
        Ok(self.parts()?.catalog.get().new_inode())
    }

    /// Counts changes; what is at or below [`settled`](Self::settled) is durable.
    pub fn stamp(&self) -> u64 {
        self.parts.commits.changes()
    }

    /// The stamp that the last commit or record of the log covered.
    pub fn settled(&self) -> u64 {
        self.parts.commits.durable()
    }

    /// [`sync`](crate::FileSystem::sync) for names and attributes. Data that clients [committed](Self::place) to new blocks, and
    /// that no sync covered yet, becomes durable later: no network disk is flushed for a name.
    pub fn sync_names(&self) -> Result<()> {
        self.parts()?.commits.sync_names_or_defer()
    }

    /// Sets how much the owners of files may have, by number, in the place of all earlier quotas. The first call counts what
    /// there is, which reads every inode while nothing is changed. Writing and creating beyond a quota is refused as
    /// `QuotaExceeded` for everybody; so is a change of owner. Quotas are not stored: the program sets them again when it opens
    /// the room.
    pub fn set_quotas(&self, quotas: HashMap<u32, Quota>) -> Result<()> {
        let parts = self.parts()?;
        let owners = parts.data.owners();
        owners.set_quotas(quotas);
        if owners.is_counting() {
            return Ok(());
        }
        parts.commits.at_rest(|| {
            let catalog = parts.catalog.get();
            owners.count(&catalog)
        })
    }

    /// What an owner has and may have; `None` where [`set_quotas`](Self::set_quotas) was not called yet.
    pub fn used_by(&self, owner: u32) -> Option<(Used, Quota)> {
        self.parts.data.owners().of(owner)
    }

    /// A value that a program keeps in the room beside the files, sealed and authenticated with the catalog. The name has 1 to
    /// 64 bytes.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.parts()?.catalog.get().meta(&note_key(name)?)?)
    }

    /// Sets it, at most 16 MiB; durable when this returns. `InTransaction` where that waits for the end of one.
    pub fn set_note(&self, name: &str, value: &[u8]) -> Result<()> {
        self.parts()?.commits.check_no_transaction()?;
        self.put_note(name, value)?;
        self.parts()?.commits.sync()
    }

    /// The same as [`sync_names`](Self::sync_names) does it: no network disk is flushed for the note.
    pub fn set_note_as_name(&self, name: &str, value: &[u8]) -> Result<()> {
        self.put_note(name, value)?;
        self.sync_names()
    }

    fn put_note(&self, name: &str, value: &[u8]) -> Result<()> {
        let key = note_key(name)?;
        if value.len() > NOTE_MAX {
            return Err(Error::InvalidArgument("a note has at most 16 MiB"));
        }
        // No segment space is needed: notes record where the disks are, also while no disk is attached.
        let parts = self.parts()?;
        let _change = parts.commits.change()?;
        Ok(parts.catalog.get().set_meta(&key, value)?)
    }
}

/// The catalog's name of a note, which none of its own is like.
fn note_key(name: &str) -> Result<String> {
    match name.len() {
        1..=NOTE_NAME_MAX => Ok(format!("note:{name}")),
        _ => Err(Error::InvalidArgument("a note's name has 1 to 64 bytes")),
    }
}
