//! Maps of chunks in their stored form, by key, until they are written.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Maps gathered at most, and their bytes: then they are written, though no commit is due. That holds others up for a few milliseconds.
const MAPS_MAX: usize = 2048;
const BYTES_MAX: usize = 4 << 20;

/// Each map is in the place of its row; an empty one says that there is none.
#[derive(Debug)]
pub(super) struct Maps<K> {
    maps: BTreeMap<K, Vec<u8>>,
    bytes: usize,
}

impl<K> Default for Maps<K> {
    fn default() -> Self {
        Self {
            maps: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Ord + Copy> Maps<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    pub(super) fn are_many(&self) -> bool {
        self.maps.len() >= MAPS_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn put(&mut self, key: K, map: &[u8]) {
        let place = self.maps.entry(key).or_default();
        self.bytes += map.len();
        self.bytes -= place.len();
        place.clear();
        place.extend_from_slice(map);
    }

    pub(super) fn get(&self, key: K) -> Option<&[u8]> {
        self.maps.get(&key).map(Vec::as_slice)
    }

    /// Those of a range, in order.
    pub(super) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &[u8])> {
        let maps = self.maps.range(keys);
        maps.map(|(key, map)| (*key, map.as_slice()))
    }

    /// Forgets those of a range.
    pub(super) fn remove(&mut self, keys: impl RangeBounds<K>) {
        let gone: Vec<K> = self.maps.range(keys).map(|(key, _)| *key).collect();
        for key in gone {
            self.bytes -= self.maps.remove(&key).map_or(0, |map| map.len());
        }
    }

    /// Takes all of them, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (K, Vec<u8>)> + use<K> {
        std::mem::take(self).maps.into_iter()
    }
}
