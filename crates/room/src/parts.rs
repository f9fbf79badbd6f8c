//! The parts of an open room, put together.

use std::collections::HashMap;
use std::sync::Arc;

use catalog::{Catalog, SegmentNo};
use parking_lot::Mutex;
use segments::DirStore;

use crate::accounts::Accounts;
use crate::attributes::Attributes;
use crate::blocks::Blocks;
use crate::commit::Commits;
use crate::contents::Contents;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::freed::Freed;
use crate::header::HeaderState;
use crate::holds::Holds;
use crate::keys::Keys;
use crate::lock::RoomLock;
use crate::maintenance::Maintenance;
use crate::name_cache::NameCache;
use crate::reap::Reaper;
use crate::remote::Remote;
use crate::rollback::Memory;
use crate::snapshots::Past;
use crate::space::Space;
use crate::tree::Tree;

/// Everything of an open room but its thread. Each part knows those above it only.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) freed: Arc<Freed>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) space: Arc<Space>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) attributes: Attributes,
    pub(crate) contents: Contents,
    pub(crate) remote: Remote,
    pub(crate) past: Arc<Past>,
    pub(crate) maintenance: Maintenance,
    /// The generation that the opening found.
    pub(crate) found: u64,
    /// The last to go: the next opening finds the room closed. Later moments of a room for reading share it.
    pub(crate) lock: Arc<RoomLock>,
}

/// What an opening found.
pub(crate) struct Found {
    /// Of the room, before records of its log were applied in memory.
    pub(crate) generation: u64,
    pub(crate) header: HeaderState,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) segments: DirStore,
    pub(crate) accounts: Accounts,
    /// What was not punched: bytes of each segment.
    pub(crate) unpunched: HashMap<SegmentNo, u64>,
    /// Blocks reserved for holes.
    pub(crate) reserved: u64,
    pub(crate) memory: Memory,
    pub(crate) lock: Arc<RoomLock>,
}

impl Parts {
    pub(crate) fn new(env: Environment, found: Found) -> Self {
        let env = Arc::new(env);
        let catalog = Arc::new(CurrentCatalog::new(found.catalog));
        let segments = Arc::new(found.segments);
        let blocks = Arc::new(Blocks::new(
            env.clone(),
            catalog.clone(),
            segments.clone(),
            found.accounts,
        ));
        let freed = Arc::new(Freed::new(env.clone(), segments, found.unpunched));
        let data = Arc::new(Data::new(
            env.clone(),
            catalog.clone(),
            blocks.clone(),
            found.reserved,
        ));
        let commits = Arc::new(Commits::new(
            env.clone(),
            catalog.clone(),
            blocks.clone(),
            freed.clone(),
            data.clone(),
            found.memory,
        ));
        let holds = Arc::new(Holds::new(env.clone()));
        let reaper = Arc::new(Reaper::new(data.clone(), commits.clone(), holds.clone()));
        let space = Arc::new(Space {
            env: env.clone(),
            catalog: catalog.clone(),
            blocks: blocks.clone(),
            freed: freed.clone(),
            data: data.clone(),
            commits: commits.clone(),
            holds: holds.clone(),
            reaper: reaper.clone(),
            budget: Default::default(),
        });
        let keys = Arc::new(Keys::new(
            env.clone(),
            catalog.clone(),
            commits.clone(),
            found.header,
        ));
        let tree = Arc::new(Tree {
            env: env.clone(),
            catalog: catalog.clone(),
            data: data.clone(),
            commits: commits.clone(),
            space: space.clone(),
            holds: holds.clone(),
            found: NameCache::new(),
            names: Default::default(),
        });
        data.note_snapshots();
        Self {
            attributes: Attributes {
                env: env.clone(),
                catalog: catalog.clone(),
                data: data.clone(),
                commits: commits.clone(),
                space: space.clone(),
            },
            contents: Contents {
                env: env.clone(),
                data: data.clone(),
                commits: commits.clone(),
                space: space.clone(),
                keys: keys.clone(),
                refused: Default::default(),
            },
            remote: Remote {
                env: env.clone(),
                catalog: catalog.clone(),
                blocks: blocks.clone(),
                freed: freed.clone(),
                data: data.clone(),
                commits: commits.clone(),
                space: space.clone(),
            },
            past: Arc::new(Past {
                env: env.clone(),
                catalog: catalog.clone(),
                blocks: blocks.clone(),
                data: data.clone(),
                commits: commits.clone(),
                reaper: reaper.clone(),
                space: space.clone(),
                names: Default::default(),
                deleting: Default::default(),
                applying: Default::default(),
            }),
            maintenance: Maintenance {
                env: env.clone(),
                catalog: catalog.clone(),
                blocks: blocks.clone(),
                freed: freed.clone(),
                data: data.clone(),
                commits: commits.clone(),
                reaper: reaper.clone(),
                space: space.clone(),
                keys: keys.clone(),
                tree: tree.clone(),
                moving: Mutex::new(()),
            },
            env,
            catalog,
            blocks,
            freed,
            data,
            commits,
            holds,
            reaper,
            space,
            keys,
            tree,
            found: found.generation,
            lock: found.lock,
        }
    }

    /// In a fork of the process that opened the room: leaves everything as it is. Files, locks and threads are the parent's, and
    /// nothing of them may be closed in order.
    pub(crate) fn leave(self: &Arc<Self>) {
        std::mem::forget(self.clone());
    }
}
