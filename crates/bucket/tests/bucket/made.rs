//! Storages for the tests of this directory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::{OpenMode, Storage};
use strongroom_bucket::{BucketStorage, ObjectStore, Options, WriterId};

use crate::store::Store;

/// Options with which tests do not wait.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.timeout = Duration::from_secs(5);
    options.take_over = true;
    options
}

/// The same for a machine that leaves the room to others.
pub(crate) fn polite() -> Options {
    let mut options = options();
    options.take_over = false;
    options
}

/// The same with a checkpoint every few commits, after which nothing is kept for readers.
pub(crate) fn quick() -> Options {
    let mut options = options();
    options.checkpoint_commits = 5;
    options.grace = Duration::ZERO;
    options
}

/// Directories of two machines.
pub(crate) fn two_machines() -> [tempfile::TempDir; 2] {
    [(); 2].map(|()| tempfile::tempdir().unwrap())
}

pub(crate) fn arc(store: &Store) -> Arc<dyn ObjectStore> {
    Arc::new(store.clone())
}

/// A timeout in milliseconds that ends quickly. An engine has more time for what it shall do, and is not waited for where it shall not.
pub(crate) fn short(store: &Store, ms: u64) -> Duration {
    match store.has_log() {
        true => Duration::from_secs(20),
        false => Duration::from_millis(ms),
    }
}

pub(crate) fn create(store: &Store, dir: &Path, mut options: Options) -> io::Result<BucketStorage> {
    options.log = store.log();
    BucketStorage::create(arc(store), "rooms/a", dir, options)
}

pub(crate) fn open(store: &Store, dir: &Path, options: Options) -> io::Result<BucketStorage> {
    let storage = open_unaccepted(store, dir, options)?;
    storage.accept();
    Ok(storage)
}

/// The same for a room, which says itself whether the state is the newest.
pub(crate) fn open_unaccepted(
    store: &Store,
    dir: &Path,
    mut options: Options,
) -> io::Result<BucketStorage> {
    options.log = store.log();
    BucketStorage::open(arc(store), "rooms/a", dir, options)
}

/// What a creation does that failed after it had this storage.
pub(crate) fn discard(store: &Store, dir: &Path, created: WriterId) -> io::Result<()> {
    let mut options = options();
    options.log = store.log();
    BucketStorage::discard(arc(store), "rooms/a", dir, options, created)
}

/// Writes a new file durably.
pub(crate) fn write(storage: &dyn Storage, path: &str, bytes: &[u8]) -> io::Result<()> {
    let file = storage.open(path, OpenMode::CreateNew)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

pub(crate) fn read(storage: &dyn Storage, path: &str) -> io::Result<Vec<u8>> {
    storage::read_limited(storage, path, 1 << 30)
}

/// Bytes that are no hole and have no pattern.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
