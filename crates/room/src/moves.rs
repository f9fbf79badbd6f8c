//! Where compaction took units that more than one chunk refers to, so that all of them follow to one place.
//!
//! Invariant: a unit named here as a target is alive. The drop of the last reference to a unit removes it here, under
//! the same lock.

use std::collections::HashMap;

use catalog::{Digest, NoncePart, SegmentNo, Tag};

type Unit = (SegmentNo, u32);

/// A unit at its new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) segment: SegmentNo,
    pub(crate) position: u32,
    pub(crate) nonce: NoncePart,
    pub(crate) tag: Tag,
    pub(crate) digest: Option<Digest>,
}

/// Moves of shared units, as far as they can still matter.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    to: HashMap<Unit, Moved>,
    from: HashMap<Unit, Unit>,
}

impl Moves {
    /// Notes where the copy of the unit at `old` is.
    pub(crate) fn note(&mut self, old: Unit, new: Moved) {
        self.to.insert(old, new);
        self.from.insert((new.segment, new.position), old);
    }

    /// Where the copy of a unit is.
    pub(crate) fn get(&self, segment: SegmentNo, position: u32) -> Option<Moved> {
        self.to.get(&(segment, position)).copied()
    }

    /// Nothing refers to this unit any more.
    pub(crate) fn forget(&mut self, segment: SegmentNo, position: u32) {
        let unit = (segment, position);
        if let Some(old) = self.from.remove(&unit) {
            self.to.remove(&old);
        }
        if let Some(new) = self.to.remove(&unit) {
            self.from.remove(&(new.segment, new.position));
        }
    }

    /// Forgets all: what follows is copied again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_died_is_no_longer_offered() {
        let mut moves = Moves::default();
        let at = |position| Moved {
            segment: SegmentNo(2),
            position,
            nonce: NoncePart([5; 4]),
            tag: [7; 16],
            digest: Some([8; 32]),
        };
        moves.note((SegmentNo(1), 5), at(9));
        assert_eq!(moves.get(SegmentNo(1), 5), Some(at(9)));
        moves.forget(SegmentNo(2), 9);
        assert_eq!(moves.get(SegmentNo(1), 5), None);
        moves.note((SegmentNo(1), 5), at(13));
        moves.forget(SegmentNo(1), 5);
        assert_eq!(moves.get(SegmentNo(1), 5), None);
        assert!(moves.from.is_empty() && moves.to.is_empty());
    }
}
