//! What the cache has is what the store has, whatever its disk does.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use storage::{OpenMode, Storage};

use crate::made::{create, noise, open, options, read, two_machines, write};
use crate::store::Store;

/// The chunks' files in the cache of a machine.
fn chunks(dir: &Path) -> Vec<PathBuf> {
    let inside = |dir: &Path| {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let is_cache = |dir: &PathBuf| dir.file_name().unwrap().as_bytes().starts_with(b"chunks-");
    let caches = inside(dir).filter(is_cache);
    caches.flat_map(|cache| inside(&cache)).collect()
}

/// Flips a bit of each chunk in the cache of a machine.
fn damage_chunks(dir: &Path, at: usize) {
    for chunk in chunks(dir) {
        let mut bytes = std::fs::read(&chunk).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&chunk, bytes).unwrap();
    }
}

/// What its disk changed of a chunk that was read before, or just written, was returned until the room was opened again, and a room called it
/// damaged.
#[test]
fn what_a_disk_changes_in_the_cache_is_read_from_the_store_again() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    let data = noise(1, 3 << 20);
    write(&storage, "f", &data).unwrap();
    let file = storage.open("f", OpenMode::Read).unwrap();
    let mut found = vec![0; 7000];
    for at in [0, 5000, 300_000, (1 << 20) - 1] {
        damage_chunks(dir.path(), at);
        for chunk in 0..3 {
            let place = ((chunk << 20) + at).saturating_sub(3500);
            let len = found.len().min(data.len() - place);
            file.read_at(&mut found[..len], place as u64).unwrap();
            assert!(found[..len] == data[place..][..len], "{chunk}, {at}");
        }
        // And the cache has it right again.
        let before = storage.requests().gets;
        assert!(read(&storage, "f").unwrap() == data);
        assert_eq!(storage.requests().gets, before, "{at}");
    }
}

/// A chunk that its disk changed went into a new object, and the one that was right was removed.
#[test]
fn what_a_disk_changes_in_the_cache_does_not_get_into_the_store() {
    let store = Store::new();
    let [here, there] = two_machines();
    let storage = create(&store, here.path(), options()).unwrap();
    let mut data = noise(1, 3 << 20);
    write(&storage, "f", &data).unwrap();
    damage_chunks(here.path(), 5000);
    let file = storage.open("f", OpenMode::ReadWrite).unwrap();
    data[..2 << 20].copy_from_slice(&noise(2, 2 << 20));
    file.write_at(&data[..2 << 20], 0).unwrap();
    file.sync().unwrap();
    storage.checkpoint().unwrap();
    drop((file, storage));
    let storage = open(&store, there.path(), options()).unwrap();
    assert!(read(&storage, "f").unwrap() == data);
}
