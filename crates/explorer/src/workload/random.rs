//! Long random workloads.
//!
//! Invariant: seed and length name one workload for ever; a change of the choices here needs a new name.

use super::Workload;
use super::names::{Kind, Names};
use super::start::Start;
use super::step::{FALLOCATES, Step};

/// SplitMix64 with its usual constants.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

const FILES: [&str; 7] = ["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar", "C/foo"];
const DIRS: [&str; 4] = ["A", "B", "C", "A/D"];
const XATTRS: [&str; 3] = ["user.a", "user.b", "user.kept"];

/// `len` operations, and what they need to apply.
pub fn random(seed: u64, len: usize) -> Workload {
    woven("random", seed, len, choose)
}

/// The same, every fourth of them one of the whole room: snapshots and what is restored from them, transactions, work ahead, maintenance.
pub fn mixed(seed: u64, len: usize) -> Workload {
    let mut within = false;
    woven("mixed", seed, len, move |r, names| {
        let step = match r.below(4) {
            0 => whole(r, within),
            _ => choose(r, names),
        };
        // Not in a transaction.
        let step = match step {
            Step::Reopen | Step::Compact(_) | Step::Fallocate(..) if within => Step::Complete,
            other => other,
        };
        within = match step {
            Step::Begin => true,
            Step::Complete => false,
            _ => within,
        };
        step
    })
}

fn woven(
    family: &str,
    seed: u64,
    len: usize,
    mut choose: impl FnMut(&mut Random, &Names) -> Step,
) -> Workload {
    let mut r = Random::new(seed);
    let start = if r.below(3) == 0 {
        Start::Empty
    } else {
        Start::Tree
    };
    let mut names = start.names();
    let mut steps = Vec::new();
    let mut done = 0;
    while done < len {
        let step = choose(&mut r, &names);
        let Some(first) = names.needs(&step) else {
            continue;
        };
        for step in first.into_iter().chain([step]) {
            names.apply(&step);
            steps.push(step);
        }
        done += 1;
    }
    let ends = |step: &&Step| matches!(step, Step::Begin | Step::Complete);
    if steps.iter().rfind(ends) == Some(&Step::Begin) {
        steps.push(Step::Complete);
    }
    steps.push(Step::Close);
    Workload::new(format!("{family}:{seed}:{len}"), start, steps)
}

const SNAPSHOTS: [&str; 3] = ["a", "b", "c"];

/// A step of the whole room, `within` a transaction or not.
fn whole(r: &mut Random, within: bool) -> Step {
    if within {
        return match r.below(2) {
            0 => Step::Prepare,
            _ => Step::Complete,
        };
    }
    let (name, other): (String, String) = (r.of(&SNAPSHOTS).into(), r.of(&SNAPSHOTS).into());
    match r.below(20) {
        0..=4 => Step::Snapshot(name),
        5..=6 => Step::DropSnapshot(name),
        7 if name != other => Step::RenameSnapshot(name, other),
        8..=10 => Step::Restore(name, r.of(&FILES).into(), r.of(&FILES).into()),
        11..=12 => Step::Tend,
        13..=14 => Step::Prepare,
        15..=16 => Step::Begin,
        17 => match r.below(3) {
            0 => Step::Rekey(0),
            1 => Step::Backup,
            _ => Step::Check,
        },
        18 => Step::Compact(100),
        _ => Step::Reopen,
    }
}

/// A place or length within a file: mostly small, sometimes at a border of blocks, units or chunks.
fn place(r: &mut Random) -> u64 {
    match r.below(8) {
        0 => 0,
        1 => r.below(30) * 4096,
        2 => r.below(5) * 16384,
        3 => (r.below(6) * 16384).saturating_sub(r.below(100)),
        4 => (1 << 20) - r.below(9000),
        _ => r.below(70_000),
    }
}

fn length(r: &mut Random) -> u64 {
    match r.below(6) {
        0 => 4096,
        1 => 16384,
        2 => 1 + r.below(80_000),
        _ => 1 + r.below(5000),
    }
}

fn choose(r: &mut Random, names: &Names) -> Step {
    let present = names.of_kind(Kind::File);
    let file = |r: &mut Random| {
        if present.is_empty() || r.below(4) == 0 {
            r.of(&FILES).to_owned()
        } else {
            r.of(&present).clone()
        }
    };
    let any = |r: &mut Random| {
        if r.below(4) == 0 {
            r.of(&DIRS).to_owned()
        } else {
            r.of(&FILES).to_owned()
        }
    };
    let (p, q) = (file(r), file(r));
    match r.below(44) {
        0..=1 => Step::Create(r.of(&FILES).into()),
        2 => Step::Mkdir(r.of(&DIRS).into()),
        3 => Step::Rmdir(r.of(&DIRS).into()),
        4..=5 => Step::Unlink(p),
        6 => Step::Symlink(r.of(&FILES).into(), "A/foo".into()),
        7 => Step::Link(p, r.of(&FILES).into()),
        8..=9 => Step::Rename(any(r), any(r)),
        10 => Step::Exchange(any(r), any(r)),
        11..=16 => Step::Write(p, place(r), length(r)),
        17..=18 => Step::Mmap(p, place(r), length(r)),
        19..=20 => Step::Append(p, length(r)),
        21..=22 => Step::Truncate(p, place(r)),
        23..=26 => {
            let what = r.of(&FALLOCATES);
            let whole = matches!(what, room::Fallocate::Collapse | room::Fallocate::Insert);
            let (offset, len) = if whole {
                (r.below(10) * 4096, (1 + r.below(6)) * 4096)
            } else {
                (place(r), length(r))
            };
            Step::Fallocate(p, what, offset, len)
        }
        27..=28 if p != q => {
            let (from, to) = (r.below(8) * 4096, r.below(8) * 4096);
            Step::Copy(p, from, q, to, length(r))
        }
        29 => Step::SetXattr(any(r), r.of(&XATTRS).into(), 1 + r.below(300)),
        30 => Step::RemoveXattr(p, r.of(&XATTRS).into()),
        31 => Step::Chmod(any(r), r.below(0o1000) as u16),
        32 => Step::Chown(any(r), r.below(2000) as u32),
        33 => Step::Times(any(r), r.below(1 << 31) as i64),
        34 => Step::Hold(p),
        35 => Step::WriteHeld(place(r), length(r)),
        36 => Step::Release,
        37 => Step::Tmpfile(r.of(&FILES).into(), length(r)),
        38 => Step::Fsync(p),
        39 => Step::Fdatasync(p),
        40 => Step::SyncDir(r.of(&DIRS).into()),
        41 if r.below(4) == 0 => Step::Reopen,
        42 if r.below(4) == 0 => Step::Compact(60),
        _ => Step::Sync,
    }
}
