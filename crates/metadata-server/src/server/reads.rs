//! The disks that a change of a file's data reads from, asked before the change begins.
//!
//! A change reads while commits and changes of names wait for it. So a disk that is away is noticed before, with nothing held: the change is
//! refused as one that waits for a disk, and asked for again.
//!
//! 1. Only what the change reads counts. Whole blocks are cut off, discarded and shared without any disk.
//! 2. Nothing is decided here but that a disk is away: everything else is the change's to find.

use std::collections::BTreeSet;
use std::ops::Range;

use metadata_proto::rpc::Change;
use room::{CHUNK_LEN, Fallocate, FileSystem as _, InodeNo, SegmentNo};

use super::incarnation::Incarnation;
use super::sources::COPY_MAX;
use crate::placement::DiskFailed;

const BLOCK: u64 = netdisk::BLOCK_LEN as u64;
/// Chunks looked up at once.
const AT_ONCE: u64 = 64;

/// Asks the disks that `change` reads from.
///
/// # Errors
/// Where one of them is away.
pub(super) fn ask_disks(incarnation: &Incarnation, change: &Change) -> std::io::Result<()> {
    let mut segments = BTreeSet::new();
    for (no, range) in reads(incarnation, change) {
        segments.extend(segments_of(incarnation, no, range));
    }
    let disks = segments.into_iter();
    let disks = disks.filter_map(|segment| incarnation.storage.locate(segment));
    let disks: BTreeSet<_> = disks.map(|(disk, _)| disk).collect();
    let mut asked = disks.into_iter().map(|disk| incarnation.storage.ask(disk));
    let away = asked.find_map(|asked| asked.err().filter(DiskFailed::is_away));
    away.map_or(Ok(()), Err)
}

/// What it reads: files and bytes in them, or more where that depends on what is there.
fn reads(incarnation: &Incarnation, change: &Change) -> Vec<(InodeNo, Range<u64>)> {
    let size_of = |no| {
        incarnation
            .room
            .attributes(no)
            .map_or(0, |found| found.size)
    };
    match *change {
        Change::SetAttributes { no, ref set } => match set.size {
            Some(size) if size < size_of(no) => cut_block(no, size).into_iter().collect(),
            _ => Vec::new(),
        },
        Change::Fallocate {
            no,
            what: Fallocate::PunchHole | Fallocate::ZeroRange { .. },
            offset,
            len,
        } => {
            let edges = [offset, offset.saturating_add(len)];
            edges
                .iter()
                .filter_map(|edge| cut_block(no, *edge))
                .collect()
        }
        Change::CopyRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => {
            let size = size_of(from);
            let end = from_offset.saturating_add(len.min(COPY_MAX)).min(size);
            let to_end = to_offset.saturating_add(end.saturating_sub(from_offset));
            if !(from_offset | to_offset).is_multiple_of(BLOCK) {
                return vec![(from, from_offset..end), (to, to_offset..to_end)];
            }
            // Whole blocks are shared, and so is a last one that nothing follows.
            if end.is_multiple_of(BLOCK) || end == size && to_end >= size_of(to) {
                return Vec::new();
            }
            let last = from_offset.max(end / CHUNK_LEN * CHUNK_LEN);
            let edge = cut_block(to, to_end);
            edge.into_iter().chain([(from, last..end)]).collect()
        }
        _ => Vec::new(),
    }
}

/// The block that an edge is within.
fn cut_block(no: InodeNo, edge: u64) -> Option<(InodeNo, Range<u64>)> {
    let start = edge / BLOCK * BLOCK;
    (start < edge).then_some((no, start..edge))
}

/// The segments that these bytes of a file are in.
fn segments_of(
    incarnation: &Incarnation,
    no: InodeNo,
    bytes: Range<u64>,
) -> impl Iterator<Item = SegmentNo> {
    let (first, end) = (bytes.start / CHUNK_LEN, bytes.end.div_ceil(CHUNK_LEN));
    let parts = (first..end).step_by(AT_ONCE as usize);
    let maps = parts.flat_map(move |part| {
        let count = (end - part).min(AT_ONCE) as usize;
        let maps = incarnation.room.maps(no, part, count);
        maps.unwrap_or_default()
    });
    maps.flat_map(move |(index, chunk)| {
        let start = index * CHUNK_LEN;
        let within = |at: u16| start + u64::from(at) * BLOCK;
        let extents = chunk.extents().iter();
        let of_it =
            extents.filter(|e| within(e.first) < bytes.end && bytes.start < within(e.end()));
        of_it.map(|extent| extent.segment).collect::<Vec<_>>()
    })
}
