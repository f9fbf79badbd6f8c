//! Space: every extent is in an existing segment, every account and count matches the extents.
//!
//! What is counted are the extents that can be: one that leads nowhere is found, and left out of all counts, which are
//! therefore right once it is gone.

use std::collections::{HashMap, HashSet};

use catalog::{CHUNK_LEN, Catalog, Chunk, Extent, FileKind, Inode, InodeNo, SegmentNo};
use segments::SegmentError;

use super::super::Maintenance;
use super::repair::Repair;
use super::{Look, data, inode_text, past};
use crate::Result;
use crate::blocks::BLOCK;
use crate::reports::LostExtent;
use crate::usage::{self, Counts, OVERLAPS, Unit, by_unit};

/// Rows read at once.
const PAGE: usize = 256;

pub(super) fn look(core: &Maintenance, catalog: &Catalog, look: &mut Look) -> Result<()> {
    let before = (look.findings.len(), look.repairs.len(), look.lost.len());
    let mut counts = Counts::new(catalog.segments()?);
    maps(core, catalog, &mut counts, look)?;
    if !counts.disputed.is_empty() {
        // Once more: of units that overlap, the one that opens is there, whichever comes first.
        look.findings.truncate(before.0);
        look.repairs.truncate(before.1);
        look.lost.truncate(before.2);
        counts = Counts {
            disputed: counts.disputed,
            ..Counts::new(catalog.segments()?)
        };
        maps(core, catalog, &mut counts, look)?;
    }
    accounts(&counts, look);
    reservations(core, &counts, look);
    shares(catalog, &counts, look)?;
    files(core, &counts, look)
}

/// Looks at all maps.
fn maps(core: &Maintenance, catalog: &Catalog, counts: &mut Counts, look: &mut Look) -> Result<()> {
    chunks(core, catalog, counts, look)?;
    past::look(core, catalog, counts, look)
}

/// The file whose maps are being looked at.
struct Current {
    no: InodeNo,
    inode: Option<Inode>,
    blocks: u64,
}

impl Current {
    fn end(&self, look: &mut Look) {
        if let Some(inode) = &self.inode
            && inode.blocks != self.blocks
        {
            look.find_and_repair(
                format!(
                    "{}: {} blocks are stored, {} are counted",
                    inode_text(self.no),
                    self.blocks,
                    inode.blocks
                ),
                Repair::Blocks {
                    no: self.no,
                    blocks: self.blocks,
                },
            );
        }
    }
}

/// Looks at every extent map, and at files without any.
fn chunks(
    core: &Maintenance,
    catalog: &Catalog,
    counts: &mut Counts,
    look: &mut Look,
) -> Result<()> {
    // Inodes and maps are both in the order of inode numbers: one walk along both.
    let mut inodes = Inodes {
        catalog,
        page: Vec::new().into_iter(),
        after: InodeNo(0),
        over: false,
    };
    let mut current: Option<Current> = None;
    usage::each_chunk(catalog, |no, index, chunk| {
        if current.as_ref().is_none_or(|c| c.no != no) {
            if let Some(done) = current.take() {
                done.end(look);
            }
            let inode = inodes.advance(no, look)?;
            current = Some(Current {
                no,
                inode,
                blocks: 0,
            });
        }
        if let Some(current) = &mut current {
            one(core, current, index, &chunk, counts, look)?;
        }
        Ok(())
    })?;
    if let Some(done) = current.take() {
        done.end(look);
    }
    inodes.advance(InodeNo(u64::MAX), look)?;
    Ok(())
}

/// All inodes in order; those passed over have no maps.
struct Inodes<'a> {
    catalog: &'a Catalog,
    page: std::vec::IntoIter<Inode>,
    after: InodeNo,
    over: bool,
}

