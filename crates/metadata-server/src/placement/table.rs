//! The file `placement`: where each segment is on which disk, and which disks are being emptied.
//!
//! 1. Ranges do not overlap. One holds one segment, or is leaving: discarded and not yet free for another.
//! 2. A place only ever gets shorter; what is cut off it is leaving.
//! 3. The file is replaced as a whole and carries its own digest: one that was damaged is refused, because a wrong place would
//!    let new data be written over old. A [second copy](COPY) is written before it; the newer one that is whole counts.
//!
//! The first line is `strongroom placement 2 ` and the BLAKE3 digest of the rest in 64 hexadecimal digits; the rest is JSON.
//! Version 1, where each place was a whole segment long and no disk was being emptied, is read.
//!
//! It deliberately does not know how disks are reached, or how long one is.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use netdisk::DiskId;
use segments::{SEGMENT_BLOCKS, SegmentNo};
use serde::{Deserialize, Serialize};
use storage::Storage;

/// Its name in the room's directory.
pub(super) const PLACEMENT: &str = "placement";
/// Name of its second copy, which is never older.
pub(super) const COPY: &str = "placement.backup";
/// Blocks of one unit of space: 64 KiB.
pub(super) const UNIT: u32 = 16;
/// Units of a whole segment.
pub(super) const WHOLE: u32 = SEGMENT_BLOCKS / UNIT;
/// Units of the shortest place that a new segment takes: 2 MiB.
pub(super) const SHORTEST: u32 = 32;
/// Bytes of the longest file that is read: some 700,000 segments, 40 TiB.
const LEN_MAX: u64 = 32 << 20;
/// Bytes of the longest file that another segment may lead to. What is above is for places that leave.
const FULL: u64 = LEN_MAX - (1 << 20);
const MAGIC: &str = "strongroom placement 2 ";
const MAGIC_1: &str = "strongroom placement 1 ";

/// A place on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DiskRange {
    pub(super) disk: DiskId,
    /// The first unit, from 0.
    pub(super) start: u32,
    /// How many, 1 to [`WHOLE`].
    pub(super) units: u32,
}

impl DiskRange {
    fn end(self) -> u32 {
        self.start + self.units
    }
}

/// Where every segment is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    segments: BTreeMap<SegmentNo, DiskRange>,
    /// Places with segments and places that are leaving: where each begins, and how long it is.
    taken: BTreeMap<(DiskId, u32), u32>,
    leaving: BTreeSet<DiskRange>,
    draining: BTreeSet<DiskId>,
    /// Rises each time it is stored.
    revision: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    revision: u64,
    /// 32 hexadecimal digits each.
    disks: Vec<String>,
    /// Number, index among `disks`, first unit, units.
    segments: Vec<(u64, u32, u32, u32)>,
    /// Index among `disks`, first unit, units.
    leaving: Vec<(u32, u32, u32)>,
    /// Indexes among `disks`.
    draining: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form1 {
    disks: Vec<String>,
    /// Number, index among `disks`, slot as long as a segment.
    segments: Vec<(u64, u32, u32)>,
    /// Index among `disks`, slot.
    leaving: Vec<(u32, u32)>,
}

impl Form1 {
    fn renewed(self) -> Option<Form> {
        let unit = |slot: u32| slot.checked_mul(WHOLE);
        let segments = self.segments.into_iter();
        let leaving = self.leaving.into_iter();
        Some(Form {
            revision: 0,
            disks: self.disks,
            segments: segments
                .map(|(no, disk, slot)| Some((no, disk, unit(slot)?, WHOLE)))
                .collect::<Option<_>>()?,
            leaving: leaving
                .map(|(disk, slot)| Some((disk, unit(slot)?, WHOLE)))
                .collect::<Option<_>>()?,
            draining: Vec::new(),
        })
    }
}

