//! Random work on a storage in a bucket whose requests are lost, refused, repeated or late, and whose writers die at any of them. What an
//! opening finds is what one sync left: the last acknowledged one, or the one after it that had no answer.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use storage::{OpenMode, Storage, StorageFile};
use strongroom_bucket::{BucketStorage, Options};

use crate::made::{create, noise, open, options, quick, read};
use crate::store::{Fate, Store};

const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "d/c"];
const DIRECTORY: &str = "d";
/// Openings of one store.
const TURNS: u64 = 25;
/// Commits between two checkpoints.
const COMMITS: Range<u64> = 2..8;
/// Nothing is written behind it, but what is much at once.
const MOST: u64 = 64 << 10;
/// More than a commit carries itself.
const MUCH: usize = 1_200_000;

/// What each file holds.
type Tree = BTreeMap<&'static str, Vec<u8>>;

#[derive(Clone)]
struct File {
    name: &'static str,
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

/// What the storage shows while it is open, and what is left of it.
struct Model {
    files: Vec<File>,
    durable: Tree,
}

impl Model {
    fn of(durable: Tree) -> Self {
        let files = durable.iter().map(|(name, bytes)| File {
            name,
            bytes: bytes.clone(),
            synced: bytes.clone(),
        });
        Self {
            files: files.collect(),
            durable,
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.name == name)
    }

    /// What is durable when all names are, and what was written to one file.
    fn after_sync(&self, synced: Option<usize>) -> Tree {
        let files = self.files.iter().enumerate();
        let durable = files.map(|(n, file)| {
            let is_synced = synced == Some(n);
            let bytes = if is_synced { &file.bytes } else { &file.synced };
            (file.name, bytes.clone())
        });
        durable.collect()
    }
}

/// Why the work of a turn has ended.
struct Ended {
    /// What the sync that failed would have left.
    perhaps: Option<Tree>,
}

/// One writer's time with the store.
struct Turn<'a> {
    storage: &'a BucketStorage,
    model: &'a mut Model,
    random: &'a mut Rng,
}

impl Turn<'_> {
    /// Does one thing. `Err` when the writer has ended.
    fn act(&mut self) -> Result<(), Ended> {
        let name = NAMES[self.random.usize(..NAMES.len())];
        let at = self.model.position(name);
        let over = |_: io::Error| Ended { perhaps: None };
        match (at, self.random.u8(0..20)) {
            (None, 0..17) => {
                self.storage.open(name, OpenMode::CreateNew).map_err(over)?;
                self.model.files.push(File {
                    name,
                    bytes: Vec::new(),
                    synced: Vec::new(),
                });
                Ok(())
            }
            (Some(at), 0..6) => self.write(at).map_err(over),
            (Some(at), 6) => {
                let len = self.random.u64(..MOST);
                self.writable(at)
                    .and_then(|file| file.set_len(len))
                    .map_err(over)?;
                self.model.files[at].bytes.resize(len as usize, 0);
                Ok(())
            }
            (Some(at), 7) => {
                let (offset, len) = (self.random.u64(..MOST), self.random.u64(..MOST));
                self.writable(at)
                    .and_then(|file| file.punch(offset, len))
                    .map_err(over)?;
                let bytes = &mut self.model.files[at].bytes;
                let end = bytes.len().min((offset + len) as usize);
                if let Some(punched) = bytes.get_mut(offset as usize..end) {
                    punched.fill(0);
                }
                Ok(())
            }
            (Some(at), 8) => {
                self.storage.remove(name).map_err(over)?;
                self.model.files.remove(at);
                Ok(())
            }
            (Some(at), 9) => {
                let to = NAMES[self.random.usize(..NAMES.len())];
                self.storage.rename(name, to).map_err(over)?;
                self.model.files[at].name = to;
                let is_replaced = |n: usize, file: &File| n != at && file.name == to;
                let files = std::mem::take(&mut self.model.files).into_iter();
                let left = files.enumerate().filter(|(n, file)| !is_replaced(*n, file));
                self.model.files = left.map(|(_, file)| file).collect();
                Ok(())
            }
            (Some(at), 10) => {
                let shown = read(self.storage, name);
                // While the store is away nothing can be said.
                if let Ok(shown) = shown {
                    assert!(shown == self.model.files[at].bytes, "{name} as it is open");
                }
                Ok(())
            }
            (Some(at), 11..17) => self.sync(Some(at)),
            (_, 17) => self.storage.checkpoint().map_err(over),
            _ => self.sync(None),
        }
    }

    fn writable(&self, at: usize) -> io::Result<Arc<dyn StorageFile>> {
        self.storage
            .open(self.model.files[at].name, OpenMode::ReadWrite)
    }

    fn write(&mut self, at: usize) -> io::Result<()> {
        let (seed, offset) = (self.random.u64(..), self.random.u64(..MOST));
        let bytes = match self.random.u8(0..16) {
            0 => noise(seed, 4000).repeat(MUCH / 4000),
            1..3 => vec![0; self.random.usize(1..20_000)],
            _ => noise(seed, self.random.usize(1..6000)),
        };
        self.writable(at)?.write_at(&bytes, offset)?;
        let (offset, file) = (offset as usize, &mut self.model.files[at].bytes);
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn sync(&mut self, at: Option<usize>) -> Result<(), Ended> {
        let after = self.model.after_sync(at);
        let done = match at {
            Some(at) => self.writable(at).and_then(|file| file.sync()),
            None => self.storage.sync_dir(""),
        };
        if done.is_err() {
            return Err(Ended {
                perhaps: Some(after),
            });
        }
        if let Some(at) = at {
            let file = &mut self.model.files[at];
            file.synced.clone_from(&file.bytes);
        }
        self.model.durable = after;
        Ok(())
    }
}

