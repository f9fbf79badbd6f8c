//! The key of one segment on its way to a client that seals and opens units itself.

use model::SegmentNo;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{SegmentKey, Suite};

/// What it takes to seal and open the units of one segment.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct SegmentAccess {
    /// The segment.
    #[zeroize(skip)]
    pub segment: SegmentNo,
    /// The room's suite.
    #[zeroize(skip)]
    pub suite: Suite,
    /// The segment's key.
    pub key: [u8; 32],
}

impl std::fmt::Debug for SegmentAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentAccess")
            .field("segment", &self.segment)
            .finish_non_exhaustive()
    }
}

impl SegmentAccess {
    /// The key, to seal and open with.
    pub fn segment_key(&self) -> SegmentKey {
        SegmentKey::from_bytes(self.suite, &self.key)
    }
}
