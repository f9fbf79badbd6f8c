//! The bytes of a chunk's map, as the catalog stores them.
//!
//! One record for each extent, in order, nothing between or behind them; numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | first block |
//! | 1 | number of blocks, less one |
//! | 1 | bits 0-1: blocks to skip in the first unit; bits 2-3: blocks of the last unit behind the range; bit 4: shared; bit 6: a nonce part follows; bit 7: each tag is followed by its digest; the others 0 |
//! | 4 | position of the first unit in the segment |
//! | 8 | segment |
//! | 4 | with bit 6 only: the nonce part, not all zeros |
//! | 16 each | tags, one a unit; with bit 7, each followed by the 32 bytes of its unit's digest |
//!
//! Behind them one record of three bytes for each run of reserved holes, in order: first block, number of blocks less one,
//! and 32 (bit 5).
//!
//! Invariant: one map has one writing, and what does not keep the invariants of [`Extent`] and [`Chunk`] is refused.

use super::reserved::BlockSet;
use super::{CHUNK_BLOCKS, Chunk, Extent};
use crate::{DIGEST_LEN, NONCE_PART_LEN, NoncePart, SegmentNo, TAG_LEN, Tag, Tags, UNIT_BLOCKS};

const FIXED: usize = 15;
const SHARED: u8 = 1 << 4;
/// Each tag is followed by the digest of its unit.
const DIGESTS: u8 = 1 << 7;
/// The third byte of a record that is no extent, but a run of reserved holes.
const RESERVED: u8 = 1 << 5;
/// The extent's nonce part follows its segment. Without it there are zeros.
const NONCE: u8 = 1 << 6;
const KNOWN: u8 = 0b1111 | SHARED | NONCE | DIGESTS;

// Two bits hold a number of blocks below UNIT_BLOCKS.
const _: () = assert!(UNIT_BLOCKS == 4);

impl Chunk {
    /// The stored form; empty for an empty chunk.
    pub fn encode(&self) -> Vec<u8> {
        let proofs =
            |extent: &Extent| extent.tags.len() * TAG_LEN + extent.digests.len() * DIGEST_LEN;
        let proofs: usize = self.extents.iter().map(proofs).sum();
        let mut out = Vec::with_capacity(self.extents.len() * (FIXED + NONCE_PART_LEN) + proofs);
        for extent in &self.extents {
            put_extent(extent, &mut out);
        }
        put_reserved(&self.reserved, &mut out);
        out
    }

