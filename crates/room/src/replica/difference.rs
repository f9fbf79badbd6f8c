//! Finding what is different between two snapshots: in the rows that are kept for the ones between them, and among what is younger.
//!
//! 1. The time it takes follows what changed, not the room: changed rows are found by the snapshot until which they are kept, new
//!    inodes by their number, new names by their cookie, in directories that are new or changed.
//! 2. Between two snapshots that are next to each other only deleted ones are left; nothing of these moves meanwhile.
//! 3. Each step between two snapshots that are not deleted is complete, and ends with the later one.
//!
//! It deliberately does not know how changes are written or sent.

use std::collections::{BTreeMap, HashMap, HashSet};

use catalog::{
    Catalog, Chunk, DirEntry, Extent, FileKind, InodeNo, KeptChunk, SegmentId, SegmentNo,
    SnapshotRow,
};

use super::changes::Item;
use super::keep::Keep;
use crate::{Error, Result};

const PAGE: usize = 256;
/// Chunks read at once.
const CHUNKS: usize = 16;

/// The blocks of segments that changes refer to.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<SegmentNo, Vec<(u32, u32)>>);

impl Places {
    fn add(&mut self, extent: &Extent) {
        let range = extent.range();
        // With the header, by which a segment is checked.
        let runs = self.0.entry(range.segment).or_insert_with(|| vec![(0, 1)]);
        let (first, end) = (range.position, range.position + range.blocks);
        match runs.last_mut() {
            Some((_, last)) if *last == first => *last = end,
            _ => runs.push((first, end)),
        }
    }

    /// Runs of blocks in order, none longer than `most` blocks: segment, first block, number of blocks.
    pub(super) fn runs(mut self, most: u32) -> Vec<(SegmentNo, u32, u32)> {
        let mut out = Vec::new();
        for (segment, runs) in &mut self.0 {
            runs.sort_unstable();
            let mut merged: Vec<(u32, u32)> = Vec::new();
            for (first, end) in runs.drain(..) {
                match merged.last_mut() {
                    Some((_, last)) if first <= *last => *last = end.max(*last),
                    _ => merged.push((first, end)),
                }
            }
            for (first, end) in merged {
                let mut at = first;
                while at < end {
                    let blocks = most.min(end - at);
                    out.push((*segment, at, blocks));
                    at += blocks;
                }
            }
        }
        out
    }
}

/// Finds changes and gives each to `put`.
pub(super) struct Difference<'a, P> {
    pub(super) catalog: &'a Catalog,
    /// The snapshots, as they were at one moment of the search: those that are deleted later are sent.
    rows: &'a [SnapshotRow],
    pub(super) put: P,
    pub(super) places: Places,
    named: HashSet<SegmentNo>,
    segments: HashMap<SegmentNo, SegmentId>,
}

/// Two snapshots that are next to each other.
struct Step<'a> {
    before: Option<&'a SnapshotRow>,
    after: &'a SnapshotRow,
    /// Snapshots until which something is kept that the later one does not see: `before`, and deleted ones.
    untils: Vec<u64>,
}

impl Step<'_> {
    fn first_new_inode(&self) -> InodeNo {
        self.before.map_or(InodeNo(1), |row| row.next_inode)
    }

    fn first_new_cookie(&self) -> u64 {
        self.before.map_or(1, |row| row.next_cookie)
    }

    /// Whether something may be kept that neither of the two sees: for a deleted snapshot between them.
    fn has_deleted_between(&self) -> bool {
        self.untils.len() > 1
    }
}

impl<'a, P: FnMut(&Item) -> Result<()>> Difference<'a, P> {
    pub(super) fn new(catalog: &'a Catalog, rows: &'a [SnapshotRow], put: P) -> Self {
        Self {
            catalog,
            rows,
            put,
            places: Places::default(),
            named: HashSet::new(),
            segments: HashMap::new(),
        }
    }

