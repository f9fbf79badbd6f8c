//! Applying changes that were received to the catalog of a replica.
//!
//! 1. All changes of one file become durable together, by one commit.
//! 2. What the receiver's own snapshots see is kept as when a room changes: rows by the catalog, chunks here.
//! 3. A snapshot that the room has deleted goes here too, unless the changes say that it stays. Nothing that is sent later depends on it.
//! 4. Counts of references are of the receiver's own maps. A unit that may be shared is looked for in all of them first; any
//!    other belongs to one chunk.
//!
//! It deliberately does not read or move data: that is in the segments already.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use catalog::{
    BlockRange, Catalog, Change, Chunk, Extent, InodeNo, KeptChunk, SegmentAccount, SegmentId,
    SegmentNo, SnapshotRow, latest,
};
use model::SnapshotPolicy;

use super::changes::{Item, Reader};
use super::keep::Keep;
use crate::history::{self, History};
use crate::layout::HEADER_REVISION;
use crate::usage::{self, Unit};
use crate::{Error, Result};

/// Bytes of its name that stay of a snapshot's that gets another one: a number, and what makes it unlike others, still fit.
const NAME_KEPT: usize = 200;

fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged(format!("changes that were received: {}", what.into()))
}

/// Applies a file of changes and commits; `number` is its own, which the catalog remembers.
pub(super) fn apply(catalog: &Catalog, changes: &Reader<'_>, number: u64) -> Result<()> {
    let mut shared = HashSet::new();
    changes.for_each(|item| {
        if let Item::Chunk { blocks, .. } = item {
            for extent in decode(&blocks)?.chunk().extents() {
                if extent.shared {
                    shared.extend(history::units(std::slice::from_ref(extent)));
                }
            }
        }
        Ok(())
    })?;
    let accounts = catalog.segments()?.into_iter();
    let mut work = Work {
        catalog,
        accounts: accounts.map(|a| (a.id.no, a)).collect(),
        changed: BTreeSet::new(),
        there: HashSet::new(),
        shared,
        keep: Keep::default(),
        in_room: HashSet::new(),
    };
    work.look_for_shared()?;
    changes.for_each(|item| work.item(item))?;
    work.expire()?;
    work.settle()?;
    let applied = format!("{number} {}", changes.span.to);
    catalog.set_meta(super::APPLIED, applied.as_bytes())?;
    catalog.commit()?;
    Ok(())
}

fn decode(blocks: &[u8]) -> Result<KeptChunk> {
    KeptChunk::decode(blocks).map_err(damaged)
}

struct Work<'a> {
    catalog: &'a Catalog,
    accounts: BTreeMap<SegmentNo, SegmentAccount>,
    changed: BTreeSet<SegmentNo>,
    /// Units that the changes call shared.
    shared: HashSet<Unit>,
    /// Those of them to which something refers.
    there: HashSet<Unit>,
    /// Which snapshots stay that the room has deleted.
    keep: Keep,
    /// Numbers of those that it has.
    in_room: HashSet<u64>,
}

