//! Names and attributes of small files, in an order that is not theirs.
//!
//! 1. Files are created until there are as many as asked for, or time is up. The rest is created outside the time: what follows is
//!    done to the same files of every store.
//! 2. What can be done again is done until there is enough to be measured; files are created and unlinked once.

use super::calls::round_seed;
use super::{Bed, Context, Measured, RowName, Timed, Work, failed};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Recorder;
use crate::model::Unit;
use crate::store::{Names, Powers};
use crate::validity::{Claim, Direction};

/// Files in one directory.
const PER_DIRECTORY: u32 = 100;

/// Create, open, stat, list, chmod, rename, unlink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metadata;

/// What is done to each file; those that change are durable at their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Open,
    Stat,
    List,
    Chmod,
    Rename,
    Unlink,
}

impl Operation {
    const ALL: [Operation; 7] = [
        Operation::Create,
        Operation::Open,
        Operation::Stat,
        Operation::List,
        Operation::Chmod,
        Operation::Rename,
        Operation::Unlink,
    ];

    fn name(self) -> &'static str {
        match self {
            Operation::Create => "create 4 KiB files, synced",
            Operation::Open => "open files, warm",
            Operation::Stat => "stat files, warm",
            Operation::List => "list directories, warm",
            Operation::Chmod => "chmod files, synced",
            Operation::Rename => "rename files, synced",
            Operation::Unlink => "unlink files, synced",
        }
    }

    fn changes(self) -> bool {
        !matches!(self, Operation::Open | Operation::Stat | Operation::List)
    }

    fn once(self) -> bool {
        matches!(self, Operation::Create | Operation::Unlink)
    }
}

/// What can be done again is done for so long, nanoseconds.
const ENOUGH_NS: u64 = 250_000_000;
/// And so many times at most: a clock that has stopped must not make it endless.
const PASSES: u32 = 10_000;

impl Work for Metadata {
    fn rows(&self) -> Vec<RowName> {
        Operation::ALL
            .map(|operation| RowName {
                work: operation.name().into(),
                unit: Unit::FilesPerSecond,
                writes: false,
            })
            .into()
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        powers.single.then_some("it has no names")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let number = bed.fresh();
        let mut tree = Tree {
            root: format!("names-{number}"),
            files: context.files.max(1),
            renamed: Vec::new(),
            version: number,
            data: Data::new(context.seed, 3, Content::Unique),
        };
        let mut order: Vec<u32> = (0..tree.files).collect();
        fastrand::Rng::with_seed(round_seed(context, number)).shuffle(&mut order);
        let names = bed.store().names()?;
        tree.make_directories(&*names)
            .map_err(failed(bed, "making directories"))?;
        let mut measured = Vec::new();
        for operation in Operation::ALL {
            let mut claim = Claim {
                direction: Direction::Neither,
                durable: true,
                changed_names: operation.changes(),
                ..Claim::default()
            };
            let (recorder, evidence) = bed.watch(context.clock, &[], |began| {
                let mut recorder = Recorder::new(began, context.limit_ns());
                tree.all(operation, &order, &*names, context, began, &mut recorder)
                    .and_then(|()| {
                        if operation.changes() {
                            names.sync()
                        } else {
                            Ok(())
                        }
                    })
                    .map_err(failed(bed, operation.name()))?;
                Ok(recorder)
            })?;
            context.go_on()?;
            if operation == Operation::Create {
                let (_, rest) = order.split_at(recorder.operations as usize);
                tree.create_rest(rest, &*names, context)
                    .map_err(failed(bed, "making the rest of the files"))?;
                context.go_on()?;
                let (compared, wrong) = tree
                    .compare(&*names, &order)
                    .map_err(failed(bed, "reading small files back"))?;
                (claim.compared_bytes, claim.wrong_bytes) = (compared, wrong);
            }
            let timed = Timed {
                recorder,
                evidence,
                claim,
                cut: false,
            };
            measured.push(timed.measured(Unit::FilesPerSecond, bed, context));
        }
        tree.remove_directories(&*names)
            .map_err(failed(bed, "removing directories"))?;
        drop(names);
        bed.store().settle()?;
        Ok(measured)
    }
}