/// All that a storage shows.
fn tree(storage: &dyn Storage) -> io::Result<Tree> {
    let mut tree = Tree::new();
    for (directory, before) in [("", ""), (DIRECTORY, "d/")] {
        for name in storage.list(directory)? {
            let path = format!("{before}{name}");
            if path != DIRECTORY {
                let known = NAMES.into_iter().find(|known| *known == path);
                let name = known.unwrap_or_else(|| panic!("a file {path}"));
                tree.insert(name, read(storage, name)?);
            }
        }
    }
    Ok(tree)
}

/// Options of a writer: with a checkpoint every few commits, one way or another to keep what it read.
pub(crate) fn setting(random: &mut Rng, checkpoint_commits: Range<u64>) -> Options {
    let mut options = quick();
    options.checkpoint_commits = random.u64(checkpoint_commits);
    options.cache_bytes = [0, 1 << 20, 1 << 30][random.usize(..3)];
    options
}

/// What a variable says; `default` where it is not set.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// A writer that was overtaken and does not know it.
struct Sleeping {
    storage: BucketStorage,
    machine: usize,
}

impl Sleeping {
    fn wake(self, story: &str) {
        let file = self.storage.open("late", OpenMode::CreateNew);
        let late = file.and_then(|file| {
            file.write_at(b"late", 0)?;
            file.sync()
        });
        assert!(
            late.is_err(),
            "{story}: an overtaken writer acknowledged something"
        );
    }
}

