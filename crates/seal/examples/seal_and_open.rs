//! A key from a passphrase, and a block of data that nobody can read or change without it.
//!
//! `cargo run -p strongroom-seal --example seal_and_open`. Writes no file: this crate computes, others store.

use std::error::Error;
use std::time::Duration;

use strongroom_seal::{
    Argon2Cost, Credential, Header, NewCredential, SealError, Secret, Suite, nonce_part,
};

fn main() -> Result<(), Box<dyn Error>> {
    // A header holds key slots. Each slot wraps the same random master key, so a passphrase can change without touching the data.
    // The cost is what an attacker pays for each guess: measure it on the machine where you open rooms.
    let new = NewCredential::Passphrase {
        secret: Secret::from(b"correct horse battery staple".to_vec()),
        cost: Argon2Cost::measured(Duration::from_millis(100)),
    };
    let (header, master) = Header::create(Suite::fastest(), new, "laptop")?;
    let stored = header.encode(&master);

    // Later: parse refuses what is malformed, unlock authenticates the whole header under the key that a slot yields.
    let header = Header::parse(&stored)?;
    let wrong = Credential::Passphrase(Secret::from(b"correct hose".to_vec()));
    println!("wrong passphrase: {}", header.unlock(&wrong).is_err());
    let right = Credential::Passphrase(Secret::from(b"correct horse battery staple".to_vec()));
    let master = header.unlock(&right)?.master;

    // Every segment file has its own key, derived from a random salt. The nonce is the block's position, so a position is sealed
    // once under one key, never twice: the salt must be fresh for each file. The rest of the nonce is random for each append: a
    // copy of this memory (a virtual machine resumed twice) has the same key and positions.
    let salt = [7; 32];
    let key = master
        .data_key(&header.room_id())
        .segment_key(header.suite(), &salt);
    let mut block = [0; 4096];
    block[..5].copy_from_slice(b"hello");
    // Encrypts in place. The tag belongs into a trusted place of its own: a room keeps it in its catalog.
    let nonce = nonce_part(header.has_append_nonces())?;
    let tag = key.seal(nonce, 1, &mut block);
    println!("encrypted: {}", &block[..5] != b"hello");

    let mut moved = block;
    // The same bytes at another position are refused, and so is any changed bit.
    let refused = matches!(
        key.open(nonce, 2, &tag, &mut moved),
        Err(SealError::Corrupt { .. })
    );
    println!("moved to another position: refused {refused}");
    key.open(nonce, 1, &tag, &mut block)?;
    println!("{}", String::from_utf8_lossy(&block[..5]));
    Ok(())
}