struct Tree {
    root: String,
    files: u32,
    version: u32,
    data: Data,
    /// Whether a file has its other name now.
    renamed: Vec<bool>,
}

impl Tree {
    fn directories(&self) -> impl Iterator<Item = String> {
        (0..self.files.div_ceil(PER_DIRECTORY)).map(|number| format!("{}/d{number}", self.root))
    }

    fn path(&self, file: u32, renamed: bool) -> String {
        let letter = if renamed { 'r' } else { 'f' };
        format!("{}/d{}/{letter}{file}", self.root, file / PER_DIRECTORY)
    }

    fn is_renamed(&self, file: u32) -> bool {
        self.renamed.get(file as usize).copied().unwrap_or(false)
    }

    fn make_directories(&self, names: &dyn Names) -> std::io::Result<()> {
        names.make_dir(&self.root)?;
        self.directories().try_for_each(|dir| names.make_dir(&dir))
    }

    fn remove_directories(&self, names: &dyn Names) -> std::io::Result<()> {
        self.directories()
            .try_for_each(|dir| names.remove_dir(&dir))?;
        names.remove_dir(&self.root)
    }

    fn content(&self, file: u32, block: &mut [u8]) {
        self.data
            .fill(u64::from(file) * BLOCK as u64, block, |_| self.version);
    }

    /// Creates files outside the time, durable as those before are.
    fn create_rest(
        &self,
        files: &[u32],
        names: &dyn Names,
        context: &Context<'_>,
    ) -> std::io::Result<()> {
        let mut block = [0; BLOCK];
        for file in files {
            if context.go_on().is_err() {
                return Ok(());
            }
            self.content(*file, &mut block);
            names.create(&self.path(*file, false), &block, false)?;
        }
        names.sync()
    }

    fn compare(&self, names: &dyn Names, files: &[u32]) -> std::io::Result<(u64, u64)> {
        let (mut found, mut wanted) = ([0; BLOCK], [0; BLOCK]);
        let mut wrong = 0;
        for file in files {
            self.content(*file, &mut wanted);
            let length = names.read(&self.path(*file, false), &mut found)?;
            if found[..length] != wanted[..] {
                wrong += BLOCK as u64;
            }
        }
        Ok(((files.len() * BLOCK) as u64, wrong))
    }

