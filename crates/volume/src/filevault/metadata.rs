//! The metadata: a block in the clear locates the encrypted blocks; these say which passphrases open the volume and where it is.
//!
//! Encrypted blocks have 8192 bytes, each with a header of 64 (checksum, kind, transaction, object). Three kinds are used:
//! 0x0019 the encryption context, 0x001a the logical volume, 0x0305 its pieces.

use std::collections::BTreeMap;

use device::Device;

use super::header::{Header, checksum_holds, u16_at, u32_at, u64_at};
use super::plist;
use super::{KEY, WRAPPED};
use crate::common::{VolumeError, io_error};
use crate::sector::decrypt_unit;

/// Bytes of an encrypted block.
pub(super) const BLOCK: usize = 8192;
/// Bytes of a block's header.
const HEAD: usize = 64;
/// Most bytes of encrypted metadata that are looked through; macOS writes 24 MiB.
const ENCRYPTED_MAX: u64 = 256 << 20;
/// Most bytes of metadata in the clear.
const CLEAR_MAX: u64 = 64 << 20;
/// Most blocks of the kinds used.
const BLOCKS_MAX: usize = 1024;
/// Block numbers have 48 bits; the bits above hold the physical volume's number.
const NUMBER: u64 = 0xffff_ffff_ffff;

const CONTEXT: u16 = 0x0019;
const VOLUME: u16 = 0x001a;
const PIECES: u16 = 0x0305;

/// One whose passphrase opens the volume.
#[derive(Debug)]
pub(super) struct User {
    pub(super) salt: [u8; 16],
    pub(super) iterations: u32,
    pub(super) wrapped: [u8; WRAPPED],
}

/// A piece of the logical volume, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) logical: u64,
    pub(super) blocks: u64,
    pub(super) physical: u64,
}

/// What is needed to open the volume.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) users: Vec<User>,
    pub(super) wrapped_key: [u8; WRAPPED],
    pub(super) conversion: Option<String>,
    pub(super) family: [u8; 16],
    pub(super) name: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) bytes: u64,
    pub(super) segments: Vec<Segment>,
}

/// Blocks of one kind by their object, the newest of each.
pub(super) type Newest = BTreeMap<(u16, u64), (u64, Vec<u8>)>;

impl Metadata {
    pub(super) fn read(device: &dyn Device, header: &Header) -> Result<Self, VolumeError> {
        let (offset, len) = locate(device, header)?;
        let mut newest = Newest::new();
        let mut unit = vec![0; BLOCK];
        for number in 0..len / BLOCK as u64 {
            device
                .read_at(&mut unit, offset + number * BLOCK as u64)
                .map_err(io_error("reading the encrypted metadata"))?;
            if unit.iter().all(|&b| b == 0) {
                continue;
            }
            decrypt_unit(&header.key, &mut unit, number);
            keep(&mut newest, &unit)?;
        }
        Self::of(&newest)
    }

    pub(super) fn of(newest: &Newest) -> Result<Self, VolumeError> {
        let context = xml(only(newest, CONTEXT, "encryption context")?, 48, 52)?;
        let volume = xml(only(newest, VOLUME, "logical volume")?, 64, 68)?;
        let mut segments = Vec::new();
        for ((kind, _), (_, block)) in newest {
            if *kind == PIECES {
                pieces(block, &mut segments)?;
            }
        }
        segments.sort_by_key(|s| s.logical);
        let damaged =
            |what: &str| VolumeError::Damaged(format!("the CoreStorage metadata has no {what}"));
        let users = plist::all(&context, "PassphraseWrappedKEKStruct")
            .map(|value| user(&value))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| damaged("passphrase that can be read"))?;
        if users.is_empty() {
            return Err(VolumeError::Unsupported(
                "no passphrase opens this volume: its context has none (an institutional key opens it, or nothing does)"
                    .to_owned(),
            ));
        }
        Ok(Self {
            users,
            wrapped_key: volume_key(&context).ok_or_else(|| damaged("wrapped key for AES-XTS"))?,
            conversion: plist::text(&context, "ConversionStatus"),
            family: plist::text(&volume, "com.apple.corestorage.lv.familyUUID")
                .and_then(|text| uuid::Uuid::try_parse(&text).ok())
                .ok_or_else(|| damaged("family UUID"))?
                .into_bytes(),
            name: plist::text(&volume, "com.apple.corestorage.lv.name"),
            uuid: plist::text(&volume, "com.apple.corestorage.lv.uuid"),
            bytes: plist::number(&volume, "com.apple.corestorage.lv.size")
                .ok_or_else(|| damaged("size of the logical volume"))?,
            segments,
        })
    }
}

