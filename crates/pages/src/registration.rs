//! Storages under names that SQLite can open files by.
//!
//! SQLite takes a path and nothing else, so the first part of a path is the number of a storage: `/7/catalog.db`.

use std::collections::HashMap;
use std::io;
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

/// A storage that SQLite can reach for as long as this exists; files that are open then stay so.
#[derive(Debug)]
pub struct Registration {
    number: u64,
}

impl Registration {
    /// Gives a storage its number.
    ///
    /// # Errors
    /// SQLite does not take this layer: it is out of memory.
    pub fn new(storage: Arc<dyn Storage>) -> io::Result<Self> {
        crate::vfs::register()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let known = Known {
            storage,
            vouched: HashMap::new(),
        };
        REGISTRATIONS
            .write()
            .get_or_insert_default()
            .insert(number, known);
        Ok(Self { number })
    }

    /// From here on the database `name` and its log are opened through `witness`, which serves one connection.
    pub fn vouch(&self, name: &str, witness: Witness) {
        if let Some(known) = REGISTRATIONS
            .write()
            .as_mut()
            .and_then(|places| places.get_mut(&self.number))
        {
            known.vouched.insert(name.to_owned(), witness);
        }
    }

    /// What to call a file of the storage towards SQLite. `name` needs no escaping in a URI.
    pub fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.number)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(places) = REGISTRATIONS.write().as_mut() {
            places.remove(&self.number);
        }
    }
}

/// The storage and the name in it that a path of [`Registration::path`] leads to.
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

/// What vouches for the file that a path of [`Registration::path`] leads to, where anything does.
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
