//! A room that another machine writes to, watched by one that takes its place when it is gone.
//!
//! 1. To take its place is to create the next commit. Whatever seemed to be so before, only one writer gets that.
//! 2. A writer counts as gone when it has closed the room, or when no commit came for as long as it said that there would be one, by
//!    the clock of this machine alone.
//! 3. A writer that says nothing of the kind never counts as gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object_store::ObjectStore;
use storage::{HostStorage, LockGuard};

use crate::cache::Cache;
use crate::client::Client;
use crate::clock::Moment;
use crate::elsewhere;
use crate::file::Wanted;
use crate::history::{self, History};
use crate::names::ObjectName;
use crate::objects::Objects;
use crate::opening::{self, WriterNote, cache_dir, local, nothing_there};
use crate::options::Options;
use crate::pieces::Source;
use crate::shared::{PART, lease};
use crate::storage::BucketStorage;

/// Between two looks for commits, as a part of the lease.
const LOOKS: u32 = 12;
/// The same of a writer without a lease.
const LOOK: Duration = Duration::from_secs(1);
/// How often the store is searched for what a reader of the next commit does not notice: that it is far behind, or the store went back.
const SEARCH: Duration = Duration::from_secs(60);
/// How often what the newest checkpoint has is fetched.
const WARM: Duration = Duration::from_secs(30);

/// Waits to write to a room.
#[derive(Debug)]
pub struct Standby {
    objects: Arc<Objects>,
    local: Arc<HostStorage>,
    lock: Option<Arc<dyn LockGuard>>,
    dir: PathBuf,
    options: Options,
    history: Arc<History>,
    /// The last time that the writer is known to have lived.
    seen: Moment,
    /// Until when a room that is closed is left to others.
    yields: Moment,
    searched: Moment,
    warmed: Option<Moment>,
    is_warming: Arc<AtomicBool>,
}

