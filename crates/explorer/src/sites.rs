//! Which place in the code asked for a sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// A place in the code that makes something durable: what kind of thing, and who asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub String);

/// Sees every sync, counts them by site, and ignores those of one site.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    seen: Arc<Mutex<BTreeMap<Site, usize>>>,
    ignored: Option<Site>,
}

impl Watch {
    /// Sees only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores the syncs of a site.
    pub fn ignoring(site: Site) -> Self {
        Self {
            ignored: Some(site),
            ..Self::default()
        }
    }

    /// The sites seen so far, with how often.
    pub fn seen(&self) -> BTreeMap<Site, usize> {
        self.seen.lock().clone()
    }

    /// Notes a sync of `what` at the place of the caller; whether it counts.
    pub(crate) fn see(&self, what: &str) -> bool {
        let site = Site(what.to_owned());
        *self.seen.lock().entry(site.clone()).or_default() += 1;
        self.ignored.as_ref() != Some(&site)
    }
}
