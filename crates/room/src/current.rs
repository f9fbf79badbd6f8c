//! The catalog in use: a rekey puts another one in its place while the room is open.

use std::sync::Arc;

use catalog::Catalog;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[derive(Debug)]
pub(crate) struct CurrentCatalog {
    catalog: RwLock<Arc<Catalog>>,
    /// Shared by long operations on one catalog, exclusive for its replacement by another.
    swap: RwLock<()>,
}

impl CurrentCatalog {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            catalog: RwLock::new(catalog),
            swap: RwLock::new(()),
        }
    }

    /// The catalog of this moment.
    pub(crate) fn get(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    /// Keeps the catalog from being replaced: for long operations on one.
    pub(crate) fn keep(&self) -> RwLockReadGuard<'_, ()> {
        self.swap.read()
    }

    /// Waits until nobody [keeps](Self::keep) the catalog, for [`replace`](Self::replace).
    pub(crate) fn for_replacing(&self) -> RwLockWriteGuard<'_, ()> {
        self.swap.write()
    }

    /// Puts another catalog with the same contents in place. No change is under way.
    pub(crate) fn replace(&self, catalog: Arc<Catalog>) {
        *self.catalog.write() = catalog;
    }
}
