//! Threads that write, sync, replace and read beside each other and beside checkpoints, until the store is gone. Each file is as its last
//! acknowledged sync left it, or as the one that had no answer; one that others sync too may be as any write after it left it.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use storage::{OpenMode, Storage, StorageFile};
use strongroom_bucket::BucketStorage;

use crate::explore::{number, setting};
use crate::made::{create, noise, open, read, two_machines};
use crate::store::{Fate, Store};

const WRITERS: u64 = 4;
/// Commits between two checkpoints.
const COMMITS: Range<u64> = 2..30;

/// What a version of a file holds; version 0 is a file that was never synced.
fn content(writer: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return Vec::new();
    }
    let mut random = Rng::with_seed(writer << 32 | version);
    let len = match random.u8(..40) {
        // More than is kept for a sync: uploads begin before it.
        0 => random.usize(16 << 20..20 << 20),
        1..5 => random.usize(1 << 20..3 << 20),
        _ => random.usize(1..20_000),
    };
    let mut bytes = noise(random.u64(..), 4093).repeat(len / 4093 + 1);
    bytes.truncate(len);
    bytes
}

/// One writer's files: the last version of each that was acknowledged, and the last one that was begun.
#[derive(Debug, Clone, Copy, Default)]
struct Versions {
    writer: u64,
    acknowledged: u64,
    begun: u64,
    /// Of a file that is always as long, is written over in one piece, and is synced by others too.
    stamp: u64,
    stamp_begun: u64,
}

/// What a file of stamps holds.
fn stamped(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(1024)
}

fn open_or_create(storage: &dyn Storage, name: &str) -> io::Result<Arc<dyn StorageFile>> {
    match storage.open(name, OpenMode::ReadWrite) {
        Err(e) if e.kind() == ErrorKind::NotFound => storage.open(name, OpenMode::CreateNew),
        opened => opened,
    }
}

impl Versions {
    fn name(&self) -> String {
        format!("w{}", self.writer)
    }

    /// Writes the next version; durable when it returns.
    fn write(&mut self, storage: &BucketStorage, random: &mut Rng) -> io::Result<()> {
        let name = self.name();
        self.begun = self.acknowledged + 1;
        let bytes = content(self.writer, self.begun);
        if random.bool() {
            storage::replace(storage, &name, &bytes)?;
        } else {
            let file = open_or_create(storage, &name)?;
            for (n, piece) in bytes.chunks(1 << 20).enumerate() {
                file.write_at(piece, (n as u64) << 20)?;
            }
            file.set_len(bytes.len() as u64)?;
            file.sync()?;
        }
        self.acknowledged = self.begun;
        self.check(storage, &name, &bytes);
        Ok(())
    }

    /// What cannot be had from a store that is gone says nothing.
    fn check(&self, storage: &BucketStorage, name: &str, written: &[u8]) {
        if let Ok(shown) = read(storage, name) {
            assert!(shown == written, "{self:?}: {name} shows something else");
        }
    }

    /// Writes stamps over each other, and syncs the last one.
    fn stamp(&mut self, storage: &BucketStorage, random: &mut Rng) -> io::Result<()> {
        let name = format!("s{}", self.writer);
        let file = open_or_create(storage, &name)?;
        for _ in 0..random.u8(1..6) {
            self.stamp_begun += 1;
            file.write_at(&stamped(self.stamp_begun), 0)?;
            self.check(storage, &name, &stamped(self.stamp_begun));
        }
        file.sync()?;
        self.stamp = self.stamp_begun;
        Ok(())
    }

    /// Finds the versions that are there.
    fn find(&mut self, storage: &BucketStorage, story: &str) {
        let stamp = match read(storage, &format!("s{}", self.writer)) {
            // Created, and not synced.
            Ok(found) if found.is_empty() => 0,
            Ok(found) => {
                let stamp = u64::from_le_bytes(found[..8].try_into().unwrap());
                assert!(found == stamped(stamp), "{story}, {self:?}: torn");
                stamp
            }
            Err(e) if e.kind() == ErrorKind::NotFound => 0,
            Err(e) => panic!("{story}, {self:?}: {e}"),
        };
        assert!(
            (self.stamp..=self.stamp_begun).contains(&stamp),
            "{story}, {self:?}: found {stamp}"
        );
        (self.stamp, self.stamp_begun) = (stamp, stamp);
        let found = match read(storage, &self.name()) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound && self.acknowledged == 0 => Vec::new(),
            Err(e) => panic!("{story}, {self:?}: {e}"),
        };
        let versions = [self.acknowledged, self.begun];
        let is_there = |version: &u64| found == content(self.writer, *version);
        let found = versions.into_iter().find(is_there);
        self.acknowledged = found.unwrap_or_else(|| panic!("{story}: {self:?} is lost"));
        self.begun = self.acknowledged;
    }
}

fn explore(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let store = Store::with_log(None);
    let dirs = two_machines();
    drop(create(&store, dirs[0].path(), setting(&mut random, COMMITS)).unwrap());
    let mut files: Vec<_> = (0..WRITERS)
        .map(|writer| Versions {
            writer,
            ..Versions::default()
        })
        .collect();
    for turn in 0..8 {
        let story = format!("seed {seed}, turn {turn}");
        store.heal();
        let dir = dirs[random.usize(..2)].path();
        let storage = open(&store, dir, setting(&mut random, COMMITS));
        let storage = storage.unwrap_or_else(|e| panic!("{story}: {e}"));
        for file in &mut files {
            file.find(&storage, &story);
        }
        let next = [Fate::Refused, Fate::AnswerLost, Fate::Late][random.usize(..3)];
        // While a commit is on its way others write.
        store.fates((0..60).map(|_| match random.bool() {
            true => Fate::Slow,
            false => Fate::Done,
        }));
        store.end_at_once_after(random.u64(..60), next);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = files
                .iter_mut()
                .map(|file| {
                    let (storage, mut random) = (&storage, random.fork());
                    scope.spawn(move || {
                        for _ in 0..30 {
                            let done = file.write(storage, &mut random);
                            if done
                                .and_then(|()| file.stamp(storage, &mut random))
                                .is_err()
                            {
                                break;
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && storage.checkpoint().is_ok() {
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                for name in (0..WRITERS).cycle().map(|writer| format!("s{writer}")) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let file = storage.open(&name, OpenMode::ReadWrite);
                    let _ = file.and_then(|file| file.sync());
                    std::thread::yield_now();
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "{story}");
        });
        store.deliver(&mut random);
    }
}

/// Longer with `STRONGROOM_BUCKET_STORES`, other ones with `STRONGROOM_SEED`.
#[test]
fn what_threads_sync_beside_each_other_and_beside_checkpoints_is_there() {
    let first = number("STRONGROOM_SEED", 1);
    for seed in first..first + number("STRONGROOM_BUCKET_STORES", 4) {
        explore(seed);
    }
}