/// The turns of one store, on three machines.
fn explore(seed: u64, states: &AtomicU64) {
    let random = &mut Rng::with_seed(seed);
    let store = Store::with_log(None);
    let mut machines: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let first = create(&store, machines[0].path(), setting(random, COMMITS)).unwrap();
    first.create_dir(DIRECTORY).unwrap();
    first.sync_dir("").unwrap();
    drop(first);
    let follower_dir = tempfile::tempdir().unwrap();
    let mut follower: Option<BucketStorage> = None;
    let mut sleeping: Option<Sleeping> = None;
    let mut possible = vec![Tree::new()];
    for turn in 0..TURNS {
        let story = format!("seed {seed}, turn {turn}");
        let machine = loop {
            let machine = random.usize(..machines.len());
            if sleeping.as_ref().is_none_or(|s| s.machine != machine) {
                break machine;
            }
        };
        if random.u8(..3) == 0 {
            machines[machine] = tempfile::tempdir().unwrap();
        }
        let dir: &Path = machines[machine].path();
        store.heal();
        if random.bool() {
            store.deliver(random);
        }
        let weather = random.u8(..20);
        let mut options = setting(random, COMMITS);
        if (1..4).contains(&weather) {
            // A request that fails is not tried again, and the next one may be carried out.
            options.timeout = Duration::from_millis(40);
        }
        store.weather((weather == 0).then(|| random.u64(..)));
        let opened = open(&store, dir, options.clone());
        store.weather(None);
        // Bad luck may last longer than an opening tries.
        let opened = match opened {
            Err(_) if weather == 0 => open(&store, dir, options),
            opened => opened,
        };
        let storage = opened.unwrap_or_else(|e| panic!("{story}: {e}"));
        if random.bool() {
            store.deliver(random);
        }
        let found = tree(&storage).unwrap_or_else(|e| panic!("{story}: {e}"));
        states.fetch_add(1, Ordering::Relaxed);
        assert!(
            possible.contains(&found),
            "{story}: what was acknowledged is not there"
        );
        if random.u8(..4) == 0 {
            let shown = follow(&store, follower_dir.path(), follower);
            let shown = shown.unwrap_or_else(|e| panic!("{story}, a reader: {e}"));
            assert!(
                tree(&shown).unwrap() == found,
                "{story}: a reader sees something else"
            );
            follower = Some(shown);
        }
        // Others have removed much meanwhile.
        if random.u8(..3) == 0
            && let Some(sleeping) = sleeping.take()
        {
            sleeping.wake(&story);
        }
        let mut model = Model::of(found);
        if weather < 4 {
            store.weather(Some(random.u64(..)));
        } else if random.u8(..3) > 0 {
            let next = [Fate::Refused, Fate::AnswerLost, Fate::Late, Fate::Repeated];
            store.end_at_once_after(random.u64(..20), next[random.usize(..4)]);
        }
        let mut perhaps = None;
        let mut it = Turn {
            storage: &storage,
            model: &mut model,
            random: &mut *random,
        };
        for _ in 0..it.random.u8(5..40) {
            if let Err(ended) = it.act() {
                perhaps = ended.perhaps;
                break;
            }
            if it.random.u8(..20) == 0 {
                store.deliver(it.random);
            }
        }
        possible = perhaps.into_iter().chain([model.durable]).collect();
        match random.u8(..4) {
            // Killed.
            0 => storage.die(),
            1 if sleeping.is_none() => sleeping = Some(Sleeping { storage, machine }),
            _ => drop(storage),
        }
    }
}

/// A reader that has seen everything.
fn follow(store: &Store, dir: &Path, before: Option<BucketStorage>) -> io::Result<BucketStorage> {
    let Some(mut shown) = before else {
        let mut options = options();
        options.read_only = true;
        return open(store, dir, options);
    };
    while let Some(newer) = shown.newer(true)? {
        shown = newer;
    }
    Ok(shown)
}

/// Ends the others when one thread has failed.
struct Failure<'a>(&'a AtomicU64);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// Longer with `STRONGROOM_BUCKET_STATES`, other ones with `STRONGROOM_SEED`.
#[test]
fn whatever_becomes_of_requests_and_writers_an_opening_finds_what_one_sync_left() {
    let wanted = number("STRONGROOM_BUCKET_STATES", 300);
    let first = number("STRONGROOM_SEED", 1);
    let (states, seeds) = (AtomicU64::new(0), AtomicU64::new(first));
    std::thread::scope(|scope| {
        // Most of them wait to try again.
        for _ in 0..wanted.div_ceil(TURNS).min(64) {
            scope.spawn(|| {
                let _failure = Failure(&states);
                while states.load(Ordering::Relaxed) < wanted {
                    explore(seeds.fetch_add(1, Ordering::Relaxed), &states);
                }
            });
        }
    });
    let seeds = seeds.into_inner() - first;
    println!("{} openings of {seeds} stores", states.into_inner());
}