    /// Appends the stored form, which follows another one of the same chunk: what both have is copied from there. Notes the blocks that
    /// differ, and appends the records of extents that are new to `edit`. `None` where the other one is malformed.
    pub(super) fn put_after(
        &self,
        old: &[u8],
        out: &mut Vec<u8>,
        blocks: &mut BlockSet,
        edit: &mut Vec<u8>,
    ) -> Option<()> {
        // What is from `from` to before `at` is in both, and not copied yet.
        let (mut from, mut at) = (0, 0);
        for extent in &self.extents {
            loop {
                if let Some(len) = same_len(&old[at..], extent) {
                    at += len;
                    break;
                }
                out.extend_from_slice(&old[from..at]);
                from = at;
                match extent_at(old, at) {
                    Some(record) if u16::from(record[0]) <= extent.first => {
                        note(record, blocks);
                        at += record.len();
                        from = at;
                    }
                    _ => {
                        put_extent(extent, out);
                        put_extent(extent, edit);
                        blocks.insert(extent.first, extent.end());
                        break;
                    }
                }
            }
        }
        out.extend_from_slice(&old[from..at]);
        while let Some(record) = extent_at(old, at) {
            note(record, blocks);
            at += record.len();
        }
        let mut reserved = BlockSet::default();
        let (runs, []) = old[at..].as_chunks::<3>() else {
            return None;
        };
        for run in runs {
            note(run, &mut reserved);
        }
        let (more, less) = (
            self.reserved.without(&reserved),
            reserved.without(&self.reserved),
        );
        *blocks = blocks.with(&more).with(&less);
        put_reserved(&self.reserved, out);
        Some(())
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        // More extents than blocks overlap: no length of the bytes makes this take more.
        let most = (bytes.len() / (FIXED + TAG_LEN)).min(CHUNK_BLOCKS as usize);
        let mut extents: Vec<Extent> = Vec::with_capacity(most);
        let mut end = 0;
        while bytes.get(2).is_some_and(|bits| *bits != RESERVED) {
            let extent = take_extent(&mut bytes).ok_or("the map ends within an extent")??;
            if extent.first < end {
                return Err(format!("two extents overlap at block {}", extent.first));
            }
            end = extent.end();
            extents.push(extent);
        }
        let mut chunk = Self {
            extents,
            ..Self::default()
        };
        let mut end = None;
        while !bytes.is_empty() {
            let run = bytes
                .split_off(..3)
                .ok_or("the map ends within an extent")?;
            let (first, after) = (u16::from(run[0]), u16::from(run[0]) + u16::from(run[1]) + 1);
            if run[2] != RESERVED {
                return Err("an extent is behind the reserved blocks".into());
            }
            // Runs that meet would be one: a map has one encoding.
            if after > CHUNK_BLOCKS as u16 || end.is_some_and(|end| first <= end) {
                return Err(format!("reserved blocks out of order at block {first}"));
            }
            if chunk.reserve(first, after - first) != u32::from(after - first) {
                return Err(format!("block {first} is stored and reserved"));
            }
            end = Some(after);
        }
        Ok(chunk)
    }
}

fn put_extent(extent: &Extent, out: &mut Vec<u8>) {
    let bits = bits(extent);
    let mut fixed = [0; FIXED + NONCE_PART_LEN];
    fixed[0] = extent.first as u8;
    fixed[1] = (extent.blocks - 1) as u8;
    fixed[2] = bits;
    fixed[3..7].copy_from_slice(&extent.position.to_le_bytes());
    fixed[7..FIXED].copy_from_slice(&extent.segment.0.to_le_bytes());
    fixed[FIXED..].copy_from_slice(&extent.nonce.0);
    out.extend_from_slice(&fixed[..FIXED + nonce_len(bits)]);
    if extent.digests.is_empty() {
        out.extend_from_slice(extent.tags.as_flattened());
        return;
    }
    for (tag, digest) in extent.tags.iter().zip(&extent.digests) {
        out.extend_from_slice(tag);
        out.extend_from_slice(digest);
    }
}

fn bits(extent: &Extent) -> u8 {
    let behind = extent.stored - u16::from(extent.skip) - extent.blocks;
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    extent.skip
        | (behind as u8) << 2
        | bit(extent.shared, SHARED)
        | bit(extent.nonce != NoncePart::NONE, NONCE)
        | bit(!extent.digests.is_empty(), DIGESTS)
}

/// The length of the record at the beginning of a stored map, if that is the extent's. A long map is compared with each change: numbers
/// and single tags are compared as such.
fn same_len(map: &[u8], extent: &Extent) -> Option<usize> {
    let (fixed, mut proofs) = map.split_first_chunk::<FIXED>()?;
    let head = u64::from_le_bytes(*fixed.first_chunk()?);
    let segment = u64::from_le_bytes(*fixed.last_chunk()?);
    let bits = bits(extent);
    let expected = u64::from(extent.first)
        | u64::from(extent.blocks - 1) << 8
        | u64::from(bits) << 16
        | u64::from(extent.position) << 24;
    // The eighth byte of the head is the first of the segment.
    if head << 8 != expected << 8 || segment != extent.segment.0 {
        return None;
    }
    if bits & NONCE != 0 {
        let (nonce, rest) = proofs.split_first_chunk()?;
        if NoncePart(*nonce) != extent.nonce {
            return None;
        }
        proofs = rest;
    }
    for (unit, tag) in extent.tags.iter().enumerate() {
        let (stored, rest) = proofs.split_first_chunk::<TAG_LEN>()?;
        if stored != tag {
            return None;
        }
        proofs = rest;
        if let Some(digest) = extent.digests.get(unit) {
            let (stored, rest) = proofs.split_first_chunk::<DIGEST_LEN>()?;
            if stored != digest {
                return None;
            }
            proofs = rest;
        }
    }
    Some(map.len() - proofs.len())
}

