//! Long work on a whole room, while it is in use: check, compaction, rekey, backup.

mod backup;
mod check;
mod cleaner;
mod compact;
mod mark;
mod rekey;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::blocks::Blocks;
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::freed::Freed;
use crate::keys::Keys;
use crate::reap::Reaper;
use crate::space::Space;
use crate::tree::Tree;
pub use backup::prepare_backup;
pub(crate) use check::examine;
pub(crate) use cleaner::Cleaner;
pub use mark::detach_backup;
pub(crate) use mark::is_unchanged_backup;

/// What long work needs of a room.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) freed: Arc<Freed>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) space: Arc<Space>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tree: Arc<Tree>,
    /// Held while data moves between segments.
    pub(crate) moving: Mutex<()>,
}
