//! Rooms on any storage, opened by a raw key, that commit when asked.

use std::sync::Arc;

use room::{Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};
use storage::Storage;

fn secret() -> Secret {
    Secret::from(vec![7; 32])
}

pub fn key() -> Credential {
    Credential::RawKey(secret())
}

pub fn options() -> OpenOptions {
    OpenOptions {
        commit_interval_ms: 0,
        background: false,
        ..OpenOptions::default()
    }
}

pub fn create_on(storage: Arc<dyn Storage>, options: OpenOptions) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(secret()));
    new.open = options;
    Room::create_on(storage, new).unwrap()
}

pub fn open_on(storage: Arc<dyn Storage>, options: OpenOptions) -> room::Result<Room> {
    Room::open_on(storage, &key(), options)
}
