//! Each check made to fire on purpose, with real files, real devices and real processes wherever there are such, and an honest round that
//! makes none fire.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::observe::{Observer, Subject};

mod cache;
mod clocks;
mod data;
mod device;
mod rows;
mod surroundings;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// On the working tree's device: the system's temporary directory may be memory.
fn on_a_device() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory")
}

fn observer(path: &Path) -> Observer {
    Observer::new(Subject {
        path: path.to_path_buf(),
        ..Subject::default()
    })
}

/// Limits for rounds of a few megabytes: a test's rounds need no length.
fn short() -> Limits {
    Limits {
        seconds_min: 0.0,
        operations_min: 0,
        ..Limits::default()
    }
}

fn judged(evidence: &Evidence, claim: &Claim) -> Vec<Issue> {
    of_round(evidence, claim, &Ceilings::default(), &short())
}

/// What was said by the check of this kind, if it fired.
fn said(issues: &[Issue], kind: IssueKind) -> Option<&str> {
    let found = issues.iter().find(|issue| issue.kind == kind)?;
    Some(found.said.as_str())
}

#[track_caller]
fn fires(issues: &[Issue], kind: IssueKind, words: &str) {
    let found = said(issues, kind).unwrap_or_else(|| panic!("{kind:?} does not fire: {issues:?}"));
    assert!(found.contains(words), "{found:?} lacks {words:?}");
}

#[track_caller]
fn no_issue(issues: &[Issue], kind: IssueKind) {
    assert_eq!(said(issues, kind), None);
}

/// Other processes use this machine while tests run, its host other machines, and its disk may be full of builds; that is not what an
/// honest round is about.
fn of_the_round_itself(issues: Vec<Issue>) -> Vec<Issue> {
    let of_others = [
        IssueKind::DeviceShared,
        IssueKind::StolenTime,
        IssueKind::NearlyFull,
        IssueKind::NotObservable,
    ];
    let mut left = issues;
    left.retain(|issue| !of_others.contains(&issue.kind));
    left
}

/// A file of `bytes` that do not repeat, durable.
fn written(path: &Path, bytes: usize) -> File {
    let mut data = vec![0; bytes];
    fastrand::Rng::with_seed(1).fill(&mut data);
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .expect("made");
    file.write_all_at(&data, 0).expect("written");
    file.sync_all().expect("synced");
    file
}

fn forget(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .expect("opened")
}

/// Calls `call` with an aligned piece of `length` at each place in `bytes`.
fn pieces(bytes: usize, length: usize, mut call: impl FnMut(u64, &mut [u8])) {
    let mut buffer = vec![0x5a; length + 4096];
    let from = buffer.as_ptr().align_offset(4096);
    let piece = &mut buffer[from..from + length];
    for at in (0..bytes).step_by(length) {
        call(at as u64, piece);
    }
}

/// Reads all of `file` in pieces of 64 KiB.
fn read_all(file: &File, bytes: usize) {
    pieces(bytes, 64 * KIB, |at, piece| {
        file.read_exact_at(piece, at).expect("read")
    });
}

/// A cold read of `bytes`, as it is claimed. It is never alone here: other tests run in this process.
fn cold_read(bytes: usize) -> Claim {
    Claim {
        direction: Direction::Read,
        operations: (bytes / (64 * KIB)) as u64,
        bytes: bytes as u64,
        cold: true,
        by_calls: true,
        ..Claim::default()
    }
}

/// Durable writes of `bytes`, with so many syncs.
fn durable_write(bytes: usize, operations: u64, syncs: u64) -> Claim {
    Claim {
        direction: Direction::Write,
        operations,
        bytes: bytes as u64,
        durable: true,
        by_calls: true,
        syncs,
        ..Claim::default()
    }
}
