//! Maps of chunks in their stored form, by key: those that are to be written, and those that were last.
//!
//! 1. A map that is here is what the catalog holds, written or not. So an entry of the log may say only [what is new](MapEdit) in the next one:
//!    a replay has the same map by then. A map that comes when none is here has an entry with all of it.
//! 2. The catalog's version says that such entries may be there before the first one is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeBounds;

use crate::Encoded;
#[cfg(doc)]
use crate::MapEdit;
use crate::log::EntryMap;

/// Maps gathered at most, and their bytes: then they are written, though no commit is due. That holds others up for a few milliseconds.
const MAPS_MAX: usize = 2048;
const BYTES_MAX: usize = 4 << 20;

/// Whether entries of the log may say only what is new in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edits {
    /// Not with the version that the last commit has.
    Unknown,
    /// There would have been one: the next commit raises the version.
    Wanted,
    /// They may.
    Known,
}

impl Edits {
    /// A commit is done, with the log's version if there is a log.
    pub(super) fn committed(&mut self, has_log: bool) {
        if *self == Self::Wanted && has_log {
            *self = Self::Known;
        }
    }
}

#[derive(Debug, Default)]
struct Map {
    /// Empty where there is no row.
    bytes: Vec<u8>,
    /// Not written yet.
    is_new: bool,
}

/// Each map is in the place of its row.
#[derive(Debug)]
pub(super) struct Maps<K> {
    maps: BTreeMap<K, Map>,
    new: usize,
    bytes: usize,
}

impl<K> Default for Maps<K> {
    fn default() -> Self {
        Self {
            maps: BTreeMap::new(),
            new: 0,
            bytes: 0,
        }
    }
}

impl<K: Ord + Copy> Maps<K> {
    /// Whether all are written.
    pub(super) fn is_empty(&self) -> bool {
        self.new == 0
    }

    pub(super) fn are_many(&self) -> bool {
        self.new > 0 && (self.maps.len() >= MAPS_MAX || self.bytes >= BYTES_MAX)
    }

    /// Puts a map in the place of its row, and returns what the entry of the log has of it. `encode` is given the one that is there, empty
    /// without one.
    pub(super) fn put(
        &mut self,
        key: K,
        encode: impl FnOnce(&[u8]) -> Encoded,
        edits: &mut Edits,
    ) -> EntryMap {
        let place = self.maps.entry(key);
        let old = match &place {
            Entry::Occupied(place) if *edits == Edits::Known => &place.get().bytes[..],
            Entry::Occupied(_) => {
                *edits = Edits::Wanted;
                &[]
            }
            Entry::Vacant(_) => &[],
        };
        let Encoded { map, edit } = encode(old);
        let entry = edit.map_or_else(|| EntryMap::Whole(map.clone()), EntryMap::Edit);
        let place = place.or_default();
        self.new += usize::from(!place.is_new);
        self.bytes += map.len();
        self.bytes -= place.bytes.len();
        *place = Map {
            bytes: map,
            is_new: true,
        };
        entry
    }

    pub(super) fn get(&self, key: K) -> Option<&[u8]> {
        self.maps.get(&key).map(|map| &map.bytes[..])
    }

    /// Those of a range that are not written yet, in order.
    pub(super) fn new_in(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &[u8])> {
        let maps = self.maps.range(keys).filter(|(_, map)| map.is_new);
        maps.map(|(key, map)| (*key, &map.bytes[..]))
    }

    /// All of them are written now. Few enough stay.
    pub(super) fn written(&mut self) {
        if self.maps.len() > MAPS_MAX / 2 || self.bytes > BYTES_MAX / 2 {
            *self = Self::default();
        }
        self.new = 0;
        for map in self.maps.values_mut() {
            map.is_new = false;
        }
    }

    /// Forgets those of a range.
    pub(super) fn remove(&mut self, keys: impl RangeBounds<K>) {
        let gone: Vec<K> = self.maps.range(keys).map(|(key, _)| *key).collect();
        for map in gone.iter().filter_map(|key| self.maps.remove(key)) {
            self.new -= usize::from(map.is_new);
            self.bytes -= map.bytes.len();
        }
    }
}
