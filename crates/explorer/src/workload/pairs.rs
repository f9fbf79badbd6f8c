//! Every sequence of one and of two operations, each with what it needs to apply and with each way to make it durable.
//!
//! After the bounded exhaustive generator of CrashMonkey (Mohan and others, OSDI 2018): a small set of names, every
//! operation on them with a few typical arguments, dependencies put before it, a persistence operation behind it.
//!
//! Invariant: the order of what is made never depends on anything but this file.

use storage::parent;

use super::Workload;
use super::names::{Kind, Names};
use super::start::Start;
use super::step::Step;
use super::steps_of;

/// The operations, a line each; `;` between the steps of one. They are written for the prepared tree.
pub(super) const OPERATIONS: &[&str] = &[
    "create bar",
    "create B/foo",
    "mkdir C",
    "mkdir A/D",
    "rmdir B",
    "unlink foo",
    "unlink A/bar",
    "unlink B/sym",
    "symlink bar A/foo",
    "link foo B/foo",
    "link A/bar bar",
    "rename foo bar",
    "rename foo A/foo",
    "rename A/foo B/foo",
    "rename A/bar A/foo",
    "rename A C",
    "rename B A/B",
    "mkdir C; rename A C",
    "exchange foo A/foo",
    "exchange A B",
    "exchange A foo",
    "write foo 100 50",
    "write foo 16000 1000",
    "write foo 0 4096",
    "write foo 60000 10",
    "write foo 4096 65536",
    "write A/foo 1046000 6000",
    "write bar 0 20000",
    "mmap-write foo 8192 8192",
    "mmap-write foo 45000 6000",
    "append foo 10",
    "append foo 70000",
    "append A/bar 5000",
    "truncate foo 30000",
    "truncate foo 0",
    "truncate foo 16384",
    "truncate foo 65536",
    "truncate A/bar 50",
    "allocate foo 40000 30000",
    "allocate-keep foo 60000 8192",
    "punch foo 4096 20000",
    "zero foo 16384 40000",
    "zero-keep foo 100 200",
    "collapse foo 4096 8192",
    "insert foo 8192 4096",
    "copy foo 0 bar 0 32768",
    "copy foo 4096 A/foo 8192 16384",
    "copy foo 100 A/bar 50 500",
    "copy foo 0 foo 65536 32768",
    "set-xattr foo user.a 20",
    "set-xattr foo user.long 5000",
    "set-xattr A user.dir 10",
    "remove-xattr A/bar user.kept",
    "chmod A/foo 600",
    "chmod A 700",
    "chown foo 1001",
    "times foo 1000",
    "hold A/foo; unlink A/foo; write-held 0 5000",
    "hold foo; rename A/foo foo; write-held 4096 100; release",
    "tmpfile bar 20000",
];

/// What makes an operation durable, or ends the workload without.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Nothing,
    Fsync,
    Fdatasync,
    SyncDir,
    Sync,
    Reopen,
    Close,
}

const DURABLE: [Ending; 5] = [
    Ending::Fsync,
    Ending::Sync,
    Ending::SyncDir,
    Ending::Fdatasync,
    Ending::Reopen,
];

fn operation(text: &str) -> Vec<Step> {
    steps_of(text, ';')
}

/// Steps put together so that each applies.
pub(super) struct Maker {
    names: Names,
    steps: Vec<Step>,
}

impl Maker {
    pub(super) fn from(start: Start) -> Self {
        Self {
            names: start.names(),
            steps: Vec::new(),
        }
    }

