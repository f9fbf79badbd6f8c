//! How every room of the explorer is opened.

use std::sync::Arc;

use room::{Credential, OpenOptions, Room, Secret};
use storage::Storage;

/// Keys that workloads use, numbered from 0; a prepared room opens with the first.
pub const KEYS: u8 = 4;

/// The key of a number. Raw, so that nothing is derived from it at a cost.
pub fn credential(key: u8) -> Credential {
    Credential::RawKey(secret(key))
}

/// The bytes of that key.
pub fn secret(key: u8) -> Secret {
    Secret::from(vec![key ^ 0xa5; 32])
}

/// How every room of the explorer is opened.
pub fn options() -> OpenOptions {
    OpenOptions {
        commit_interval_ms: 0,
        background: false,
        ..OpenOptions::default()
    }
}

/// Opens a room as it was created. A room that grants writes opens only where its segments are within reach.
///
/// # Errors
/// What the room says.
pub fn open_with(
    storage: &Arc<dyn Storage>,
    key: &Credential,
    options: OpenOptions,
) -> room::Result<Room> {
    let granting = OpenOptions {
        network_backed: true,
        ..options.clone()
    };
    match Room::open_on(storage.clone(), key, options) {
        Err(room::Error::OnNetworkDisks) => Room::open_on(storage.clone(), key, granting),
        other => other,
    }
}

/// Opens the room with the first of the keys that fits.
///
/// # Errors
/// What the room says of the first key where none fits.
pub fn open(storage: &Arc<dyn Storage>) -> room::Result<Room> {
    let mut first = None;
    for key in 0..KEYS {
        match open_with(storage, &credential(key), options()) {
            Err(e @ room::Error::WrongCredential(_)) => {
                first.get_or_insert(e);
            }
            other => return other,
        }
    }
    Err(first.unwrap_or(room::Error::NotFound))
}