impl Table {
    pub(super) fn place(&self, segment: SegmentNo) -> Option<DiskRange> {
        self.segments.get(&segment).copied()
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (SegmentNo, DiskRange)> + '_ {
        self.segments.iter().map(|(no, place)| (*no, *place))
    }

    pub(super) fn leaving(&self) -> impl Iterator<Item = DiskRange> + '_ {
        self.leaving.iter().copied()
    }

    pub(super) fn is_draining(&self, disk: DiskId) -> bool {
        self.draining.contains(&disk)
    }

    /// Disks that are being emptied.
    pub(super) fn draining(&self) -> impl Iterator<Item = DiskId> + '_ {
        self.draining.iter().copied()
    }

    /// A disk is being emptied, or is not any more. Whether that is new.
    pub(super) fn set_draining(&mut self, disk: DiskId, draining: bool) -> bool {
        match draining {
            true => self.draining.insert(disk),
            false => self.draining.remove(&disk),
        }
    }

    fn of_disk(&self, disk: DiskId) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.taken
            .range((disk, 0)..=(disk, u32::MAX))
            .map(|((_, start), units)| (*start, *units))
    }

    /// Units of a disk that are not free.
    pub(super) fn used(&self, disk: DiskId) -> u32 {
        self.of_disk(disk).map(|(_, units)| units).sum()
    }

    /// The stretches between places within the first `units` of a disk: where each begins and how long it is.
    pub(super) fn gaps(&self, disk: DiskId, units: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = 0;
        self.of_disk(disk)
            .chain([(units, 0)])
            .filter_map(move |(start, len)| {
                let gap = (at, start.min(units).saturating_sub(at));
                at = at.max(start + len);
                (gap.1 > 0).then_some(gap)
            })
    }

    /// Where the next segment goes in the first `units` of a disk: the first gap for a whole one; or else half of the longest, so
    /// that another segment finds space too.
    pub(super) fn free(&self, disk: DiskId, units: u32) -> Option<DiskRange> {
        let gaps = || self.gaps(disk, units);
        let (start, len) = match gaps().find(|(_, len)| *len >= WHOLE) {
            Some((start, _)) => (start, WHOLE),
            None => {
                let (start, len) = gaps().max_by_key(|(start, len)| (*len, u32::MAX - start))?;
                (start, (len / 2).max(SHORTEST.min(len)))
            }
        };
        (len >= SHORTEST).then_some(DiskRange {
            disk,
            start,
            units: len,
        })
    }

    fn take(&mut self, place: DiskRange) -> bool {
        let before = self
            .taken
            .range((place.disk, 0)..(place.disk, place.end()))
            .next_back();
        let is_free = before.is_none_or(|((_, start), units)| start + units <= place.start);
        if is_free {
            self.taken.insert((place.disk, place.start), place.units);
        }
        is_free
    }

    /// Puts a segment into a free place.
    pub(super) fn put(&mut self, segment: SegmentNo, place: DiskRange) {
        let known = self.segments.insert(segment, place).is_some();
        assert!(!known, "segment {} has a place already", segment.0);
        assert!(self.take(place), "unit {} is not free", place.start);
    }

    /// A segment is gone; its place is leaving.
    pub(super) fn remove(&mut self, segment: SegmentNo) -> bool {
        let Some(place) = self.segments.remove(&segment) else {
            return false;
        };
        self.leaving.insert(place);
        true
    }

    /// A segment needs the first `units` of its place; the rest is leaving. Whether there was a rest.
    pub(super) fn cut(&mut self, segment: SegmentNo, units: u32) -> bool {
        let Some(place) = self.segments.get_mut(&segment) else {
            return false;
        };
        let units = units.max(1);
        if place.units <= units {
            return false;
        }
        let rest = DiskRange {
            start: place.start + units,
            units: place.units - units,
            ..*place
        };
        place.units = units;
        self.taken.insert((place.disk, place.start), units);
        self.taken.insert((rest.disk, rest.start), rest.units);
        self.leaving.insert(rest);
        true
    }

    /// A place that was leaving is free.
    pub(super) fn freed(&mut self, place: DiskRange) {
        if self.leaving.remove(&place) {
            self.taken.remove(&(place.disk, place.start));
        }
    }

    /// Reads the file; an absent one means that there is no segment.
    pub(super) fn load(storage: &dyn Storage) -> io::Result<Self> {
        let read = |name: &str| -> Result<Option<Self>, String> {
            match storage::read_limited(storage, name, LEN_MAX) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e.to_string()),
                Ok(bytes) => Self::parse(&bytes).map(Some),
            }
        };
        match (read(PLACEMENT), read(COPY)) {
            (Ok(None), Ok(None)) => Ok(Self::default()),
            (Ok(Some(table)), Ok(Some(copy))) if copy.revision > table.revision => Ok(copy),
            (Ok(Some(table)), _) => Ok(table),
            (found, Ok(Some(copy))) => {
                let why = found.err().unwrap_or_else(|| "it is gone".into());
                tracing::warn!("the file `{PLACEMENT}` is not used ({why}); its copy `{COPY}` is");
                Ok(copy)
            }
            (Err(why), _) | (_, Err(why)) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the file `{PLACEMENT}`, which says where on the disks the data is, or its copy `{COPY}` is damaged ({why}), and the other one is of no use; put a copy of it back"
                ),
            )),
        }
    }

    /// Durably, the second copy first: so it is never older than the file. `StorageFull`, and nothing is
    /// written, where it would be too long to be read again.
    pub(super) fn store(&mut self, storage: &dyn Storage) -> io::Result<()> {
        self.store_within(storage, LEN_MAX)
    }

    /// The same with another segment: `StorageFull` earlier, so that segments can still be removed and disks emptied.
    pub(super) fn store_another(&mut self, storage: &dyn Storage) -> io::Result<()> {
        self.store_within(storage, FULL)
    }

    fn store_within(&mut self, storage: &dyn Storage, most: u64) -> io::Result<()> {
        self.revision += 1;
        let bytes = self.encode();
        if bytes.len() as u64 > most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        storage::replace(storage, COPY, &bytes)?;
        storage::replace(storage, PLACEMENT, &bytes)
    }

    fn encode(&self) -> Vec<u8> {
        let on = self.taken.keys().map(|(disk, _)| *disk);
        let ids: BTreeSet<DiskId> = on.chain(self.draining()).collect();
        let index: BTreeMap<DiskId, u32> = ids.iter().copied().zip(0..).collect();
        let form = Form {
            revision: self.revision,
            disks: ids.iter().map(|id| hex(&id.0)).collect(),
            segments: self
                .segments()
                .map(|(no, place)| (no.0, index[&place.disk], place.start, place.units))
                .collect(),
            leaving: self
                .leaving()
                .map(|place| (index[&place.disk], place.start, place.units))
                .collect(),
            draining: self.draining().map(|disk| index[&disk]).collect(),
        };
        let body = serde_json::to_string(&form).expect("numbers and digits become JSON");
        let digest = blake3::hash(body.as_bytes()).to_hex();
        format!("{MAGIC}{digest}\n{body}").into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        let old = text.starts_with(MAGIC_1);
        let (digest, body) = text
            .strip_prefix(if old { MAGIC_1 } else { MAGIC })
            .and_then(|rest| rest.split_once('\n'))
            .ok_or("it does not begin as such a file of this version does")?;
        if blake3::Hash::from_hex(digest).ok() != Some(blake3::hash(body.as_bytes())) {
            return Err("its digest is another one".into());
        }
        let form: Form = match old {
            true => serde_json::from_str::<Form1>(body)
                .map_err(|e| e.to_string())?
                .renewed()
                .ok_or("a slot is out of range")?,
            false => serde_json::from_str(body).map_err(|e| e.to_string())?,
        };
        let disks: Vec<DiskId> = form
            .disks
            .iter()
            .map(|text| unhex(text).map(DiskId))
            .collect::<Option<_>>()
            .ok_or("a disk's name is not 32 hexadecimal digits")?;
        let disk = |index: u32| disks.get(index as usize).ok_or("a disk is not named");
        let place = |index: u32, start: u32, units: u32| {
            let disk = *disk(index)?;
            let fits = (1..=WHOLE).contains(&units) && start.checked_add(units).is_some();
            fits.then_some(DiskRange { disk, start, units })
                .ok_or("a place is out of range")
        };
        let mut table = Self {
            revision: form.revision,
            ..Self::default()
        };
        for (no, index, start, units) in form.segments {
            let place = place(index, start, units)?;
            let fresh = table.segments.insert(SegmentNo(no), place).is_none();
            if no == 0 || !fresh || !table.take(place) {
                return Err(format!("segment {no} or its place is there twice"));
            }
        }
        for (index, start, units) in form.leaving {
            let place = place(index, start, units)?;
            if !table.take(place) {
                return Err(format!("unit {start} is there twice"));
            }
            table.leaving.insert(place);
        }
        for index in form.draining {
            table.draining.insert(*disk(index)?);
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

    fn place(disk: u8, start: u32, units: u32) -> DiskRange {
        DiskRange {
            disk: DiskId([disk; 16]),
            start,
            units,
        }
    }

    fn table() -> Table {
        let mut table = Table::default();
        for (no, at) in [
            (3, place(1, 0, WHOLE)),
            (4, place(2, 0, 40)),
            (9, place(1, 7 * WHOLE, WHOLE)),
            (10, place(2, 40, WHOLE)),
        ] {
            table.put(SegmentNo(no), at);
        }
        assert!(table.remove(SegmentNo(9)));
        assert!(table.cut(SegmentNo(10), 3));
        assert!(table.set_draining(DiskId([9; 16]), true));
        table
    }

    fn file(magic: &str, body: &str) -> Vec<u8> {
        let digest = blake3::hash(body.as_bytes()).to_hex();
        format!("{magic}{digest}\n{body}").into_bytes()
    }

    // A room of some 80 TiB wrote a file that its next opening refused.
    #[test]
    fn a_table_that_would_be_too_long_to_be_read_again_is_not_written() {
        const { assert!(FULL < LEN_MAX) };
        let dir = tempfile::tempdir().unwrap();
        let storage = storage::HostStorage::open(dir.path()).unwrap();
        let mut before = table();
        before.store(&storage).unwrap();
        let mut after = before.clone();
        after.put(SegmentNo(11), place(3, 0, WHOLE));
        let len = after.encode().len() as u64;
        let refused = after.clone().store_within(&storage, len - 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(Table::load(&storage).unwrap(), before);
        after.store_within(&storage, len).unwrap();
        assert_eq!(Table::load(&storage).unwrap(), after);
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = table();
        assert_eq!(Table::parse(&table.encode()).unwrap(), table);
        let empty = Table::default();
        assert_eq!(Table::parse(&empty.encode()).unwrap(), empty);
    }

    #[test]
    fn a_table_of_the_first_version_is_read() {
        let disk = "11".repeat(16);
        let body =
            format!(r#"{{"disks":["{disk}"],"segments":[[1,0,0],[7,0,3]],"leaving":[[0,1]]}}"#);
        let table = Table::parse(&file(MAGIC_1, &body)).unwrap();
        assert_eq!(
            table.place(SegmentNo(7)),
            Some(place(0x11, 3 * WHOLE, WHOLE))
        );
        assert_eq!(
            table.leaving().collect::<Vec<_>>(),
            [place(0x11, WHOLE, WHOLE)]
        );
        let far = format!(r#"{{"disks":["{disk}"],"segments":[[1,0,4294967295]],"leaving":[]}}"#);
        assert!(Table::parse(&file(MAGIC_1, &far)).is_err());
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
        let of = |segments: &str, leaving: &str, draining: &str| {
            format!(
                r#"{{"revision":1,"disks":["{disk}"],"segments":[{segments}],"leaving":[{leaving}],"draining":[{draining}]}}"#
            )
        };
        assert!(Table::parse(&file(MAGIC, &of("[1,0,0,9]", "[0,9,9]", "0"))).is_ok());
        let bodies = [
            of("[1,0,0,9],[1,0,9,9]", "", ""),
            of("[1,0,0,9],[2,0,0,9]", "", ""),
            of("[1,0,5,9],[2,0,0,6]", "", ""),
            of("[1,0,0,9]", "[0,8,1]", ""),
            of("", "[0,1,2],[0,1,2]", ""),
            of("[1,1,0,9]", "", ""),
            of("[0,0,0,9]", "", ""),
            of("[1,0,0,0]", "", ""),
            of("[1,0,0,1025]", "", ""),
            of("[1,0,4294967295,1]", "", ""),
            of("", "", "1"),
            format!(
                r#"{{"revision":1,"disks":["{disk}0"],"segments":[],"leaving":[],"draining":[]}}"#
            ),
            format!(
                r#"{{"revision":1,"disks":["+{}"],"segments":[],"leaving":[],"draining":[]}}"#,
                &disk[1..]
            ),
            r#"{"revision":1,"disks":[],"segments":[],"leaving":[],"draining":[],"more":1}"#.into(),
        ];
        for body in bodies {
            assert!(Table::parse(&file(MAGIC, &body)).is_err(), "{body}");
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

        #[test]
        fn places_never_overlap(steps in proptest::collection::vec((0..4_u8, 0..20_u64, 1..WHOLE), 1..80)) {
            let (mut table, disk, units) = (Table::default(), DiskId([1; 16]), 5 * WHOLE + 7);
            let mut next = 0;
            for (what, which, len) in steps {
                let known: Vec<SegmentNo> = table.segments().map(|(no, _)| no).collect();
                let some = known.get(which as usize % known.len().max(1)).copied();
                match (what, some) {
                    (0, _) => if let Some(place) = table.free(disk, units) {
                        prop_assert!(place.end() <= units && place.units >= SHORTEST);
                        next += 1;
                        table.put(SegmentNo(next), place);
                    },
                    (1, Some(no)) => { table.cut(no, len); }
                    (2, Some(no)) => { table.remove(no); }
                    _ => {
                        let place = table.leaving().next();
                        place.into_iter().for_each(|place| table.freed(place));
                    }
                }
                let free: u32 = table.gaps(disk, units).map(|(_, len)| len).sum();
                prop_assert_eq!(free + table.used(disk), units);
                // It refuses what overlaps.
                prop_assert_eq!(&Table::parse(&table.encode()).unwrap(), &table);
            }
        }
    }

    #[test]
    fn a_new_segment_takes_a_whole_gap_or_half_of_the_longest() {
        let mut table = table();
        let disk = DiskId([1; 16]);
        assert_eq!(table.used(disk), 2 * WHOLE);
        assert_eq!(table.free(disk, 100 * WHOLE), Some(place(1, WHOLE, WHOLE)));
        assert_eq!(table.free(disk, WHOLE), None);
        let beyond = |units| table.free(disk, WHOLE + units);
        assert_eq!(beyond(SHORTEST - 1), None);
        assert_eq!(beyond(SHORTEST), Some(place(1, WHOLE, SHORTEST)));
        assert_eq!(beyond(500), Some(place(1, WHOLE, 250)));
        table.freed(place(1, 7 * WHOLE, WHOLE));
        assert_eq!(table.used(disk), WHOLE);
        assert_eq!(table.used(DiskId([2; 16])), 40 + WHOLE);
        table.freed(place(2, 43, WHOLE - 3));
        assert_eq!(table.used(DiskId([2; 16])), 43);
    }
}
