//! A source tree unpacked, read, listed and removed: the rows in which encrypted file systems are compared with each other.
//!
//! 1. The tree is the same for every store of a run: some hundred directories up to six deep, most files a few KiB, some far
//!    larger (sizes are log-normal, as in a kernel's sources), drawn from the seed.
//! 2. What was unpacked and what was removed is durable when the time ends; what was read is compared outside the time.

use super::{Bed, Context, Measured, RowName, Timed, Work, failed};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Recorder;
use crate::model::Unit;
use crate::published::TOOL_WORKS;
use crate::store::{Names, Powers};
use crate::validity::{Claim, Direction};

/// Logarithm of the median size of a file: 4 KiB.
const SIZE_LN: f64 = 8.3;
/// Deviation of that logarithm.
const SPREAD_LN: f64 = 1.3;
/// No file is larger, bytes.
const LARGEST: f64 = 2097152.0;
/// Files for one directory, on average.
const PER_DIRECTORY: u32 = 10;
/// Directories are no deeper.
const DEEPEST: usize = 6;
/// The number of the tree's data.
const DATA: u64 = 5;

/// Unpacks, reads, lists and removes a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceTree;

/// What is done to the tree, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unpack,
    Read,
    List,
    Remove,
}

impl Step {
    const ALL: [Step; 4] = [Step::Unpack, Step::Read, Step::List, Step::Remove];

    fn name(self) -> &'static str {
        let [_, _, unpack, read, list, remove] = TOOL_WORKS;
        match self {
            Step::Unpack => unpack,
            Step::Read => read,
            Step::List => list,
            Step::Remove => remove,
        }
    }
}

impl Work for SourceTree {
    fn rows(&self) -> Vec<RowName> {
        Step::ALL
            .map(|step| RowName {
                work: step.name().into(),
                unit: Unit::FilesPerSecond,
                writes: step == Step::Unpack,
            })
            .into()
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        powers.single.then_some("it has no names")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let tree = Tree::drawn(&format!("tree-{}", bed.fresh()), context);
        let mut contents = tree.contents();
        let wanted = contents.clone();
        let mut measured = Vec::new();
        for step in Step::ALL {
            if matches!(step, Step::Read | Step::List) {
                bed.make_cold()?;
                contents.fill(0);
            }
            let names = bed.store().names()?;
            let reads = step == Step::Read;
            let changed_names = matches!(step, Step::Unpack | Step::Remove);
            let mut claim = Claim {
                direction: if reads {
                    Direction::Read
                } else {
                    Direction::Neither
                },
                cold: reads,
                durable: true,
                changed_names,
                ..Claim::default()
            };
            let (recorder, evidence) = bed.watch(context.clock, &[], |began| {
                let mut recorder = Recorder::new(began, context.limit_ns());
                tree.run(step, &*names, &mut contents, context, &mut recorder)
                    .map_err(failed(bed, step.name()))?;
                Ok(recorder)
            })?;
            if reads {
                claim.compared_bytes = wanted.len() as u64;
                let differ = wanted
                    .iter()
                    .zip(&contents)
                    .filter(|(wanted, found)| wanted != found);
                claim.wrong_bytes = differ.count() as u64;
            }
            let timed = Timed {
                recorder,
                evidence,
                claim,
                cut: false,
            };
            measured.push(timed.measured(Unit::FilesPerSecond, bed, context));
            drop(names);
        }
        bed.store().settle()?;
        // Not between the steps: the tree would stay behind.
        context.go_on()?;
        Ok(measured)
    }
}

struct Tree {
    /// Parents before their children.
    directories: Vec<String>,
    /// Path, where its content begins, and how long it is.
    files: Vec<(String, usize, usize)>,
    bytes: usize,
    data: Data,
}

