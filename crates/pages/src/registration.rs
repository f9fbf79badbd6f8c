//! Storages under names that SQLite can open files by.
//!
//! SQLite takes a path and nothing else, so the first part of a path is the number of a storage: `/7/catalog.db`.

use std::io;
use std::sync::Arc;

use storage::Storage;

use crate::authentic::Witness;
use crate::{registered, start, vfs};

/// A storage that SQLite can reach for as long as this exists; files that are open then stay so.
#[derive(Debug)]
pub struct Registration {
    number: u64,
}

impl Registration {
    /// Gives a storage its number.
    ///
    /// # Errors
    /// SQLite does not start or does not take this layer: it is out of memory.
    pub fn new(storage: Arc<dyn Storage>) -> io::Result<Self> {
        start()?;
        vfs::register()?;
        Ok(Self {
            number: registered::add(storage),
        })
    }

    /// From here on the database `name` and its log are opened through `witness`, which serves one connection.
    pub fn vouch(&self, name: &str, witness: Witness) {
        registered::vouch(self.number, name, witness);
    }

    /// What to call a file of the storage towards SQLite. `name` needs no escaping in a URI.
    pub fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.number)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registered::remove(self.number);
    }
}
