//! Stores encrypted data in append-only files and reads it again.
//!
//! `cargo run -p strongroom-segments --example append_and_read -- DIRECTORY`: the directory must exist.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use seal::{MasterKey, RoomId, Suite};
use storage::HostStorage;
use strongroom_segments::{BLOCK_LEN, BlockRange, DirStore, Keyring, SegmentNo};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    // A room takes these from its header: crate `seal`. The suite is measured once and recorded: another time another one may be faster.
    let (room, master, suite) = (RoomId::random(), MasterKey::random(), Suite::fastest());
    let keyring = || {
        let keys = (master.data_key(&room), master.segment_header_key(&room));
        Keyring::new(suite, room, 1, keys.0, keys.1)
    };

    let storage = Arc::new(HostStorage::open(&dir)?);
    let store = DirStore::open(storage.clone(), keyring(), Vec::new(), SegmentNo(1))?;
    let text = vec![b'x'; 3 * BLOCK_LEN];
    // Encrypted and written once, to a place that was never written before.
    let sealed = store.append(&text)?;
    // Nothing is durable before this returns. Only now may anything durable refer to the data.
    store.flush()?;
    // The store keeps no list: which segments there are, where data is and its tags belong into a catalog. Without its tag the
    // data cannot be read, and older data put in its place is refused.
    let known = store.take_new();
    drop(store);

    // Numbers of segments are never used again: the next one begins after all that were known.
    let store = DirStore::open(storage, keyring(), known, SegmentNo(2))?;
    let range = BlockRange {
        segment: sealed.segment,
        position: sealed.position,
        blocks: sealed.blocks,
    };
    let mut back = vec![0; text.len()];
    store.read(range, sealed.proofs(), &mut back)?;
    println!("{} bytes read back: {}", back.len(), back == text);

    let mut other = sealed;
    other.tags[0] = Default::default();
    println!(
        "with another tag: {}",
        store.read(range, other.proofs(), &mut back).unwrap_err()
    );
    Ok(())
}