impl Standby {
    /// Watches the room below `prefix`; the rest as for [`BucketStorage::open`].
    ///
    /// # Errors
    /// `NotFound` where there is no room, `ResourceBusy` where another process of this machine writes to it or waits to.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        dir: &Path,
        options: Options,
    ) -> io::Result<Self> {
        let client = Client::new(store, options.log.clone(), prefix, options.timeout)?;
        let (local, lock) = local(dir, false)?;
        let lock = lock.map(Arc::from);
        let loading = client.clone();
        let history = client.wait(async move {
            elsewhere::check(&loading).await?;
            history::load(&loading).await
        })??;
        let history = history.ok_or_else(nothing_there)?;
        let cache = Cache::open(&cache_dir(dir, &history.manifest)?, options.cache_bytes)?;
        Ok(Self {
            objects: Arc::new(Objects { client, cache }),
            local: Arc::new(local),
            lock,
            dir: dir.to_owned(),
            options,
            history: Arc::new(history),
            seen: Moment::now(),
            yields: Moment::now(),
            searched: Moment::now(),
            warmed: None,
            is_warming: Arc::default(),
        })
    }

    /// Leaves a room that nobody writes to to others, for so long.
    pub fn yields(&mut self, time: Duration) {
        self.yields = Moment(Moment::now().0 + time.as_millis() as u64);
    }

    /// Returns the storage once this machine writes to it. While others do: `None`, after a while.
    ///
    /// # Errors
    /// `InvalidData` where the store went back or is damaged; where it does not answer.
    pub fn look(&mut self) -> io::Result<Option<BucketStorage>> {
        if let Err(e) = self.follow() {
            // Nobody can say meanwhile whether the writer lives: it may be as cut off as this machine.
            self.seen = Moment::now();
            return Err(e);
        }
        if self.may_begin() {
            if let Some(storage) = self.begin()? {
                return Ok(Some(storage));
            }
            // Another one was faster.
            self.seen = Moment::now();
            return Ok(None);
        }
        self.warm();
        let pause = self.lease().map_or(LOOK, |lease| lease / LOOKS);
        std::thread::sleep(pause.min(LOOK));
        Ok(None)
    }

    /// Who writes, in words.
    pub fn writer(&self) -> String {
        let manifest = &self.history.manifest;
        match (manifest.is_open, self.lease()) {
            (false, _) => "nobody writes to the room".into(),
            (true, Some(_)) => format!("the writer that began with commit {}", manifest.epoch),
            (true, None) => format!(
                "the writer that began with commit {} and has no heartbeat",
                manifest.epoch
            ),
        }
    }

    fn lease(&self) -> Option<Duration> {
        match self.history.manifest.lease_ms {
            0 => None,
            ms => Some(Duration::from_millis(ms.into())),
        }
    }

    fn follow(&mut self) -> io::Result<()> {
        let client = self.objects.client.clone();
        let (state, look) = (self.history.clone(), self.searched.elapsed() >= SEARCH);
        let asked = Moment::now();
        let newer = client.clone();
        let newer = client.wait(async move { history::follow(&newer, &state, look).await })??;
        if look {
            self.searched = asked;
        }
        if let Some(newer) = newer {
            if newer.manifest.is_open {
                // Somebody has taken the turn that was left to others.
                self.yields = Moment::now();
            }
            self.history = Arc::new(newer);
            self.seen = Moment::now();
        }
        Ok(())
    }

    fn may_begin(&self) -> bool {
        let manifest = &self.history.manifest;
        // The last writer of this directory has ended: it had the lock.
        let was_here = || {
            let note = WriterNote::read(&self.dir);
            note.is_last(manifest) || note.has_just_begun(manifest)
        };
        let is_late = || {
            self.lease()
                .is_some_and(|lease| self.seen.elapsed() >= lease)
        };
        let is_free = || !manifest.is_open && Moment::now().0 >= self.yields.0;
        is_free() || self.options.take_over || is_late() || manifest.is_open && was_here()
    }

    /// Takes the writer's place; `None` where another one was faster.
    fn begin(&mut self) -> io::Result<Option<BucketStorage>> {
        let begun = Moment::now();
        let client = self.objects.client.clone();
        let (mut history, lease) = ((*self.history).clone(), lease(self.options.lease));
        let (beginning, note) = (client.clone(), WriterNote::read(&self.dir));
        let history = client.wait(async move {
            let manifest = &history.manifest;
            let is_ours = manifest.is_open && note.is_of(&beginning, manifest).await?;
            let has_begun = opening::begin(&beginning, &mut history, &note, is_ours, lease);
            Ok::<_, io::Error>(has_begun.await?.then_some(history))
        })??;
        let Some(history) = history else {
            return Ok(None);
        };
        let mine = (self.local.clone(), self.lock.clone());
        let (objects, options) = (self.objects.clone(), self.options.clone());
        let storage = BucketStorage::begun(objects, history, mine, &self.dir, options, begun)?;
        // Up to here nobody else on this machine may wait for the room.
        self.lock = None;
        Ok(Some(storage))
    }

    /// Fetches what an opening will read, beside the caller.
    fn warm(&mut self) {
        let is_due = self.warmed.is_none_or(|warmed| warmed.elapsed() >= WARM);
        if !is_due || self.is_warming.swap(true, Ordering::AcqRel) {
            return;
        }
        self.warmed = Some(Moment::now());
        let manifest = &self.history.manifest;
        let pieces = manifest.files.values().flat_map(|map| map.pieces.iter());
        let wanted: Vec<Wanted> = pieces
            .filter(|piece| matches!(piece.source.object, ObjectName::Data { .. }))
            .map(|piece| Wanted {
                to: 0,
                len: piece.len as usize,
                stored: piece.source,
                size: manifest
                    .objects
                    .get(&piece.source.object)
                    .map_or(0, |object| object.size),
            })
            .collect();
        let (objects, is_warming) = (self.objects.clone(), self.is_warming.clone());
        let most = self.options.cache_bytes;
        self.objects.client.spawn_blocking(move || {
            warm_pieces(&objects, wanted, most);
            is_warming.store(false, Ordering::Release);
        });
    }
}

/// Has pieces in the cache, as many bytes as that keeps. They go in parts: a hostile bucket says that a piece is of any length, and its memory is
/// not asked for. Nor is the rest of one of which a part cannot be read.
fn warm_pieces(objects: &Objects, pieces: Vec<Wanted>, most: u64) {
    let mut left = most;
    for piece in pieces {
        let mut at = 0;
        while at < piece.len {
            let part = Wanted {
                len: (piece.len - at).min(PART as usize),
                stored: piece.stored.skip(at as u64),
                ..piece
            };
            let len = part.len;
            if left < len as u64 || !objects.warm(&[part]) {
                break;
            }
            at += len;
            left -= len as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::manifest::Stored;

    /// A piece as long as a hostile bucket says was taken apart in memory first, and each part of it asked for.
    #[test]
    fn what_is_not_there_is_asked_for_once_however_long_it_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(InMemory::new());
        let client = Client::new(store, None, "rooms/a", Duration::from_secs(5)).unwrap();
        let object = ObjectName::Data {
            epoch: 1,
            number: 0,
        };
        let cache = Cache::open(dir.path(), 1 << 30).unwrap();
        let objects = Objects { client, cache };
        let piece = Wanted {
            to: 0,
            len: 1 << 36,
            stored: Stored { object, at: 0 },
            size: 1 << 36,
        };
        warm_pieces(&objects, vec![piece], u64::MAX);
        let gets = objects.client.requests().gets;
        assert!(gets <= PART >> 20, "{gets}");
    }
}