/// First byte and length of the encrypted metadata, from the first copy in the clear that is whole.
fn locate(device: &dyn Device, header: &Header) -> Result<(u64, u64), VolumeError> {
    let damaged = |what: &str| VolumeError::Damaged(format!("CoreStorage metadata: {what}"));
    for at in header.metadata_at {
        let Some(offset) = at.checked_mul(header.block_size) else {
            continue;
        };
        let mut block = vec![0; BLOCK];
        if offset
            .checked_add(BLOCK as u64)
            .is_none_or(|end| end > device.len())
        {
            continue;
        }
        device
            .read_at(&mut block, offset)
            .map_err(io_error("reading the metadata"))?;
        // The block itself says how much of it the checksum covers.
        let covered = block.get(..u32_at(&block, 48) as usize);
        if u16_at(&block, 10) != 0x0011 || !covered.is_some_and(checksum_holds) {
            continue;
        }
        let clear = u64::from(u32_at(&block, HEAD));
        let descriptor = u64::from(u32_at(&block, HEAD + 156));
        if clear > CLEAR_MAX || descriptor.saturating_add(40) > clear {
            return Err(damaged(
                "the place of the volume groups' description makes no sense",
            ));
        }
        let mut group = [0; 40];
        device
            .read_at(&mut group, offset.saturating_add(descriptor))
            .map_err(io_error("reading the volume groups' description"))?;
        let len = u64_at(&group, 8).checked_mul(header.block_size);
        let first = (u64_at(&group, 32) & NUMBER).checked_mul(header.block_size);
        return match (first, len) {
            (Some(first), Some(len))
                if len <= ENCRYPTED_MAX
                    && first
                        .checked_add(len)
                        .is_some_and(|end| end <= device.len()) =>
            {
                Ok((first, len))
            }
            _ => Err(damaged(
                "the encrypted part is outside the image; is it cut short?",
            )),
        };
    }
    Err(damaged("none of its copies is whole"))
}

/// Takes a block of a kind that is used and whole, if it is newer than what there is of it.
pub(super) fn keep(newest: &mut Newest, block: &[u8]) -> Result<(), VolumeError> {
    let kind = u16_at(block, 10);
    // What nobody needs, and what was never written since, may say anything.
    if ![CONTEXT, VOLUME, PIECES].contains(&kind) || !checksum_holds(block) {
        return Ok(());
    }
    let (transaction, object) = (u64_at(block, 16), u64_at(block, 24));
    let newer = newest
        .get(&(kind, object))
        .is_none_or(|(last, _)| *last <= transaction);
    if newer {
        newest.insert((kind, object), (transaction, block.to_vec()));
    }
    if newest.len() > BLOCKS_MAX {
        return Err(VolumeError::Unsupported(format!(
            "CoreStorage metadata of more than {BLOCKS_MAX} blocks"
        )));
    }
    Ok(())
}

fn only<'a>(newest: &'a Newest, kind: u16, what: &str) -> Result<&'a [u8], VolumeError> {
    let mut found = newest.iter().filter(|((k, _), _)| *k == kind);
    match (found.next(), found.next()) {
        (Some((_, (_, block))), None) => Ok(block),
        (None, _) => Err(VolumeError::Damaged(format!(
            "the CoreStorage metadata has no {what}"
        ))),
        (Some(_), Some(_)) => Err(VolumeError::Unsupported(format!(
            "a CoreStorage group with more than one {what}"
        ))),
    }
}

/// The property list of a block, whose position and length are at these offsets behind the block's header.
fn xml(block: &[u8], at: usize, len_at: usize) -> Result<String, VolumeError> {
    let offset = u32_at(block, HEAD + at) as usize;
    let len = u32_at(block, HEAD + len_at) as usize;
    offset
        .checked_add(len)
        .and_then(|end| block.get(offset..end))
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .filter(|text| text.contains("<dict"))
        .ok_or_else(|| {
            VolumeError::Unsupported(
                "a property list of CoreStorage that is compressed or is outside its block"
                    .to_owned(),
            )
        })
}

fn pieces(block: &[u8], segments: &mut Vec<Segment>) -> Result<(), VolumeError> {
    const ENTRY: usize = 40;
    let count = u32_at(block, HEAD) as usize;
    let entries = &block[HEAD + 8..];
    if count > entries.len() / ENTRY {
        return Err(VolumeError::Damaged(format!(
            "a block of the CoreStorage metadata speaks of {count} pieces"
        )));
    }
    for entry in entries.chunks_exact(ENTRY).take(count) {
        let physical = u64_at(entry, 32);
        if physical >> 48 != 0 {
            return Err(VolumeError::Unsupported(
                "a CoreStorage volume over several disks".to_owned(),
            ));
        }
        segments.push(Segment {
            logical: u64_at(entry, 8),
            blocks: u32_at(entry, 16).into(),
            physical: physical & NUMBER,
        });
    }
    Ok(())
}

/// Salt, wrapped key and iterations in the structure macOS keeps for a user.
fn user(value: &[u8]) -> Option<User> {
    Some(User {
        salt: *value.get(8..)?.first_chunk()?,
        wrapped: *value.get(32..)?.first_chunk()?,
        iterations: u32::from_le_bytes(*value.get(168..)?.first_chunk()?),
    })
}

/// The wrapped key, which follows the words for AES-XTS.
fn volume_key(context: &str) -> Option<[u8; WRAPPED]> {
    let (_, keys) = context.split_once("<key>WrappedVolumeKeys</key>")?;
    for dict in keys.split("<key>BlockAlgorithm</key>").skip(1) {
        let algorithm = plist::first_text(dict)?;
        if algorithm == "AES-XTS" {
            let value = plist::all(dict, "KEKWrappedVolumeKeyStruct").next()?;
            return value.get(8..)?.first_chunk().copied();
        }
    }
    None
}

const _: () = assert!(KEY + 8 == WRAPPED);
