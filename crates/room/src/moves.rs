//! Where compaction took units that more than one chunk refers to, so that all of them follow to one place.
//!
//! Invariant: a unit named here as a target is alive. Whoever gives the last reference to a unit up forgets it here,
//! under the same lock.

use std::collections::HashMap;

use catalog::{NoncePart, SegmentNo, Tag};

type Unit = (SegmentNo, u32);
/// What it takes to open a unit.
type Proof = (NoncePart, Tag);

/// Moves of shared units, as far as they can still matter.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    to: HashMap<Unit, (Unit, Proof)>,
    from: HashMap<Unit, Unit>,
}

impl Moves {
    /// Notes that the unit at `old` has its copy at `new`.
    pub(crate) fn note(&mut self, old: Unit, new: Unit, proof: Proof) {
        self.to.insert(old, (new, proof));
        self.from.insert(new, old);
    }

    /// Where the copy of a unit is, with what opens it.
    pub(crate) fn get(&self, segment: SegmentNo, position: u32) -> Option<(Unit, Proof)> {
        self.to.get(&(segment, position)).copied()
    }

    /// Nothing refers to this unit any more.
    pub(crate) fn forget(&mut self, segment: SegmentNo, position: u32) {
        let unit = (segment, position);
        if let Some(old) = self.from.remove(&unit) {
            self.to.remove(&old);
        }
        if let Some((new, _)) = self.to.remove(&unit) {
            self.from.remove(&new);
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
        let proof = (NoncePart([5; 4]), [7; 16]);
        moves.note((SegmentNo(1), 5), (SegmentNo(2), 9), proof);
        assert_eq!(moves.get(SegmentNo(1), 5), Some(((SegmentNo(2), 9), proof)));
        moves.forget(SegmentNo(2), 9);
        assert_eq!(moves.get(SegmentNo(1), 5), None);
        moves.note((SegmentNo(1), 5), (SegmentNo(2), 13), proof);
        moves.forget(SegmentNo(1), 5);
        assert_eq!(moves.get(SegmentNo(1), 5), None);
        assert!(moves.from.is_empty() && moves.to.is_empty());
    }
}
