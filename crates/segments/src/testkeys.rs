//! Keys for this crate's tests and fuzz target.

use seal::{MasterKey, RoomId, Suite};

use crate::Keyring;

pub(crate) fn keyring() -> Keyring {
    keyring_of([3; 16])
}

/// A keyring of epoch 1 for the room with this id.
pub(crate) fn keyring_of(room: [u8; 16]) -> Keyring {
    keyring_with(Suite::Aes256Gcm, room)
}

pub(crate) fn keyring_with(suite: Suite, room: [u8; 16]) -> Keyring {
    let room = RoomId::from_bytes(room);
    let master = MasterKey::from_bytes(&[1; 32]);
    Keyring::new(
        suite,
        room,
        1,
        master.data_key(&room),
        master.segment_header_key(&room),
    )
}

/// The keyring of [`keyring`] after a rekey: epoch 2 is current, epoch 1 still readable.
pub(crate) fn rekeyed() -> Keyring {
    let room = RoomId::from_bytes([3; 16]);
    let (old, new) = (
        MasterKey::from_bytes(&[1; 32]),
        MasterKey::from_bytes(&[2; 32]),
    );
    Keyring::new(
        Suite::Aes256Gcm,
        room,
        2,
        new.data_key(&room),
        new.segment_header_key(&room),
    )
    .with_epoch(1, old.data_key(&room), old.segment_header_key(&room))
}