    /// Puts an operation behind; false where it cannot apply.
    pub(super) fn put(&mut self, operation: &[Step]) -> bool {
        for step in operation {
            let Some(first) = self.names.needs(step) else {
                return false;
            };
            for step in first.into_iter().chain([step.clone()]) {
                self.names.apply(&step);
                self.steps.push(step);
            }
        }
        true
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    /// Puts a persistence operation behind that concerns what the last step concerned.
    fn end(&mut self, ending: Ending) {
        let files = self.names.of_kind(Kind::File);
        let concerned = self
            .steps
            .last()
            .and_then(|step| step.targets().first().map(|p| (*p).to_owned()))
            .filter(|p| files.contains(&p))
            .or_else(|| files.first().map(|p| (*p).clone()));
        let file = || concerned.clone().unwrap_or_else(|| ".".into());
        let step = match ending {
            Ending::Nothing => return,
            Ending::Fsync => Step::Fsync(file()),
            Ending::Fdatasync => Step::Fdatasync(file()),
            Ending::SyncDir => {
                let file = file();
                let dir = parent(&file);
                Step::SyncDir(if dir.is_empty() { "." } else { dir }.to_owned())
            }
            Ending::Sync => Step::Sync,
            Ending::Reopen => Step::Reopen,
            Ending::Close => Step::Close,
        };
        self.names.apply(&step);
        self.steps.push(step);
    }
}

/// Every single operation, from an empty room and from the prepared tree, with every ending.
pub fn ones() -> Vec<Workload> {
    let mut all = Vec::new();
    for text in OPERATIONS {
        for start in [Start::Tree, Start::Empty] {
            for ending in DURABLE.into_iter().chain([Ending::Close]) {
                let mut maker = Maker::from(start);
                if maker.put(&operation(text)) {
                    maker.end(ending);
                    let name = format!("ones:{}", all.len());
                    all.push(Workload::new(name, start, maker.steps));
                }
            }
        }
    }
    all
}

/// Every pair of operations on the prepared tree: made durable between the two or not, and behind them or closed. The
/// ways of making durable take turns.
pub fn twos() -> Vec<Workload> {
    let operations: Vec<Vec<Step>> = OPERATIONS.iter().map(|text| operation(text)).collect();
    let mut all = Vec::new();
    let mut turn = 0;
    let mut durable = || {
        turn += 1;
        DURABLE[turn % DURABLE.len()]
    };
    for first in &operations {
        for second in &operations {
            for (between, behind) in [(false, true), (true, true), (false, false), (true, false)] {
                let mut maker = Maker::from(Start::Tree);
                let between = if between { durable() } else { Ending::Nothing };
                let behind = if behind { durable() } else { Ending::Close };
                if !maker.put(first) {
                    continue;
                }
                maker.end(between);
                if maker.put(second) {
                    maker.end(behind);
                    let name = format!("twos:{}", all.len());
                    all.push(Workload::new(name, Start::Tree, maker.steps));
                }
            }
        }
    }
    all
}

/// Two operations in a transaction, each operation as the first with a few seconds: some with an `fsync` between them, which
/// promises nothing there, or a transaction in the transaction; something before that nothing made durable, and something behind.
pub fn together() -> Vec<Workload> {
    const SECONDS: usize = 6;
    let operations: Vec<Vec<Step>> = OPERATIONS.iter().map(|text| operation(text)).collect();
    let mut all = Vec::new();
    for (i, first) in operations.iter().enumerate() {
        for turn in 0..SECONDS {
            let second = &operations[(i + turn * 11) % operations.len()];
            let between: &[Step] = match turn % 3 {
                0 => &[],
                1 => &[Step::Sync],
                _ => &[Step::Begin, Step::Complete],
            };
            let behind = [Step::Append("foo".into(), 20), Step::Close];
            let mut maker = Maker::from(Start::Tree);
            let whole = maker.put(&[Step::Append("foo".into(), 10), Step::Begin])
                && maker.put(first)
                && maker.put(between)
                && maker.put(second)
                && maker.put(&[Step::Complete])
                && maker.put(&behind);
            if whole {
                let name = format!("together:{}", all.len());
                all.push(Workload::new(name, Start::Tree, maker.steps));
            }
        }
    }
    all
}
