//! Ranges of blocks as bytes of a file.

use std::io;

use storage::StorageFile;

use crate::{BLOCK_LEN, BlockRange, UNIT_LEN};

/// Where a block begins in its file, or how long so many blocks are, in bytes.
pub(crate) fn offset(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_LEN as u64
}

/// Fills `out` from `offset`; where the file is shorter, only the units that are wholly there. Returns the bytes read.
pub(crate) fn read_whole_units(
    file: &dyn StorageFile,
    offset: u64,
    out: &mut [u8],
) -> io::Result<usize> {
    match file.read_at(out, offset) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
        other => return other.map(|()| out.len()),
    }
    let there = file.len()?.saturating_sub(offset).min(out.len() as u64) as usize;
    let whole = if there == out.len() {
        there
    } else {
        there - there % UNIT_LEN
    };
    match file.read_at(&mut out[..whole], offset) {
        // The file is being cut under the reader: nothing of it counts.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        other => other.map(|()| whole),
    }
}

/// The same ranges in order, those that touch or overlap as one.
pub(crate) fn merge(ranges: &[BlockRange]) -> Vec<BlockRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<BlockRange> = Vec::with_capacity(sorted.len());
    for range in sorted.into_iter().filter(|range| range.blocks != 0) {
        assert!(
            range.position != 0,
            "segment {}: its header is no data to release",
            range.segment.0
        );
        let end = range.position + range.blocks;
        match merged.last_mut() {
            Some(last)
                if last.segment == range.segment
                    && range.position <= last.position + last.blocks =>
            {
                last.blocks = last.blocks.max(end - last.position);
            }
            _ => merged.push(range),
        }
    }
    merged
}
