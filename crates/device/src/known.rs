//! Ranges of a file that are known to hold data, so that the kernel is not asked again: it finds the beginning of a hole by
//! going through all data before it.
//!
//! 1. The record that a range is data may be stale and is then still correct: data may be zeros. Holes are never recorded.
//! 2. Memory is bounded.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Most ranges that are remembered.
const RANGES_MAX: usize = 1024;

/// Ranges by their first byte: the byte behind each.
#[derive(Debug, Default)]
pub(crate) struct KnownData(RwLock<BTreeMap<u64, u64>>);

impl KnownData {
    /// The end of the known data that contains `offset`, if any.
    pub(crate) fn end_of(&self, offset: u64) -> Option<u64> {
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (_, end) = ranges.range(..=offset).next_back()?;
        (*end > offset).then_some(*end)
    }

    /// `start..end` holds data.
    pub(crate) fn learn(&self, start: u64, end: u64) {
        let mut ranges = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if ranges.len() >= RANGES_MAX {
            ranges.clear();
        }
        // What begins within it is part of it from now on.
        let within: Vec<u64> = ranges.range(start..=end).map(|(start, _)| *start).collect();
        let ends = within.iter().filter_map(|start| ranges.remove(start));
        let end = ends.fold(end, u64::max);
        match ranges.range_mut(..start).next_back() {
            Some((_, before)) if *before >= start => *before = end.max(*before),
            _ => drop(ranges.insert(start, end)),
        }
    }

    /// Something became a hole.
    pub(crate) fn forget(&self) {
        let known = !self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        if known {
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let known = KnownData::default();
        known.learn(100, 200);
        known.learn(300, 400);
        assert_eq!(known.end_of(99), None);
        assert_eq!(known.end_of(100), Some(200));
        assert_eq!(known.end_of(200), None);
        known.learn(200, 300);
        assert_eq!(known.end_of(100), Some(400));
        known.learn(50, 1000);
        assert_eq!(
            (known.end_of(60), known.end_of(400)),
            (Some(1000), Some(1000))
        );
        known.learn(60, 70);
        assert_eq!(known.end_of(60), Some(1000));
        known.forget();
        assert_eq!(known.end_of(100), None);
    }

    #[test]
    fn memory_is_bounded() {
        let known = KnownData::default();
        for i in 0..10_000 {
            known.learn(i * 10, i * 10 + 5);
        }
        assert!(known.0.read().unwrap().len() <= RANGES_MAX);
        assert_eq!(known.end_of(99_990), Some(99_995));
    }
}