impl Inodes<'_> {
    fn advance(&mut self, to: InodeNo, look: &mut Look) -> Result<Option<Inode>> {
        while !self.over {
            match self.page.as_slice().first() {
                None => {
                    let page = self.catalog.all_inodes(self.after, PAGE)?;
                    self.over = page.is_empty();
                    self.after = page.last().map_or(self.after, |i| i.no);
                    self.page = page.into_iter();
                }
                Some(inode) if inode.no > to => return Ok(None),
                Some(inode) if inode.no == to => return Ok(self.page.next()),
                Some(inode) => {
                    if inode.blocks != 0 {
                        look.find_and_repair(
                            format!(
                                "{}: nothing is stored, {} blocks are counted",
                                inode_text(inode.no),
                                inode.blocks
                            ),
                            Repair::Blocks {
                                no: inode.no,
                                blocks: 0,
                            },
                        );
                    }
                    self.page.next();
                }
            }
        }
        Ok(None)
    }
}

/// Looks at one map.
fn one(
    core: &Maintenance,
    current: &mut Current,
    index: u64,
    chunk: &Chunk,
    counts: &mut Counts,
    look: &mut Look,
) -> Result<()> {
    let (no, name) = (current.no, inode_text(current.no));
    let Some(inode) = &current.inode else {
        look.find_and_repair(
            format!(
                "{name}: data of an inode that is not there, at byte {}",
                index * CHUNK_LEN
            ),
            Repair::DropOrphanChunk { no, index },
        );
        return Ok(());
    };
    if inode.kind != FileKind::Regular {
        look.find(format!("{name}: data of what is not a file"));
    }
    counts.reserved += u64::from(chunk.reserved_blocks());
    current.blocks += u64::from(chunk.reserved_blocks());
    let end = inode.size.div_ceil(BLOCK);
    let mut seen: HashSet<Unit> = HashSet::new();
    for extent in chunk.extents() {
        let faults = faults(core, extent, counts, &mut seen)?;
        let gone: u16 = faults.iter().map(|fault| fault.blocks).sum();
        for fault in faults {
            lost(no, index, &fault, inode, look);
        }
        let blocks = extent.blocks - gone;
        current.blocks += u64::from(blocks);
        let start = index * (CHUNK_LEN / BLOCK) + u64::from(extent.first);
        if blocks > 0 && start + u64::from(extent.blocks) > end {
            look.find_and_repair(
                format!(
                    "{name}: {} blocks at block {start}, beyond the end of the file",
                    extent.blocks
                ),
                Repair::CutEnd {
                    no,
                    index,
                    size: inode.size,
                },
            );
        }
    }
    Ok(())
}

/// Blocks of a chunk whose units cannot be where its map says.
pub(super) struct Fault {
    pub(super) first: u16,
    pub(super) blocks: u16,
    pub(super) why: &'static str,
}

/// Counts the units of an extent. Returns those that cannot be, consecutive ones together. One behind the counted end
/// of its segment is counted if it opens: the account was wrong then. Of disputed ones, only those that open are counted.
pub(super) fn faults(
    core: &Maintenance,
    extent: &Extent,
    counts: &mut Counts,
    seen: &mut HashSet<Unit>,
) -> Result<Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    for piece in by_unit(extent) {
        let unit = piece.range();
        // A storage that fails to read may do better another day.
        if counts.is_behind(unit) && !core.read_extent(&piece).is_err_and(|e| data::is_damage(&e)) {
            counts.lengthen(unit);
        }
        let (first, blocks) = (piece.first, piece.blocks);
        let mut fault = counts.fault(unit);
        if counts.is_disputed(unit) {
            match core.read_extent(&piece) {
                Err(e) if data::is_damage(&e) => fault = fault.or(Some(OVERLAPS)),
                read => read?,
            }
        }
        if fault == Some(OVERLAPS) {
            counts.dispute(unit);
        }
        match (fault, faults.last_mut()) {
            (None, _) => {
                if seen.insert((unit.segment, unit.position)) {
                    counts.refer(unit);
                }
            }
            (Some(why), Some(last)) if last.first + last.blocks == first && last.why == why => {
                last.blocks += blocks;
            }
            (Some(why), _) => faults.push(Fault { first, blocks, why }),
        }
    }
    Ok(faults)
}