impl Work<'_> {
    /// Finds what refers to units that will be shared, and marks it.
    fn look_for_shared(&mut self) -> Result<()> {
        if self.shared.is_empty() {
            return Ok(());
        }
        let catalog = self.catalog;
        usage::each_chunk(catalog, |inode, index, mut chunk| {
            let unmarked = self.note(&chunk);
            for (first, blocks) in &unmarked {
                chunk.mark_shared(*first, *blocks);
            }
            if !unmarked.is_empty() {
                catalog.apply(&[Change::put_chunk(inode, index, &chunk)])?;
            }
            Ok(())
        })?;
        usage::each_kept(catalog, |mut row| {
            let unmarked = self.note(row.kept.chunk());
            for (first, blocks) in &unmarked {
                row.kept.mark_shared(*first, *blocks);
            }
            if !unmarked.is_empty() {
                catalog.apply(&[Change::keep_chunk(
                    row.inode, row.index, row.until, &row.kept,
                )])?;
            }
            Ok(())
        })
    }

    /// Notes the units of a map that will be shared; the blocks of those that are not marked.
    fn note(&mut self, chunk: &Chunk) -> Vec<(u16, u16)> {
        let mut unmarked = Vec::new();
        for extent in chunk.extents() {
            let mut found = false;
            for unit in history::units(std::slice::from_ref(extent)) {
                if self.shared.contains(&unit) {
                    self.there.insert(unit);
                    found = true;
                }
            }
            if found && !extent.shared {
                unmarked.push((extent.first, extent.blocks));
            }
        }
        unmarked
    }

    fn item(&mut self, item: Item) -> Result<()> {
        let catalog = self.catalog;
        match item {
            Item::Header(revision) => {
                catalog.set_meta(HEADER_REVISION, revision.to_string().as_bytes())?;
            }
            Item::Keep(since) => self.keep.since = Some(since),
            Item::KeepPeriods {
                hourly,
                daily,
                weekly,
            } => {
                self.keep.periods = Some(SnapshotPolicy {
                    hourly,
                    daily,
                    weekly,
                    min_free_percent: 0,
                });
            }
            Item::Snapshots(there) => self.snapshots(&there)?,
            Item::Segment {
                no,
                key_epoch,
                salt,
            } => {
                let id = SegmentId {
                    no,
                    key_epoch,
                    salt,
                };
                let account = self.accounts.entry(no).or_insert(SegmentAccount {
                    id,
                    length: 1,
                    live: 0,
                });
                if account.id != id {
                    return Err(damaged(format!("segment {} is another one here", no.0)));
                }
                self.changed.insert(no);
            }
            Item::PutInode(mut inode) => {
                // Counted with the chunks.
                inode.blocks = catalog.inode(inode.no)?.map_or(0, |there| there.blocks);
                catalog.apply(&[Change::PutInode(&inode)])?;
            }
            Item::RemoveName { parent, name } => {
                catalog.apply(&[Change::remove_entry(parent, &name)])?
            }
            Item::PutName {
                parent,
                name,
                inode,
                kind,
            } => catalog.apply(&[Change::put_entry(parent, &name, inode, kind)])?,
            Item::PutXattr { inode, name, value } => {
                catalog.apply(&[Change::put_xattr(inode, &name, &value)])?
            }
            Item::RemoveXattr { inode, name } => {
                catalog.apply(&[Change::remove_xattr(inode, &name)])?;
            }
            Item::Chunk {
                inode,
                index,
                blocks,
            } => self.chunk(inode, index, &decode(&blocks)?)?,
            Item::DeleteInode(no) => catalog.apply(&[Change::DeleteInode(no)])?,
            Item::Snapshot {
                no,
                name,
                created,
                automatic,
                next_inode,
            } => {
                catalog.skip_inodes(next_inode);
                let mut row = catalog.new_snapshot(&name, created, automatic);
                row.snapshot.number = no;
                catalog.apply(&[Change::CreateSnapshot(&row)])?;
            }
        }
        Ok(())
    }

    /// Deletes snapshots that are gone and cannot stay, and gives the others their names.
    fn snapshots(&mut self, there: &[(u64, String)]) -> Result<()> {
        let names: HashMap<u64, &str> = there.iter().map(|(no, n)| (*no, n.as_str())).collect();
        self.in_room.extend(names.keys());
        let mut renamed = Vec::new();
        let rows = self.catalog.snapshots();
        for row in rows.iter().filter(|row| !row.doomed) {
            let no = row.no();
            match names.get(&no) {
                None if self.keep.may_stay(row.snapshot.created) => {
                    if let Some(name) = other_name(row, there, &rows) {
                        self.catalog
                            .apply(&[Change::RenameSnapshot { no, name: &name }])?;
                    }
                }
                None => self.catalog.apply(&[Change::DoomSnapshot(no)])?,
                Some(name) if *name != row.snapshot.name => renamed.push((no, *name)),
                Some(_) => {}
            }
        }
        // They may have exchanged their names.
        for (no, _) in &renamed {
            let name = format!("{no} {}", seal::RoomId::random());
            let rename = Change::RenameSnapshot {
                no: *no,
                name: &name,
            };
            self.catalog.apply(&[rename])?;
        }
        for (no, name) in renamed {
            self.catalog.apply(&[Change::RenameSnapshot { no, name }])?;
        }
        Ok(())
    }

    /// Deletes what no period keeps, now that every snapshot is there.
    fn expire(&self) -> Result<()> {
        let expired = self.keep.expired(&self.catalog.snapshots());
        for no in expired.iter().filter(|no| !self.in_room.contains(no)) {
            self.catalog.apply(&[Change::DoomSnapshot(*no)])?;
        }
        Ok(())
    }

    /// Replaces blocks of a chunk, and keeps what they were for the newest snapshot, if that knows the file.
    fn chunk(&mut self, no: InodeNo, index: u64, blocks: &KeptChunk) -> Result<()> {
        let snapshots = self.catalog.snapshots();
        let newest = latest(&snapshots).filter(|row| no < row.next_inode);
        let mut history = match newest {
            Some(_) => History::read(self.catalog, no, index)?,
            None => History::of_live(self.catalog, no, index)?,
        };
        let before = history.held();
        let until = newest.map_or(0, |row| row.no());
        let mut references: BTreeMap<Unit, References> = BTreeMap::new();
        let mut live = std::mem::take(&mut history.live);
        let mut kept = history.kept.remove(&until).unwrap_or_default();
        for map in [&live, kept.chunk()] {
            count(&mut references, map, |r| r.before += 1);
        }
        let (allocated, kept_before) = (live.blocks(), kept.clone());
        for (first, count) in blocks.covered_runs() {
            let with = blocks.chunk().slice(first, count);
            match newest {
                Some(_) => drop(kept.replace_in(&mut live, first, count, &with)),
                None => drop(live.replace(first, count, &with)),
            }
        }
        for map in [&live, kept.chunk()] {
            count(&mut references, map, |r| r.after += 1);
        }
        let mut changes = vec![Change::put_chunk(no, index, &live)];
        if kept != kept_before {
            changes.push(Change::keep_chunk(no, index, until, &kept));
        }
        for (unit, references) in references {
            let by = self.refer(unit, &references)?;
            if by != 0 {
                changes.push(Change::share_unit(unit.0, unit.1, by));
            }
        }
        let mut inode = self
            .catalog
            .inode(no)?
            .ok_or_else(|| damaged(format!("inode {} has data and is not there", no.0)))?;
        if live.blocks() != allocated {
            inode.blocks = (inode.blocks + u64::from(live.blocks()))
                .checked_sub(u64::from(allocated))
                .ok_or_else(|| damaged(format!("inode {} has fewer than no blocks", no.0)))?;
            changes.push(Change::PutInode(&inode));
        }
        history.live = live.clone();
        if !kept.is_empty() {
            history.kept.insert(until, kept.clone());
        }
        changes.extend(history::counts(&history::difference(
            &before,
            &history.held(),
        )));
        Ok(self.catalog.apply(&changes)?)
    }

    /// Takes note of the maps of a chunk that refer to a unit; what that changes of the references beyond the first.
    fn refer(&mut self, unit: Unit, references: &References) -> Result<i64> {
        let References {
            before,
            after,
            range,
        } = *references;
        if before == after {
            return Ok(0);
        }
        let account = self.accounts.get_mut(&unit.0).ok_or_else(|| {
            damaged(format!(
                "a file leads to segment {}, which is not named",
                unit.0.0
            ))
        })?;
        self.changed.insert(unit.0);
        account.length = account.length.max(range.position + range.blocks);
        let extra = self.catalog.shared_references(unit.0, unit.1)? as i64;
        let is_there = before > 0 || self.there.contains(&unit);
        let all = if is_there { extra + 1 } else { 0 };
        let now = all + after - before;
        if now < 0 {
            return Err(damaged("a unit would have fewer than no references"));
        }
        if all == 0 {
            account.live += range.blocks;
        }
        if now == 0 {
            account.live = account.live.saturating_sub(range.blocks);
        }
        if self.shared.contains(&unit) {
            match now {
                0 => self.there.remove(&unit),
                _ => self.there.insert(unit),
            };
        }
        Ok((now - 1).max(0) - extra)
    }

    /// Writes the accounts that changed. Segments without any live block go.
    fn settle(&mut self) -> Result<()> {
        for no in &self.changed {
            let account = self.accounts[no];
            self.catalog.apply(&[match account.live {
                0 => Change::DropSegment(*no),
                _ => Change::PutSegment(account),
            }])?;
        }
        Ok(())
    }
}