pub(super) fn put_reserved(reserved: &BlockSet, out: &mut Vec<u8>) {
    for (first, end) in reserved.runs() {
        out.extend_from_slice(&[first as u8, (end - first - 1) as u8, RESERVED]);
    }
}

/// The record of the extent that begins at a place of a stored map; `None` behind the last.
fn extent_at(map: &[u8], at: usize) -> Option<&[u8]> {
    let [_, less_one, bits] = *map.get(at..)?.first_chunk()?;
    let len = FIXED + nonce_len(bits) + units(less_one, bits) * proof_len(bits);
    (bits != RESERVED).then(|| map.get(at..at + len))?
}

/// Adds the blocks of a record.
fn note(record: &[u8], blocks: &mut BlockSet) {
    let first = u16::from(record[0]);
    blocks.insert(first, first + u16::from(record[1]) + 1);
}

fn nonce_len(bits: u8) -> usize {
    match bits & NONCE {
        0 => 0,
        _ => NONCE_PART_LEN,
    }
}

/// Bytes of what a unit is checked against.
fn proof_len(bits: u8) -> usize {
    match bits & DIGESTS {
        0 => TAG_LEN,
        _ => TAG_LEN + DIGEST_LEN,
    }
}

/// Units of an extent.
fn units(less_one: u8, bits: u8) -> usize {
    let blocks = usize::from(less_one) + 1;
    (usize::from(bits & 3) + blocks + usize::from(bits >> 2 & 3)).div_ceil(UNIT_BLOCKS as usize)
}

/// Takes one extent off the front; `None` where the bytes end before it does.
fn take_extent(bytes: &mut &[u8]) -> Option<Result<Extent, String>> {
    let [first, less_one, bits] = *bytes.split_off(..3)?.first_chunk()?;
    let position = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
    let segment = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
    if bits & !KNOWN != 0 {
        return Some(Err("an extent has unknown bits".into()));
    }
    let nonce = match bits & NONCE {
        0 => NoncePart::NONE,
        _ => NoncePart(*bytes.split_off(..NONCE_PART_LEN)?.first_chunk()?),
    };
    // None is written without the bit: a map has one encoding.
    if bits & NONCE != 0 && nonce == NoncePart::NONE {
        return Some(Err(format!("an empty nonce part (block {first})")));
    }
    let (skip, behind) = (bits & 3, bits >> 2 & 3);
    let blocks = u16::from(less_one) + 1;
    let stored = u16::from(skip) + blocks + u16::from(behind);
    let units = units(less_one, bits);
    let (mut tags, mut digests) = (Tags::new(), Vec::new());
    if bits & DIGESTS == 0 {
        let all = bytes.split_off(..units * TAG_LEN)?.as_chunks::<TAG_LEN>().0;
        tags.extend(all.iter().map(|tag| to_tag(*tag)));
    } else {
        let all = bytes.split_off(..units * (TAG_LEN + DIGEST_LEN))?;
        for proof in all.as_chunks::<{ TAG_LEN + DIGEST_LEN }>().0 {
            let (tag, digest) = proof.split_first_chunk()?;
            tags.push(to_tag(*tag));
            digests.push(*digest.first_chunk()?);
        }
    }
    let extent = Extent {
        first: u16::from(first),
        blocks,
        segment: SegmentNo(segment),
        position,
        skip,
        stored,
        shared: bits & SHARED != 0,
        nonce,
        tags,
        digests,
    };
    Some(match extent.fault() {
        Some(fault) => Err(format!("{fault} (block {first})")),
        None => Ok(extent),
    })
}

fn to_tag(bytes: [u8; TAG_LEN]) -> Tag {
    bytes
}