    /// Everything that leads from one snapshot, or from nothing, to another. The receiver also keeps what `keep` says.
    pub(super) fn find(
        &mut self,
        since: Option<&SnapshotRow>,
        to: &SnapshotRow,
        revision: u64,
        keep: Keep,
    ) -> Result<()> {
        let rows = self.rows;
        let there: Vec<&SnapshotRow> = rows
            .iter()
            .filter(|row| !row.doomed && row.no() <= to.no())
            .collect();
        (self.put)(&Item::Header(revision))?;
        if let Some(since) = keep.since {
            (self.put)(&Item::Keep(since))?;
        }
        if let Some(periods) = keep.periods {
            (self.put)(&Item::KeepPeriods {
                hourly: periods.hourly,
                daily: periods.daily,
                weekly: periods.weekly,
            })?;
        }
        let names = there.iter().map(|r| (r.no(), r.snapshot.name.clone()));
        (self.put)(&Item::Snapshots(names.collect()))?;
        let mut before = since;
        let first = since.map_or(0, SnapshotRow::no);
        for after in there.iter().filter(|row| row.no() > first) {
            let from = before.map_or(u64::MAX, SnapshotRow::no);
            let between = rows
                .iter()
                .filter(|row| (from..after.no()).contains(&row.no()));
            let untils = between.map(SnapshotRow::no).collect();
            self.step(&Step {
                before,
                after,
                untils,
            })?;
            before = Some(after);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step<'_>) -> Result<()> {
        self.inodes(step)?;
        self.removed_names(step)?;
        self.put_names(step)?;
        self.xattrs(step)?;
        self.chunks(step)?;
        self.deleted_inodes(step)?;
        let SnapshotRow {
            snapshot,
            next_inode,
            ..
        } = step.after;
        (self.put)(&Item::Snapshot {
            no: snapshot.number,
            name: snapshot.name.clone(),
            created: snapshot.created,
            automatic: snapshot.automatic,
            next_inode: *next_inode,
        })
    }

    /// Inodes that are kept between the two: changed, deleted, or put for the first time.
    fn changed(
        &mut self,
        step: &Step<'_>,
        mut each: impl FnMut(&mut Self, InodeNo) -> Result<()>,
    ) -> Result<()> {
        for until in &step.untils {
            let mut after = InodeNo(0);
            loop {
                let page = self.catalog.inodes_until(*until, after, PAGE)?;
                let Some(last) = page.last() else {
                    break;
                };
                after = *last;
                for no in page {
                    each(self, no)?;
                }
            }
        }
        Ok(())
    }

    /// Numbers of inodes that are younger than the earlier one, and not younger than the later.
    fn new_numbers(
        &mut self,
        step: &Step<'_>,
        mut each: impl FnMut(&mut Self, InodeNo) -> Result<()>,
    ) -> Result<()> {
        let mut from = step.first_new_inode();
        loop {
            let page = self.catalog.past_numbers(step.after.no(), from, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            from = InodeNo(last.0 + 1);
            for no in page {
                each(self, no)?;
            }
        }
    }

    /// Whether one of the two sees a file. A deleted snapshot between them may keep one that was created after the earlier one
    /// and removed before the later.
    fn is_seen(&self, step: &Step<'_>, no: InodeNo) -> Result<bool> {
        if !step.has_deleted_between() {
            return Ok(true);
        }
        for row in step.before.into_iter().chain([step.after]) {
            if self.catalog.past_inode(row.no(), no)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn inodes(&mut self, step: &Step<'_>) -> Result<()> {
        let at = step.after.no();
        let put = |this: &mut Self, no| match this.catalog.past_inode(at, no)? {
            Some(inode) => (this.put)(&Item::PutInode(inode)),
            None => Ok(()),
        };
        self.changed(step, put)?;
        self.new_numbers(step, put)
    }

    fn deleted_inodes(&mut self, step: &Step<'_>) -> Result<()> {
        let at = step.after.no();
        self.changed(step, |this, no| match this.catalog.past_inode(at, no)? {
            None if this.is_seen(step, no)? => (this.put)(&Item::DeleteInode(no)),
            _ => Ok(()),
        })
    }

    /// Names that are kept between the two, each as the two see it, where that differs.
    fn changed_names(
        &mut self,
        step: &Step<'_>,
        mut each: impl FnMut(&mut Self, InodeNo, Option<DirEntry>, Option<DirEntry>) -> Result<()>,
    ) -> Result<()> {
        let Some(before) = step.before else {
            return Ok(());
        };
        for until in &step.untils {
            let mut after = (InodeNo(0), 0);
            loop {
                let page = self.catalog.entries_until(*until, after, PAGE)?;
                let Some(last) = page.last() else {
                    break;
                };
                after = *last;
                for (parent, cookie) in page {
                    let then = self.catalog.past_entry(before.no(), parent, cookie)?;
                    let now = self.catalog.past_entry(step.after.no(), parent, cookie)?;
                    if then != now {
                        each(self, parent, then, now)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn removed_names(&mut self, step: &Step<'_>) -> Result<()> {
        self.changed_names(step, |this, parent, then, _| match then {
            Some(DirEntry { name, .. }) => (this.put)(&Item::RemoveName { parent, name }),
            None => Ok(()),
        })
    }

    fn put_names(&mut self, step: &Step<'_>) -> Result<()> {
        self.changed_names(step, |this, parent, _, now| match now {
            Some(entry) => this.put_name(parent, entry),
            None => Ok(()),
        })?;
        self.changed(step, |this, no| this.new_names(step, no))?;
        self.new_numbers(step, |this, no| this.new_names(step, no))
    }

    fn put_name(&mut self, parent: InodeNo, entry: DirEntry) -> Result<()> {
        (self.put)(&Item::PutName {
            parent,
            name: entry.name,
            inode: entry.inode,
            kind: entry.kind,
        })
    }

    /// The names of a directory that are younger than the earlier snapshot.
    fn new_names(&mut self, step: &Step<'_>, no: InodeNo) -> Result<()> {
        let at = step.after.no();
        let inode = self.catalog.past_inode(at, no)?;
        if inode.is_none_or(|inode| inode.kind != FileKind::Directory) {
            return Ok(());
        }
        let mut after = step.first_new_cookie() - 1;
        loop {
            let page = self.catalog.past_entries(at, no, after, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.cookie;
            for entry in page {
                self.put_name(no, entry)?;
            }
        }
    }

    fn xattrs(&mut self, step: &Step<'_>) -> Result<()> {
        let at = step.after.no();
        for until in &step.untils {
            let mut after = (InodeNo(0), Vec::new());
            loop {
                let page = self.catalog.xattrs_until(*until, &after, PAGE)?;
                let Some(last) = page.last() else {
                    break;
                };
                after = last.clone();
                for (inode, name) in page {
                    if !self.is_seen(step, inode)? {
                        continue;
                    }
                    let item = match self.catalog.past_xattr(at, inode, &name)? {
                        Some(value) => Item::PutXattr { inode, name, value },
                        None => Item::RemoveXattr { inode, name },
                    };
                    (self.put)(&item)?;
                }
            }
        }
        self.new_numbers(step, |this, no| {
            let inode = this.catalog.past_inode(at, no)?;
            if !inode.is_some_and(|inode| inode.has_xattrs) {
                return Ok(());
            }
            for name in this.catalog.past_xattr_names(at, no)? {
                if let Some(value) = this.catalog.past_xattr(at, no, &name)? {
                    (this.put)(&Item::PutXattr {
                        inode: no,
                        name,
                        value,
                    })?;
                }
            }
            Ok(())
        })
    }

    fn chunks(&mut self, step: &Step<'_>) -> Result<()> {
        let at = step.after.no();
        for (nth, until) in step.untils.iter().enumerate() {
            let mut after = None;
            loop {
                let page = self.catalog.kept_until(*until, after, CHUNKS)?;
                let Some(last) = page.last() else {
                    break;
                };
                after = Some((last.inode, last.index));
                for row in page {
                    self.changed_chunk(step, nth, row.inode, row.index)?;
                }
            }
        }
        self.new_numbers(step, |this, no| {
            let mut first = 0;
            loop {
                let page = this.catalog.past_chunks_from(at, no, first, CHUNKS)?;
                let Some((last, _)) = page.last() else {
                    return Ok(());
                };
                first = last + 1;
                for (index, chunk) in page {
                    let mut blocks = KeptChunk::default();
                    cover(&mut blocks, 0, crate::data::CHUNK_END, &chunk);
                    this.put_chunk(no, index, &blocks)?;
                }
            }
        })
    }

    /// A chunk with blocks that were replaced between the two: `nth` is the first of `untils` in which it was found.
    fn changed_chunk(
        &mut self,
        step: &Step<'_>,
        nth: usize,
        no: InodeNo,
        index: u64,
    ) -> Result<()> {
        let mut kept = Vec::with_capacity(step.untils.len());
        for until in &step.untils {
            kept.push(self.catalog.kept_chunk(no, index, *until)?);
        }
        if kept[..nth].iter().any(|kept| !kept.is_empty()) || !self.is_seen(step, no)? {
            return Ok(());
        }
        let now = self.catalog.past_chunk(step.after.no(), no, index)?;
        let mut blocks = KeptChunk::default();
        for (first, count) in kept.iter().flat_map(KeptChunk::covered_runs) {
            cover(&mut blocks, first, count, &now);
        }
        self.put_chunk(no, index, &blocks)
    }

    fn put_chunk(&mut self, inode: InodeNo, index: u64, blocks: &KeptChunk) -> Result<()> {
        for extent in blocks.chunk().extents() {
            self.name_segment(extent.segment)?;
            self.places.add(extent);
        }
        (self.put)(&Item::Chunk {
            inode,
            index,
            blocks: blocks.encode(),
        })
    }

    fn name_segment(&mut self, no: SegmentNo) -> Result<()> {
        if !self.named.insert(no) {
            return Ok(());
        }
        if !self.segments.contains_key(&no) {
            let all = self.catalog.segments()?;
            self.segments = all.into_iter().map(|a| (a.id.no, a.id)).collect();
        }
        let id = self.segments.get(&no).ok_or_else(|| {
            Error::Damaged(format!(
                "a file leads to segment {}, which is not known",
                no.0
            ))
        })?;
        (self.put)(&Item::Segment {
            no,
            key_epoch: id.key_epoch,
            salt: id.salt,
        })
    }
}

/// Has `blocks` cover a range as it is in a chunk, where it does not yet.
fn cover(blocks: &mut KeptChunk, first: u16, count: u16, chunk: &Chunk) {
    for (first, count) in blocks.uncovered_runs(first, count) {
        blocks.keep(first, count, &chunk.slice(first, count));
    }
}
