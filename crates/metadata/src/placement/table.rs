//! The file `placement`: which segment lies in which slot of which disk.
//!
//! 1. A slot holds at most one segment, or is leaving: given up and not yet free for another.
//! 2. The file is replaced as a whole and carries its own digest: one that was damaged is refused, because a wrong slot would
//!    let new data be written over old.
//!
//! The first line is `strongroom placement 1 ` and the BLAKE3 digest of the rest in 64 hexadecimal digits; the rest is JSON.
//!
//! It deliberately does not know how disks are reached, or how many slots one has.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use netdisk::DiskId;
use segments::SegmentNo;
use serde::{Deserialize, Serialize};
use storage::Storage;

/// Its name in the room's directory.
pub(super) const PLACEMENT: &str = "placement";
/// Bytes of the longest file that is read: some 700,000 segments, 40 TiB.
const LEN_MAX: u64 = 32 << 20;
const MAGIC: &str = "strongroom placement 1 ";

/// A slot of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub(super) disk: DiskId,
    /// From 0; a slot is as long as a segment.
    pub(super) index: u32,
}

/// Where everything lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    segments: BTreeMap<SegmentNo, Slot>,
    taken: BTreeSet<Slot>,
    leaving: BTreeSet<Slot>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    /// 32 hexadecimal digits each.
    disks: Vec<String>,
    /// Number, index among `disks`, slot.
    segments: Vec<(u64, u32, u32)>,
    /// Index among `disks`, slot.
    leaving: Vec<(u32, u32)>,
}

impl Table {
    pub(super) fn slot(&self, segment: SegmentNo) -> Option<Slot> {
        self.segments.get(&segment).copied()
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (SegmentNo, Slot)> + '_ {
        self.segments.iter().map(|(no, slot)| (*no, *slot))
    }

