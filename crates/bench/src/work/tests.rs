//! Works on a faulty store, and on a correct one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::clock::SystemClock;
use crate::model::{IssueKind, StoreFacts};
use crate::observe::loop_disk::LoopDisk;
use crate::run_file::Run;
use crate::store::{Cold, Making, Mode, Names, Store, make};

/// The fault of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A bit of what is read is another one.
    ReadsWrong,
    /// What is written over something is forgotten.
    KeepsOld,
    /// Reading does nothing at all.
    ReadsNothing,
    /// A directory is not synced.
    LeavesDirectories,
}

/// A directory, with a fault in between.
struct Lying {
    honest: Box<dyn Store>,
    fault: Fault,
}

impl Store for Lying {
    fn facts(&self) -> &StoreFacts {
        self.honest.facts()
    }
    fn powers(&self) -> Powers {
        Powers {
            // Nothing comes between a library and its files.
            files: false,
            ..self.honest.powers()
        }
    }
    fn open(&mut self, name: &str, mode: Mode) -> Result<Arc<dyn Object>> {
        Ok(Arc::new(LyingObject {
            honest: self.honest.open(name, mode)?,
            fault: self.fault,
            made: mode.makes(),
        }))
    }
    fn remove(&mut self, name: &str) -> Result<()> {
        self.honest.remove(name)
    }
    fn names(&mut self) -> Result<Arc<dyn Names>> {
        Ok(Arc::new(LyingNames {
            honest: self.honest.names()?,
            fault: self.fault,
        }))
    }
    fn settle(&mut self) -> Result<()> {
        self.honest.settle()
    }
    fn make_cold(&mut self) -> Result<Cold> {
        self.honest.make_cold()
    }
    fn path(&self) -> Option<PathBuf> {
        self.honest.path()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.honest.close()
    }
}

struct LyingObject {
    honest: Arc<dyn Object>,
    fault: Fault,
    made: bool,
}