/// A part of an extent that cannot be.
fn lost(no: InodeNo, index: u64, fault: &Fault, inode: &Inode, look: &mut Look) {
    let Fault { first, blocks, why } = *fault;
    let offset = index * CHUNK_LEN + u64::from(first) * BLOCK;
    let bytes = u64::from(blocks) * BLOCK;
    look.find_and_repair(
        format!(
            "{}: {bytes} bytes from byte {offset}: the map {why}",
            inode_text(no)
        ),
        Repair::DropBlocks {
            no,
            index,
            first,
            blocks,
        },
    );
    let len = bytes.min(inode.size.saturating_sub(offset));
    if len > 0 {
        look.lost.push(LostExtent { no, offset, len });
    }
}

/// Compares what was counted with the accounts.
fn accounts(counts: &Counts, look: &mut Look) {
    for (no, segment) in &counts.segments {
        if segment.length != segment.account.length {
            look.find_and_repair(
                format!(
                    "segment {}: it is longer than is counted, {} blocks and not {}",
                    no.0, segment.length, segment.account.length
                ),
                Repair::Length {
                    segment: *no,
                    length: segment.length,
                },
            );
        }
        if segment.live != segment.account.live {
            look.find_and_repair(
                format!(
                    "segment {}: {} blocks are live, {} are counted",
                    no.0, segment.live, segment.account.live
                ),
                Repair::Live {
                    segment: *no,
                    live: segment.live,
                },
            );
        }
    }
}

/// Compares the blocks reserved for holes with their sum.
fn reservations(core: &Maintenance, counts: &Counts, look: &mut Look) {
    let (is, said) = (counts.reserved, core.data.reservations().reserved());
    if is != said {
        look.find_and_repair(
            format!("{is} blocks are reserved for holes, {said} are counted"),
            Repair::Reserved { blocks: is },
        );
    }
}

/// Compares counts of shared units, and the marks on the extents that refer to them.
fn shares(catalog: &Catalog, counts: &Counts, look: &mut Look) -> Result<()> {
    let mut counted: HashMap<Unit, u64> = HashMap::new();
    for (segment, position, references) in catalog.all_shared()? {
        counted.insert((segment, position), references);
    }
    let mut units: Vec<&Unit> = counts.extra.keys().chain(counted.keys()).collect();
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let (is, said) = (
            counts.extra.get(unit).copied().unwrap_or(0),
            counted.get(unit).copied().unwrap_or(0),
        );
        if is != said {
            look.find_and_repair(
                format!(
                    "segment {}, block {}: {is} more references, {said} are counted",
                    unit.0.0, unit.1
                ),
                Repair::Shared {
                    segment: unit.0,
                    position: unit.1,
                    by: is as i64 - said as i64,
                },
            );
        }
    }
    if counts.extra.is_empty() {
        return Ok(());
    }
    past::marks(catalog, counts, look)?;
    usage::each_chunk(catalog, |no, index, chunk| {
        let mut extents = chunk.extents().iter();
        if let Some(extent) = extents.find(|e| counts.lacks_mark(e)) {
            look.find_and_repair(
                format!(
                    "{}: shared data at block {} of chunk {index} is not marked",
                    inode_text(no),
                    extent.first
                ),
                Repair::Mark { no, index },
            );
        }
        Ok(())
    })
}

/// Looks at the segments' files.
fn files(core: &Maintenance, counts: &Counts, look: &mut Look) -> Result<()> {
    let there: HashMap<SegmentNo, u64> = core
        .blocks
        .segments()
        .list()?
        .iter()
        .map(|file| (file.no, file.len))
        .collect();
    for (no, segment) in &counts.segments {
        // What nothing refers to at its end may never have come to the disk: a power cut took it.
        let needed = u64::from(segment.end()) * BLOCK;
        match there.get(no) {
            _ if segment.live == 0 => {}
            None => look.find(format!(
                "segment {}: its file is missing, with {} live bytes",
                no.0,
                u64::from(segment.live) * BLOCK
            )),
            Some(len) => {
                if *len < needed {
                    look.find(format!(
                        "segment {}: its file has {len} bytes of {needed}",
                        no.0
                    ));
                }
                match core.blocks.segments().check_header(*no) {
                    Ok(()) => {}
                    Err(e @ (SegmentError::Header { .. } | SegmentError::Missing { .. })) => {
                        look.find(e.to_string());
                        look.suspect.push(*no);
                    }
                    Err(e) => look.find(format!("segment {}: {e}", no.0)),
                }
            }
        }
    }
    Ok(())
}