impl Tree {
    fn drawn(root: &str, context: &Context<'_>) -> Tree {
        let mut draw = fastrand::Rng::with_seed(context.seed ^ 0x7265_6574);
        let mut directories = vec![root.to_owned()];
        let count = context.files.max(1);
        while directories.len() < count.div_ceil(PER_DIRECTORY) as usize {
            let parent = &directories[draw.usize(..directories.len())];
            if parent.matches('/').count() < DEEPEST {
                directories.push(format!("{parent}/d{}", directories.len()));
            }
        }
        let mut bytes = 0;
        let files = (0..count)
            .map(|number| {
                let dir = &directories[draw.usize(..directories.len())];
                let size = (SIZE_LN + SPREAD_LN * normal(&mut draw))
                    .exp()
                    .clamp(1.0, LARGEST) as usize;
                let from = bytes;
                bytes += size;
                (format!("{dir}/f{number}.c"), from, size)
            })
            .collect();
        Tree {
            directories,
            files,
            bytes,
            data: Data::new(context.seed, DATA, Content::Unique),
        }
    }

    /// All contents, one after the other.
    fn contents(&self) -> Vec<u8> {
        let mut all = vec![0; self.bytes.next_multiple_of(BLOCK)];
        self.data.fill(0, &mut all, |_| 0);
        all.truncate(self.bytes);
        all
    }

    fn run(
        &self,
        step: Step,
        names: &dyn Names,
        contents: &mut [u8],
        context: &Context<'_>,
        recorder: &mut Recorder,
    ) -> std::io::Result<()> {
        if step == Step::Unpack {
            self.directories
                .iter()
                .try_for_each(|dir| names.make_dir(dir))?;
        }
        if step == Step::List {
            for dir in &self.directories {
                names.list(dir)?;
            }
        }
        for (path, from, size) in &self.files {
            let content = &mut contents[*from..from + size];
            let before = context.clock.raw_ns();
            let bytes = match step {
                Step::Unpack => {
                    names.create(path, content, false)?;
                    *size
                }
                Step::Read => names.read(path, content)?,
                Step::List => {
                    names.stat(path)?;
                    0
                }
                Step::Remove => {
                    names.unlink(path)?;
                    0
                }
            };
            recorder.note(before, context.clock.raw_ns(), bytes as u64);
        }
        if step == Step::Remove {
            self.directories
                .iter()
                .rev()
                .try_for_each(|dir| names.remove_dir(dir))?;
        }
        if matches!(step, Step::Unpack | Step::Remove) {
            names.sync()?;
        }
        Ok(())
    }
}

/// A draw from the normal distribution (Box and Muller, 1958).
fn normal(draw: &mut fastrand::Rng) -> f64 {
    let (a, b) = (1.0 - draw.f64(), draw.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::clock::SystemClock;
    use crate::model::IssueKind;
    use crate::run_file::Run;
    use crate::store::{Making, make};
    use crate::validity::Limits;

    fn context(stop: &AtomicBool) -> Context<'_> {
        Context {
            clock: &SystemClock,
            stop,
            seed: 7,
            size: 1 << 20,
            seconds: 60.0,
            files: 60,
            limits: Limits::default(),
        }
    }

    /// A tree in a plain directory and in a room: every file is read again as it was written, and nothing stays behind.
    #[test]
    fn a_tree_comes_back_as_it_was_unpacked_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        for kind in ["directory", "room"] {
            let run = Run::begin(state.path()).unwrap();
            let target = format!("{kind}:{}", dir.path().display());
            let mut bed = Bed::new(make(&target, &Making::new(run, kind)).unwrap());
            let measured = SourceTree.round(&mut bed, &context(&stop)).unwrap();
            assert_eq!(measured.len(), SourceTree.rows().len());
            for of in &measured {
                assert_eq!(of.round.operations, 60, "{kind}");
                let wrong = of
                    .round
                    .issues
                    .iter()
                    .any(|issue| issue.kind == IssueKind::WrongData);
                assert!(!wrong, "{kind}: {:?}", of.round.issues);
            }
            assert_eq!(measured[0].round.bytes, measured[1].round.bytes, "{kind}");
            bed.close().unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{kind}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_tree_and_parents_come_first() {
        let stop = AtomicBool::new(false);
        let (one, two) = (
            Tree::drawn("t", &context(&stop)),
            Tree::drawn("t", &context(&stop)),
        );
        assert_eq!(one.files, two.files);
        assert_eq!(one.contents(), two.contents());
        for (at, dir) in one.directories.iter().enumerate().skip(1) {
            let parent = dir.rsplit_once('/').unwrap().0;
            assert!(one.directories[..at].iter().any(|of| of == parent), "{dir}");
        }
    }
}