/// What a snapshot that stays is called, where the room has given its name to another one: with its number behind it.
fn other_name(row: &SnapshotRow, there: &[(u64, String)], rows: &[SnapshotRow]) -> Option<String> {
    let own = &row.snapshot.name;
    if !there.iter().any(|(_, name)| name == own) {
        return None;
    }
    let mut name = own.clone();
    while name.len() > NAME_KEPT {
        name.pop();
    }
    name = format!("{name}-{}", row.no());
    let is_taken = |name: &str| {
        there.iter().any(|(_, other)| other == name)
            || rows.iter().any(|row| row.snapshot.name == name)
    };
    while is_taken(&name) {
        name.push('-');
    }
    Some(name)
}

/// How many maps of a chunk refer to a unit.
struct References {
    before: i64,
    after: i64,
    range: BlockRange,
}

/// Counts the units of a map, each once.
fn count(
    references: &mut BTreeMap<Unit, References>,
    chunk: &Chunk,
    one: impl Fn(&mut References),
) {
    let mut seen = HashSet::new();
    for (range, _) in chunk.extents().iter().flat_map(Extent::units) {
        let unit = (range.segment, range.position);
        if seen.insert(unit) {
            one(references.entry(unit).or_insert(References {
                before: 0,
                after: 0,
                range,
            }));
        }
    }
}