// It has no descriptor: every call comes through here.
impl Object for LyingObject {
    fn len(&self) -> io::Result<u64> {
        self.honest.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.fault == Fault::ReadsNothing {
            return Ok(());
        }
        self.honest.read_at(buf, offset)?;
        if self.fault == Fault::ReadsWrong {
            buf[buf.len() - 1] ^= 1;
        }
        Ok(())
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.fault == Fault::KeepsOld && !self.made {
            return Ok(());
        }
        self.honest.write_at(data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.honest.sync()
    }
}

struct LyingNames {
    honest: Arc<dyn Names>,
    fault: Fault,
}

impl Names for LyingNames {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.honest.make_dir(path)
    }
    fn create(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        self.honest.create(path, content, sync)
    }
    fn open(&self, path: &str) -> io::Result<()> {
        self.honest.open(path)
    }
    fn read(&self, path: &str, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.honest.read(path, buf)?;
        if self.fault == Fault::ReadsWrong {
            buf[0] ^= 1;
        }
        Ok(read)
    }
    fn write(&self, path: &str, content: &[u8], sync: bool) -> io::Result<()> {
        self.honest.write(path, content, sync)
    }
    fn stat(&self, path: &str) -> io::Result<u64> {
        self.honest.stat(path)
    }
    fn list(&self, path: &str) -> io::Result<u64> {
        self.honest.list(path)
    }
    fn chmod(&self, path: &str, mode: u32) -> io::Result<()> {
        self.honest.chmod(path, mode)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.honest.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.honest.unlink(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.honest.remove_dir(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        if self.fault == Fault::LeavesDirectories {
            return Ok(());
        }
        self.honest.sync_dir(path)
    }
    fn sync(&self) -> io::Result<()> {
        self.honest.sync()
    }
}

struct Place {
    dir: tempfile::TempDir,
    stop: AtomicBool,
}

impl Place {
    fn new() -> Place {
        Place::below(&std::env::temp_dir())
    }

    fn below(dir: &Path) -> Place {
        Place {
            dir: tempfile::tempdir_in(dir).unwrap(),
            stop: AtomicBool::new(false),
        }
    }

    fn bed(&self, fault: Fault) -> Bed {
        let run = Run::begin(&self.dir.path().join("state")).unwrap();
        let target = format!("directory:{}", self.dir.path().display());
        let honest = make(&target, &Making::new(run, "a")).unwrap();
        Bed::new(Box::new(Lying { honest, fault }))
    }

    fn context(&self) -> Context<'_> {
        Context {
            clock: &SystemClock,
            stop: &self.stop,
            seed: 11,
            size: 1 << 20,
            seconds: 0.1,
            files: 10,
            limits: Limits::default(),
        }
    }
}

fn finds_wrong_data(measured: &[Measured]) -> bool {
    measured.iter().any(|one| {
        let issues = one.round.issues.iter();
        issues
            .map(|issue| issue.kind)
            .any(|kind| kind == IssueKind::WrongData)
    })
}

/// Two rounds: what one leaves must not disturb the next.
fn caught(work: &dyn Work, fault: Fault) -> bool {
    let place = Place::new();
    let mut bed = place.bed(fault);
    let mut found = false;
    for _ in 0..2 {
        found |= finds_wrong_data(&work.round(&mut bed, &place.context()).unwrap());
    }
    bed.close().unwrap();
    found
}

#[test]
fn whatever_is_read_is_compared_with_what_was_written() {
    for work in sets::usual() {
        let row = &work.rows()[0].work;
        if row.starts_with("SQLite") {
            // It has its files to itself, and a test of its own.
            continue;
        }
        assert!(!caught(&*work, Fault::None), "{row}: an honest store");
        assert!(caught(&*work, Fault::ReadsWrong), "{row}: a wrong bit");
    }
}

#[test]
fn a_read_that_does_nothing_and_an_old_version_do_not_pass() {
    let random = |direction| Calls::new(direction, Order::Random, 4096);
    for work in [
        random(Direction::Read),
        random(Direction::Read).direct(16),
        Calls::new(Direction::Read, Order::Sequential, 1 << 16),
        random(Direction::Write),
    ] {
        assert!(caught(&work, Fault::ReadsNothing), "{}", work.name());
    }
    assert!(caught(&random(Direction::Write), Fault::KeepsOld));
    assert!(caught(
        &random(Direction::Write).direct(16),
        Fault::KeepsOld
    ));
}

#[test]
fn random_reads_after_random_writes_know_the_versions() {
    let place = Place::new();
    let mut bed = place.bed(Fault::None);
    for direction in [
        Direction::Write,
        Direction::Read,
        Direction::Write,
        Direction::Read,
    ] {
        let work = Calls::new(direction, Order::Random, 64 << 10);
        let measured = work.round(&mut bed, &place.context()).unwrap();
        assert!(!finds_wrong_data(&measured), "{direction:?}");
        assert_eq!(measured[0].round.bytes, 1 << 20, "every block, once");
    }
    bed.close().unwrap();
}

#[test]
fn a_work_that_is_stopped_says_so_and_keeps_nothing_of_the_round() {
    let place = Place::new();
    for work in sets::usual() {
        let mut bed = place.bed(Fault::None);
        bed.prepare(&place.context()).unwrap();
        place.stop.store(true, Ordering::Relaxed);
        let ended = work.round(&mut bed, &place.context());
        assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
        place.stop.store(false, Ordering::Relaxed);
        bed.close().unwrap();
    }
    let left = std::fs::read_dir(place.dir.path().join("state")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn zeros_are_written_as_zeros_and_the_rows_say_so() {
    let place = Place::new();
    let mut bed = place.bed(Fault::None);
    let zeros = Calls {
        content: crate::data::Content::Zeros,
        ..Calls::new(Direction::Write, Order::Sequential, 1 << 20)
    };
    assert!(zeros.name().ends_with(", zeros"));
    let measured = zeros.round(&mut bed, &place.context()).unwrap();
    assert!(!finds_wrong_data(&measured));
    bed.close().unwrap();
}

#[test]
fn a_mailbox_whose_directory_is_not_synced_is_not_durable() {
    let Some(disk) = LoopDisk::ext4(64) else {
        return;
    };
    let place = Place::below(&disk.path());
    for (fault, caught) in [(Fault::None, false), (Fault::LeavesDirectories, true)] {
        let mut bed = place.bed(fault);
        let measured = Mailbox.round(&mut bed, &place.context()).unwrap();
        let mut issues = measured[0].round.issues.iter();
        let found = issues.any(|issue| issue.kind == IssueKind::NotDurable);
        assert_eq!(found, caught, "{:?}", measured[0].round.issues);
        bed.close().unwrap();
    }
}