    /// An operation on all files, again and again where that can be.
    fn all(
        &mut self,
        operation: Operation,
        order: &[u32],
        names: &dyn Names,
        context: &Context<'_>,
        began: u64,
        recorder: &mut Recorder,
    ) -> std::io::Result<()> {
        let limit = context.limit_ns();
        for pass in 0.. {
            let mut now = began;
            if operation == Operation::List {
                now = self.list(names, context, recorder)?;
            } else {
                for file in order {
                    now = self.one(operation, *file, pass, names, context, recorder)?;
                    // All that was made must go.
                    let over = now.wrapping_sub(began) >= limit || context.go_on().is_err();
                    if over && operation != Operation::Unlink {
                        return Ok(());
                    }
                }
            }
            let long_enough = now.wrapping_sub(began) >= ENOUGH_NS.min(limit);
            if operation.once() || long_enough || pass == PASSES || context.go_on().is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn list(
        &self,
        names: &dyn Names,
        context: &Context<'_>,
        recorder: &mut Recorder,
    ) -> std::io::Result<u64> {
        let mut now = 0;
        for dir in self.directories() {
            let before = context.clock.raw_ns();
            let count = names.list(&dir)?;
            now = context.clock.raw_ns();
            // The rate is of files listed, the times are of whole directories.
            recorder.note_call(before, now, count, 0);
        }
        Ok(now)
    }

    /// Does it to a file; returns the time then.
    fn one(
        &mut self,
        operation: Operation,
        file: u32,
        pass: u32,
        names: &dyn Names,
        context: &Context<'_>,
        recorder: &mut Recorder,
    ) -> std::io::Result<u64> {
        let mut block = [0; BLOCK];
        let renamed = self.is_renamed(file);
        let path = self.path(file, renamed);
        let other = self.path(file, !renamed);
        if operation == Operation::Create {
            self.content(file, &mut block);
        }
        let mode = if pass.is_multiple_of(2) { 0o600 } else { 0o640 };
        let before = context.clock.raw_ns();
        match operation {
            Operation::Create => names.create(&path, &block, false)?,
            Operation::Open => names.open(&path)?,
            Operation::Stat => drop(names.stat(&path)?),
            Operation::Chmod => names.chmod(&path, mode)?,
            Operation::Rename => names.rename(&path, &other)?,
            Operation::Unlink => names.unlink(&path)?,
            // Not of a single file: see `list`.
            Operation::List => {}
        }
        let after = context.clock.raw_ns();
        recorder.note(before, after, 0);
        if operation == Operation::Rename {
            self.renamed.resize(self.files as usize, false);
            self.renamed[file as usize] = !renamed;
        }
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::clock::{Reading, SystemClock};
    use crate::run_file::Run;
    use crate::store::{Making, make};
    use crate::validity::Limits;

    const FILES: u32 = 150;

    fn context<'a>(clock: &'a dyn crate::clock::Clock, stop: &'a AtomicBool) -> Context<'a> {
        Context {
            clock,
            stop,
            seed: 7,
            size: 1 << 20,
            // No time at all: each operation is cut after its first file.
            seconds: 0.0,
            files: FILES,
            limits: Limits::default(),
        }
    }

    /// Each reading is a slice later than the one before.
    struct Ticking(AtomicU64);

    impl crate::clock::Clock for Ticking {
        fn read(&self) -> Reading {
            Reading {
                raw_ns: self.0.fetch_add(1_000_000, Ordering::Relaxed),
                ..SystemClock.read()
            }
        }
    }

    /// What failed: a slow store was asked for the names of the few files that it had created in its time, a fast one for those of
    /// all, and both were compared.
    #[test]
    fn what_follows_is_done_to_all_files_though_creating_them_was_cut() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = Run::begin(state.path()).unwrap();
        let target = format!("directory:{}", dir.path().display());
        let mut bed = Bed::new(make(&target, &Making::new(run, "a")).unwrap());
        let stop = AtomicBool::new(false);
        let measured = Metadata
            .round(&mut bed, &context(&SystemClock, &stop))
            .unwrap();
        let of = |operation: Operation| &measured[operation as usize].round;
        assert_eq!(of(Operation::Create).operations, 1, "it was cut");
        assert_eq!(of(Operation::List).operations, u64::from(FILES));
        assert_eq!(of(Operation::Unlink).operations, u64::from(FILES));
        bed.close().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// What failed: the rate was of files, the curve over time of directories.
    #[test]
    fn the_curve_of_listing_is_of_files_as_the_rate_is() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = Run::begin(state.path()).unwrap();
        let target = format!("directory:{}", dir.path().display());
        let mut store = make(&target, &Making::new(run, "a")).unwrap();
        let tree = Tree {
            root: "names".into(),
            files: FILES,
            renamed: Vec::new(),
            version: 1,
            data: Data::new(7, 3, Content::Unique),
        };
        let names = store.names().unwrap();
        tree.make_directories(&*names).unwrap();
        for file in 0..FILES {
            names.create(&tree.path(file, false), b"", false).unwrap();
        }
        let (clock, stop) = (Ticking(AtomicU64::new(0)), AtomicBool::new(false));
        let mut recorder = Recorder::new(0, 0);
        let context = context(&clock, &stop);
        let ended = tree.list(&*names, &context, &mut recorder).unwrap();
        let (slices, _) = recorder.whole_slices(ended + 1_000_000);
        let noted: u64 = slices.iter().map(|slice| slice.0).sum();
        assert_eq!((recorder.operations, noted), (FILES.into(), FILES.into()));
        assert_eq!(recorder.latency.len(), 2, "a time for each directory");
        drop(names);
        store.close().unwrap();
    }
}
