//! What is removed from the store, and when: what nobody needs stays for a time, for readers of an older moment.
//!
//! 1. Nothing goes that a commit of now refers to, nor what an open file has bytes in.
//! 2. A writer counts from when it saw that something is not needed. What was so when it began has been so for as long as nobody
//!    had written, which the store's times of objects say.
//! 3. A removal that fails, or that the end of the process cuts off, is begun again by a later writer.
//!
//! It deliberately does not know why something is not needed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::manifest::Manifest;
use crate::names::ObjectName;
use crate::shared::Shared;

/// Commits and checkpoints that wait until no reader needs them.
#[derive(Debug)]
struct Old {
    since: Instant,
    commits: Vec<u64>,
    names: Vec<String>,
}

/// What is removed in time.
#[derive(Debug)]
pub(crate) struct Removals {
    /// Objects that no file has bytes of, and since when.
    idle: BTreeMap<ObjectName, Instant>,
    /// When this writer began.
    began: Instant,
    /// Commits and checkpoints before the last one, the oldest first.
    old: VecDeque<Old>,
    /// Objects that were removed, for the next commit. A removal that is under way has a clone.
    deleted: Arc<Mutex<Vec<ObjectName>>>,
}

/// A removal that is under way, until it is dropped.
pub(crate) struct Removal {
    _counted: Arc<Mutex<Vec<ObjectName>>>,
}

fn is_data(name: &ObjectName) -> bool {
    matches!(name, ObjectName::Data { .. })
}

impl Removals {
    pub(crate) fn new(manifest: &Manifest) -> Self {
        let began = Instant::now();
        let idle = manifest.idle.iter().filter(|name| is_data(name));
        Self {
            idle: idle.map(|name| (*name, began)).collect(),
            began,
            old: VecDeque::new(),
            deleted: Arc::default(),
        }
    }

    /// What was idle when this writer began has been so since a moment, or longer.
    pub(crate) fn were_idle_since(&mut self, since: Instant) {
        for at in self.idle.values_mut().filter(|at| **at == self.began) {
            *at = since.min(self.began);
        }
    }

    /// Commits, and checkpoints by name, that are not needed any more when readers of today are done; nor were they since a moment.
    pub(crate) fn plan(&mut self, commits: Vec<u64>, names: Vec<String>, since: Instant) {
        if commits.is_empty() && names.is_empty() {
            return;
        }
        let old = Old {
            since,
            commits,
            names,
        };
        let at = self.old.partition_point(|there| there.since <= old.since);
        self.old.insert(at, old);
    }

    /// Counts as a removal that is under way.
    pub(crate) fn begin(&self) -> Removal {
        Removal {
            _counted: self.deleted.clone(),
        }
    }

    /// Whether removals are under way.
    pub(crate) fn are_under_way(&self) -> bool {
        Arc::strong_count(&self.deleted) > 1
    }

    /// Objects that were removed, for a commit to say so.
    pub(crate) fn take_deleted(&self) -> Vec<ObjectName> {
        std::mem::take(&mut *self.deleted.lock())
    }

    /// Begins to remove what no reader needs any more.
    pub(crate) fn carry_out(&mut self, manifest: &Manifest, shared: &Shared) {
        let (now, grace) = (Instant::now(), shared.options.grace);
        let idle = &manifest.idle;
        self.idle.retain(|name, _| idle.contains(name));
        for name in idle.iter().filter(|name| is_data(name)) {
            self.idle.entry(*name).or_insert(now);
        }
        let due: Vec<ObjectName> = self
            .idle
            .iter()
            .filter(|(_, since)| now.saturating_duration_since(**since) >= grace)
            .map(|(name, _)| *name)
            .collect();
        let held = match due.is_empty() {
            true => BTreeSet::new(),
            false => shared.held_objects(),
        };
        let mut objects = Vec::new();
        for name in due.into_iter().filter(|name| !held.contains(name)) {
            // Asked for again, should it fail, when as much time has passed.
            self.idle.insert(name, now);
            if let Some(object) = manifest.objects.get(&name) {
                shared.objects.cache.forget_object(name, object.size);
            }
            objects.push(name);
        }
        let mut gone: Vec<String> = objects.iter().map(ObjectName::to_string).collect();
        let mut commits = Vec::new();
        while let Some(old) = self.old.front()
            && now.saturating_duration_since(old.since) >= grace
        {
            let old = self.old.pop_front().expect("just seen");
            gone.extend(old.names);
            commits.extend(old.commits);
        }
        if gone.is_empty() && commits.is_empty() {
            return;
        }
        let (client, deleted) = (shared.objects.client.clone(), self.deleted.clone());
        shared.objects.client.spawn(async move {
            let gone = client.delete(gone).await;
            let objects = gone.iter().filter_map(|name| ObjectName::parse_data(name));
            deleted.lock().extend(objects);
            client.delete_commits(commits).await;
            // It counts as under way up to here.
            drop(deleted);
        });
    }
}
