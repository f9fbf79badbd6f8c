//! Creates a room in an object store, and opens it on another machine.
//!
//! `cargo run -p strongroom-bucket --example room_in_bucket -- DIRECTORY`: the directory must exist. The store is in memory here; for a
//! bucket, take `object_store::aws::AmazonS3Builder::from_env()`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::memory::InMemory;
use room::{Argon2Cost, Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};
use strongroom_bucket::{BucketStorage, ObjectStore, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let secret = || Secret::from(b"correct horse".to_vec());

    // The store is tried first: one that would let two writers win is refused.
    let here = dir.join("cache of one machine");
    let storage = BucketStorage::create(store.clone(), "rooms/work", &here, Options::default())?;
    let new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: secret(),
        cost: Argon2Cost::LEAST,
    });
    let room = Room::create_on(Arc::new(storage), new)?;
    room.write_file("/letter.txt", b"Dear Ada\n")?;
    // In the bucket when this returns.
    room.close()?;

    let elsewhere = dir.join("cache of another machine");
    let storage = BucketStorage::open(store, "rooms/work", &elsewhere, Options::default())?;
    let credential = Credential::Passphrase(secret());
    let room = Room::open_on(Arc::new(storage), &credential, OpenOptions::default())?;
    print!("{}", String::from_utf8(room.read_file("/letter.txt")?)?);
    room.close()?;
    Ok(())
}
