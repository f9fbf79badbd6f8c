//! The keys a segment store seals and opens with.
//!
//! 1. The current epoch always has its keys: a keyring cannot be built without them.
//! 2. The current epoch decides whether appends draw a [part of their nonces](seal::NoncePart).
//! 3. New segments are sealed under the current epoch only; older epochs are for reading what a rekey has not reached.
//! 4. Whether a segment's units have keys of their own is said by its epoch alone.

use std::collections::BTreeMap;

use seal::{DataKey, RoomId, SegmentHeaderKey, Suite};

use crate::SegmentId;
use crate::unit_keys::UnitKeys;

/// The data keys of a room, by key epoch, and which of them is current.
#[derive(Debug, Clone)]
pub struct Keyring {
    suite: Suite,
    room: RoomId,
    current: u32,
    append_nonces: bool,
    epochs: BTreeMap<u32, (DataKey, SegmentHeaderKey)>,
    /// The first epoch in which each position of a segment has its own key.
    positions_from: Option<u32>,
}

impl Keyring {
    /// A keyring of one epoch, the current one.
    pub fn new(
        suite: Suite,
        room: RoomId,
        current: u32,
        data: DataKey,
        header: SegmentHeaderKey,
    ) -> Self {
        Self {
            suite,
            room,
            current,
            append_nonces: false,
            epochs: BTreeMap::from([(current, (data, header))]),
            positions_from: None,
        }
    }

    /// The same with the keys of one more epoch, to read segments sealed under it. The current epoch stays.
    ///
    /// # Panics
    /// When the epoch is there already: two keys for one epoch are a bug of the caller.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u32, data: DataKey, header: SegmentHeaderKey) -> Self {
        let twice = self.epochs.insert(epoch, (data, header)).is_some();
        assert!(!twice, "key epoch {epoch} is in the keyring already");
        self
    }

    /// The same for a room in which, from this epoch on, each position of a segment has its own key.
    #[must_use]
    pub fn with_position_keys(mut self, from_epoch: u32) -> Self {
        self.positions_from = Some(from_epoch);
        self
    }

    /// The same for a room with the feature `append-nonces`, or for one without it.
    #[must_use]
    pub fn with_append_nonces(self, append_nonces: bool) -> Self {
        Self {
            append_nonces,
            ..self
        }
    }

    /// Whether each append draws a part of its nonces.
    pub fn append_nonces(&self) -> bool {
        self.append_nonces
    }

    /// The suite of the room.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The room.
    pub fn room(&self) -> RoomId {
        self.room
    }

    /// The epoch new segments are sealed under.
    pub fn current(&self) -> u32 {
        self.current
    }

    pub(crate) fn keys(&self, epoch: u32) -> Option<&(DataKey, SegmentHeaderKey)> {
        self.epochs.get(&epoch)
    }

    /// Whether each position of a segment has its own key.
    pub(crate) fn has_position_keys(&self, id: &SegmentId) -> bool {
        self.positions_from.is_some_and(|from| id.key_epoch >= from)
    }

    /// The keys of a segment's units; `None` when its epoch is not known.
    pub(crate) fn unit_keys(&self, id: &SegmentId) -> Option<UnitKeys> {
        let (data, _) = self.keys(id.key_epoch)?;
        Some(if self.has_position_keys(id) {
            UnitKeys::Positions(data.position_tree(self.suite, &id.salt))
        } else {
            UnitKeys::Segment(data.segment_key(self.suite, &id.salt))
        })
    }
}
