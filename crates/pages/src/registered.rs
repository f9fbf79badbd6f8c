//! Which storages SQLite can reach now, each by its number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use storage::Storage;

use crate::authentic::Witness;

static REGISTRATIONS: RwLock<Option<HashMap<u64, Known>>> = RwLock::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

struct Known {
    storage: Arc<dyn Storage>,
    /// Names of databases, with what vouches for their pages.
    vouched: HashMap<String, Witness>,
}

/// What a name is to the witness of a database.
pub(crate) enum Part {
    Main(Witness),
    Log(Witness),
    Journal(Witness),
}

/// The number of a storage that is reachable from now on.
pub(crate) fn add(storage: Arc<dyn Storage>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let known = Known {
        storage,
        vouched: HashMap::new(),
    };
    REGISTRATIONS
        .write()
        .get_or_insert_default()
        .insert(number, known);
    number
}

/// Ends that. Files that are open stay so.
pub(crate) fn remove(number: u64) {
    if let Some(all) = REGISTRATIONS.write().as_mut() {
        all.remove(&number);
    }
}

/// From here on `witness` vouches for the database `name` of a storage.
pub(crate) fn vouch(number: u64, name: &str, witness: Witness) {
    let mut all = REGISTRATIONS.write();
    if let Some(known) = all.as_mut().and_then(|all| all.get_mut(&number)) {
        known.vouched.insert(name.to_owned(), witness);
    }
}

/// The storage and the name in it that a path of `Registration::path` leads to.
pub(crate) fn resolve(path: &str) -> Option<(Arc<dyn Storage>, &str)> {
    let (number, name) = path.strip_prefix('/')?.split_once('/')?;
    let storage = REGISTRATIONS
        .read()
        .as_ref()?
        .get(&number.parse().ok()?)?
        .storage
        .clone();
    Some((storage, name))
}

/// What vouches for the file that a path of `Registration::path` leads to, where anything does.
pub(crate) fn vouched(path: &str) -> Option<Part> {
    let (number, name) = path.strip_prefix('/')?.split_once('/')?;
    let places = REGISTRATIONS.read();
    let vouched = &places.as_ref()?.get(&number.parse().ok()?)?.vouched;
    let of = |suffix| vouched.get(name.strip_suffix(suffix)?).cloned();
    vouched
        .get(name)
        .cloned()
        .map(Part::Main)
        .or_else(|| of("-wal").map(Part::Log))
        .or_else(|| of("-journal").map(Part::Journal))
}
