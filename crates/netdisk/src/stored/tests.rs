use std::sync::atomic::{AtomicU64, Ordering};

use storage::testing::MemoryStorage;
use storage::{LockGuard, Space};

use super::*;
use crate::{BLOCK_LEN, DiskId, Store, Surroundings};

const LEN: u64 = 1 << 20;

/// A storage whose writer is in the state that a test says, and a clock that a test sets.
#[derive(Debug, Clone, Default)]
struct Elsewhere {
    memory: MemoryStorage,
    /// `None`: nobody answers.
    state: Arc<Mutex<Option<WriterState>>>,
    questions: Arc<AtomicU64>,
    seconds: Arc<AtomicU64>,
    ends: Arc<AtomicU64>,
}

impl Storage for Elsewhere {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.memory.open(path, mode)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.memory.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.memory.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.memory.list(dir)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.memory.create_dir(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.memory.sync_dir(dir)
    }
    fn space(&self) -> io::Result<Space> {
        self.memory.space()
    }
    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.memory.lock(path, note)
    }
    fn writer_state(&self) -> io::Result<WriterState> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let state = self.state.lock().clone();
        state.ok_or_else(|| io::Error::other("away"))
    }
}

impl TimeSource for Elsewhere {
    fn date(&self) -> Duration {
        Duration::ZERO
    }
    fn running(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::SeqCst))
    }
}

impl Elsewhere {
    fn with_device() -> Self {
        let elsewhere = Self::default();
        elsewhere.answers(Some(WriterState::Current));
        let (storage, time) = (Arc::new(elsewhere.clone()), Arc::new(elsewhere.clone()));
        StoredDevice::create(storage, LEN, time).unwrap();
        elsewhere
    }

    fn answers(&self, state: Option<WriterState>) {
        *self.state.lock() = state;
    }

    fn open(&self) -> StoredDevice {
        let ends = self.ends.clone();
        let (storage, time) = (Arc::new(self.clone()), Arc::new(self.clone()));
        let ended = move |_: &WriterState| {
            ends.fetch_add(1, Ordering::SeqCst);
        };
        StoredDevice::open(storage, time, ended).unwrap()
    }

    fn sleep(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    fn questions(&self) -> u64 {
        self.questions.load(Ordering::SeqCst)
    }

    fn ends(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }
}

#[test]
fn what_was_flushed_survives_and_each_opening_is_another_incarnation() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    Store::init(&device, DiskId([3; 16]), false).unwrap();
    let open = || Store::open(Arc::new(elsewhere.open()), Surroundings::of_opening()).unwrap();
    let store = open();
    assert_eq!((store.id(), store.blocks()), (DiskId([3; 16]), 255));
    store.write(0, &[1; BLOCK_LEN]).unwrap();
    store.flush().unwrap();
    store.write(1, &[2; BLOCK_LEN]).unwrap();
    elsewhere.memory.power_cut();
    let again = open();
    assert_ne!(again.incarnation(), store.incarnation());
    let mut blocks = [9; 2 * BLOCK_LEN];
    again.read(0, &mut blocks).unwrap();
    assert!(blocks[..BLOCK_LEN] == [1; BLOCK_LEN] && blocks[BLOCK_LEN..] == [0; BLOCK_LEN]);
    // The one that died goes on with nothing.
    elsewhere.answers(Some(WriterState::Failed("dead".into())));
    let before = store.incarnation();
    assert!(store.write(2, &[3; BLOCK_LEN]).is_err() && store.flush().is_err());
    assert_ne!(store.incarnation(), before);
}

#[test]
fn a_proof_that_is_young_enough_costs_no_question() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    let asked = elsewhere.questions();
    elsewhere.sleep(PROOF_MAX.as_secs());
    device.write_at(&[1; 4096], 0).unwrap();
    device.flush().unwrap();
    assert_eq!(elsewhere.questions(), asked);
    elsewhere.sleep(1);
    device.read_at(&mut [0; 4096], 0).unwrap();
    device.read_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(elsewhere.questions(), asked + 1);
}

#[test]
fn a_device_that_slept_while_another_took_its_place_answers_nothing() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    device.write_at(&[1; 4096], 0).unwrap();
    elsewhere.answers(Some(WriterState::Overtaken("another one".into())));
    elsewhere.sleep(PROOF_MAX.as_secs() + 1);
    let calls: [(&str, io::Result<()>); 4] = [
        ("read", device.read_at(&mut [0; 4096], 0)),
        ("write", device.write_at(&[2; 4096], 0)),
        ("flush", device.flush()),
        ("discard", device.discard(0, 4096)),
    ];
    for (what, done) in calls {
        let why = done.expect_err(what).to_string();
        assert!(why.contains("another one"), "{what}: {why}");
    }
    assert_eq!(elsewhere.ends(), 4);
}

#[test]
fn while_nobody_answers_calls_fail_so_that_they_are_repeated() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    elsewhere.answers(None);
    elsewhere.sleep(PROOF_MAX.as_secs() + 1);
    let late = device.read_at(&mut [0; 4096], 0).unwrap_err();
    assert_eq!(crate::store::reason(&late), crate::Reason::Busy);
    elsewhere.answers(Some(WriterState::Current));
    device.read_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(elsewhere.ends(), 0);
}

/// What it holds is still there; clients wrote it all again.
#[test]
fn a_flush_without_an_answer_ends_no_incarnation() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    Store::init(&device, DiskId([3; 16]), false).unwrap();
    let store = Store::open(Arc::new(device), Surroundings::of_opening()).unwrap();
    store.write(0, &[1; BLOCK_LEN]).unwrap();
    let before = store.incarnation();
    elsewhere.answers(None);
    elsewhere.sleep(PROOF_MAX.as_secs() + 1);
    let late = store.flush().unwrap_err();
    assert_eq!(crate::store::reason(&late), crate::Reason::Busy);
    assert_eq!(store.incarnation(), before);
    elsewhere.answers(Some(WriterState::Current));
    store.flush().unwrap();
    assert_eq!(store.incarnation(), before);
    elsewhere.memory.power_cut();
    store.flush().unwrap_err();
    assert_ne!(store.incarnation(), before);
}

#[test]
fn a_failure_that_is_no_end_is_reported() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    let outside = device.write_at(&[1; 4096], LEN).unwrap_err();
    assert_eq!(outside.kind(), io::ErrorKind::StorageFull);
    elsewhere.memory.power_cut();
    device.flush().unwrap_err();
    assert_eq!(elsewhere.ends(), 0);
    device.close();
    device.flush().unwrap_err();
    assert_eq!(elsewhere.ends(), 1);
}

#[test]
fn discarded_ranges_read_as_zeros() {
    let elsewhere = Elsewhere::with_device();
    let device = elsewhere.open();
    assert_eq!(device.len(), LEN);
    device.write_at(&[1; 3 * 4096], 0).unwrap();
    device.discard(4096, 4096).unwrap();
    device.write_zeros(8192, 4096).unwrap();
    let mut back = [9; 3 * 4096];
    device.read_at(&mut back, 0).unwrap();
    assert!(back[..4096] == [1; 4096] && back[4096..] == [0; 8192]);
    assert!(device.discard(LEN, 1).is_err());
}