    pub(super) fn leaving(&self) -> impl Iterator<Item = Slot> + '_ {
        self.leaving.iter().copied()
    }

    /// Slots of a disk that are not free.
    pub(super) fn used(&self, disk: DiskId) -> u32 {
        let of_disk = Slot { disk, index: 0 }..=Slot {
            disk,
            index: u32::MAX,
        };
        (self.taken.range(of_disk.clone()).count() + self.leaving.range(of_disk).count()) as u32
    }

    /// The first free one of the first `slots` slots of a disk.
    pub(super) fn free(&self, disk: DiskId, slots: u32) -> Option<Slot> {
        (0..slots)
            .map(|index| Slot { disk, index })
            .find(|slot| !self.taken.contains(slot) && !self.leaving.contains(slot))
    }

    /// Puts a segment into a free slot.
    pub(super) fn put(&mut self, segment: SegmentNo, slot: Slot) {
        let known = self.segments.insert(segment, slot).is_some();
        assert!(!known, "segment {} is placed already", segment.0);
        assert!(
            self.taken.insert(slot) && !self.leaving.contains(&slot),
            "slot {} is not free",
            slot.index
        );
    }

    /// A segment is gone; its slot is leaving.
    pub(super) fn remove(&mut self, segment: SegmentNo) -> bool {
        let Some(slot) = self.segments.remove(&segment) else {
            return false;
        };
        self.taken.remove(&slot);
        self.leaving.insert(slot);
        true
    }

    /// A slot that was leaving is free.
    pub(super) fn freed(&mut self, slot: Slot) {
        self.leaving.remove(&slot);
    }

    /// Reads the file; an absent one says that nothing is placed.
    pub(super) fn load(storage: &dyn Storage) -> io::Result<Self> {
        match storage::read_limited(storage, PLACEMENT, LEN_MAX) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            other => Self::parse(&other?).map_err(|why| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the file `{PLACEMENT}`, which says where on the disks the data lies, is damaged ({why}); put a copy of it back"
                    ),
                )
            }),
        }
    }

    pub(super) fn store(&self, storage: &dyn Storage) -> io::Result<()> {
        storage::replace(storage, PLACEMENT, &self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let ids: BTreeSet<DiskId> = self
            .taken
            .iter()
            .chain(&self.leaving)
            .map(|s| s.disk)
            .collect();
        let index: BTreeMap<DiskId, u32> = ids.iter().copied().zip(0..).collect();
        let form = Form {
            disks: ids.iter().map(|id| hex(&id.0)).collect(),
            segments: self
                .segments()
                .map(|(no, slot)| (no.0, index[&slot.disk], slot.index))
                .collect(),
            leaving: self
                .leaving()
                .map(|slot| (index[&slot.disk], slot.index))
                .collect(),
        };
        let body = serde_json::to_string(&form).expect("numbers and digits become JSON");
        let digest = blake3::hash(body.as_bytes()).to_hex();
        format!("{MAGIC}{digest}\n{body}").into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        let (digest, body) = text
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.split_once('\n'))
            .ok_or("it does not begin as such a file of this version does")?;
        if blake3::Hash::from_hex(digest).ok() != Some(blake3::hash(body.as_bytes())) {
            return Err("its digest is another one".into());
        }
        let form: Form = serde_json::from_str(body).map_err(|e| e.to_string())?;
        let disks: Vec<DiskId> = form
            .disks
            .iter()
            .map(|text| unhex(text).map(DiskId))
            .collect::<Option<_>>()
            .ok_or("a disk's name is not 32 hexadecimal digits")?;
        let slot = |disk: u32, index: u32| {
            let disk = *disks.get(disk as usize).ok_or("a disk is not named")?;
            Ok::<_, String>(Slot { disk, index })
        };
        let mut table = Self::default();
        for (no, disk, index) in form.segments {
            let slot = slot(disk, index)?;
            let fresh = table.segments.insert(SegmentNo(no), slot).is_none();
            if no == 0 || !fresh || !table.taken.insert(slot) {
                return Err(format!("segment {no} or its slot is there twice"));
            }
        }
        for (disk, index) in form.leaving {
            let slot = slot(disk, index)?;
            if table.taken.contains(&slot) || !table.leaving.insert(slot) {
                return Err(format!("slot {index} is there twice"));
            }
        }
        Ok(table)
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        let mut table = Table::default();
        for (no, disk, index) in [(3, 1, 0), (4, 2, 0), (9, 1, 7), (10, 2, 5)] {
            let disk = DiskId([disk; 16]);
            table.put(SegmentNo(no), Slot { disk, index });
        }
        assert!(table.remove(SegmentNo(9)));
        table
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = table();
        assert_eq!(Table::parse(&table.encode()).unwrap(), table);
        let empty = Table::default();
        assert_eq!(Table::parse(&empty.encode()).unwrap(), empty);
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let good = table().encode();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(Table::parse(&bytes).is_err(), "byte {at}");
            assert!(Table::parse(&good[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_also_with_a_right_digest() {
        let disk = "11".repeat(16);
        let bodies = [
            format!(r#"{{"disks":["{disk}"],"segments":[[1,0,0],[1,0,1]],"leaving":[]}}"#),
            format!(r#"{{"disks":["{disk}"],"segments":[[1,0,0],[2,0,0]],"leaving":[]}}"#),
            format!(r#"{{"disks":["{disk}"],"segments":[[1,0,0]],"leaving":[[0,0]]}}"#),
            format!(r#"{{"disks":["{disk}"],"segments":[],"leaving":[[0,1],[0,1]]}}"#),
            format!(r#"{{"disks":["{disk}"],"segments":[[1,1,0]],"leaving":[]}}"#),
            format!(r#"{{"disks":["{disk}"],"segments":[[0,0,0]],"leaving":[]}}"#),
            format!(r#"{{"disks":["{disk}0"],"segments":[],"leaving":[]}}"#),
            format!(
                r#"{{"disks":["+{}"],"segments":[],"leaving":[]}}"#,
                &disk[1..]
            ),
            r#"{"disks":[],"segments":[],"leaving":[],"more":1}"#.into(),
        ];
        for body in bodies {
            let digest = blake3::hash(body.as_bytes()).to_hex();
            let file = format!("{MAGIC}{digest}\n{body}");
            assert!(Table::parse(file.as_bytes()).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Table::parse(&bytes);
            let digest = blake3::hash(&bytes).to_hex();
            let mut file = format!("{MAGIC}{digest}\n").into_bytes();
            file.extend_from_slice(&bytes);
            let _ = Table::parse(&file);
        }
    }

    #[test]
    fn a_slot_that_is_leaving_is_not_free() {
        let mut table = table();
        let disk = DiskId([1; 16]);
        assert_eq!(table.used(disk), 2);
        assert_eq!(table.free(disk, 100).unwrap().index, 1);
        assert_eq!(table.free(disk, 1), None);
        table.freed(Slot { disk, index: 7 });
        assert_eq!(table.used(disk), 1);
    }
}
