//! What stays the same while a room is open: where it is, how it was opened, by whom.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use catalog::Timestamp;
use model::now;
use storage::Storage;

use crate::opener::Opener;
use crate::options::OpenOptions;
use crate::requests::Requests;

/// What all parts of an open room may know.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Empty where the room is not in a directory of the host.
    pub(crate) dir: PathBuf,
    pub(crate) options: OpenOptions,
    pub(crate) storage: Arc<dyn Storage>,
    /// Who may use the room.
    pub(crate) opener: Opener,
    pub(crate) requests: Requests,
    /// The clock that stamps files, where it is not [`now`].
    clock: OnceLock<fn() -> Option<Timestamp>>,
}

impl Environment {
    pub(crate) fn new(dir: PathBuf, options: OpenOptions, storage: Arc<dyn Storage>) -> Self {
        Self {
            dir,
            options,
            storage,
            opener: Opener::this_process(),
            requests: Requests::default(),
            clock: OnceLock::new(),
        }
    }

    /// Files are stamped by `clock` from now on. A second call changes nothing.
    pub(crate) fn stamp_by(&self, clock: fn() -> Option<Timestamp>) {
        self.clock.get_or_init(|| clock);
    }

    /// The present moment, as files are stamped with it.
    pub(crate) fn now(&self) -> Timestamp {
        self.stamp().unwrap_or_else(now)
    }

    /// What a file is stamped with that is changed now; `None`: its times stay, the caller sets them.
    pub(crate) fn stamp(&self) -> Option<Timestamp> {
        self.clock
            .get()
            .map_or_else(|| Some(now()), |clock| clock())
    }
}
