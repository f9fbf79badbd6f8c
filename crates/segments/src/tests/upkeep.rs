//! Releasing, removing, listing, and the bound on open files.

use std::sync::atomic::{AtomicUsize, Ordering};

use storage::testing::{Call, Op};
use storage::{LockGuard, Space, StorageFile};

use super::*;

fn range(segment: u64, position: u32, blocks: u32) -> BlockRange {
    BlockRange {
        segment: SegmentNo(segment),
        position,
        blocks,
    }
}

#[test]
fn released_ranges_are_merged_and_read_as_zeros() {
    let mut bench = Bench::new();
    let w = bench.append(12, 1);
    let punched = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = punched.clone();
    bench.faults.observe(move |call: &Call<'_>| {
        if call.op == Op::Punch {
            log.lock()
                .unwrap()
                .push((call.offset / BLOCK_LEN as u64, call.len / BLOCK_LEN as u64));
        }
    });
    // Out of order, touching, one gone already.
    bench
        .store
        .release(&[
            range(1, 7, 2),
            range(1, 5, 2),
            range(9, 1, 1),
            range(1, 10, 1),
            range(1, 5, 3),
        ])
        .unwrap();
    assert_eq!(*punched.lock().unwrap(), [(5, 4), (10, 1)]);
    assert!(
        bench
            .bytes(SegmentNo(1), 5 * BLOCK_LEN as u64, 4 * BLOCK_LEN)
            .iter()
            .all(|b| *b == 0)
    );
    assert_eq!(w.units_that_open(&bench.store), [true, false, false]);
}

#[test]
fn a_removed_segment_is_gone_and_removing_it_again_is_nothing() {
    let mut bench = Bench::new();
    let w = bench.append(1, 1);
    bench.store.remove(w.sealed.segment).unwrap();
    bench.store.remove(w.sealed.segment).unwrap();
    assert!(bench.store.list().unwrap().is_empty());
    assert!(matches!(
        w.read(&bench.store).0,
        Err(SegmentError::Missing { .. })
    ));
    let next = bench.append(1, 2);
    assert_eq!(
        next.sealed.segment,
        SegmentNo(2),
        "a number is not used again"
    );
    bench.store.flush().unwrap();
}

#[test]
fn foreign_files_among_the_segments_are_left_alone() {
    let mut bench = Bench::new();
    assert!(bench.store.list().unwrap().is_empty());
    bench.append(1, 1);
    let names = [
        "notes.txt",
        "1",
        "00000000000000000000",
        "99999999999999999999",
        "0000000000000000001x",
    ];
    for name in names {
        bench
            .memory
            .open(&format!("{SEGMENTS_DIR}/{name}"), OpenMode::CreateNew)
            .unwrap();
    }
    assert_eq!(
        bench.store.list().unwrap(),
        [SegmentFile {
            no: SegmentNo(1),
            len: 2 * BLOCK_LEN as u64,
            allocated: None,
        }]
    );
    bench.reopen();
    bench.append(1, 2).assert_readable(&bench.store);
}

#[test]
fn a_file_of_the_highest_number_stops_nothing() {
    let mut bench = Bench::new();
    bench.append(1, 1);
    bench
        .memory
        .open(&file_name(SegmentNo(u64::MAX)), OpenMode::CreateNew)
        .unwrap();
    bench.reopen();
    assert_eq!(bench.append(1, 1).sealed.segment, SegmentNo(2));
}

/// A storage that counts the files open, and cannot punch.
#[derive(Debug)]
struct Counting {
    inner: MemoryStorage,
    open: Arc<()>,
    punches: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn StorageFile>,
    _open: Arc<()>,
    punches: Arc<AtomicUsize>,
}

impl Storage for Counting {
    fn open(&self, path: &str, mode: OpenMode) -> std::io::Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(CountedFile {
            inner,
            _open: self.open.clone(),
            punches: self.punches.clone(),
        }))
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &str) -> std::io::Result<()> {
        self.inner.remove(path)
    }
    fn list(&self, dir: &str) -> std::io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn create_dir(&self, path: &str) -> std::io::Result<()> {
        self.inner.create_dir(path)
    }
    fn sync_dir(&self, dir: &str) -> std::io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn space(&self) -> std::io::Result<Space> {
        self.inner.space()
    }
    fn lock(&self, path: &str, note: &str) -> std::io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path, note)
    }
}

impl StorageFile for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn len(&self) -> std::io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.inner.set_len(len)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.inner.sync()
    }
    fn punch(&self, _offset: u64, _len: u64) -> std::io::Result<()> {
        self.punches.fetch_add(1, Ordering::Relaxed);
        Err(std::io::ErrorKind::Unsupported.into())
    }
    fn allocate(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.inner.allocate(offset, len)
    }
    fn prefetch(&self, offset: u64, len: u64) {
        self.inner.prefetch(offset, len);
    }
}

fn counting() -> (DirStore, Arc<()>, Arc<AtomicUsize>) {
    let (open, punches) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let storage = Counting {
        inner: MemoryStorage::new(),
        open: open.clone(),
        punches: punches.clone(),
    };
    let store = DirStore::open(Arc::new(storage), keyring(), Vec::new(), SegmentNo(1)).unwrap();
    (store, open, punches)
}

#[test]
fn a_storage_that_cannot_punch_is_asked_once() {
    let (store, _, punches) = counting();
    append(&store, 4, 1);
    store.rotate().unwrap();
    append(&store, 4, 1);
    for _ in 0..3 {
        store.release(&[range(1, 1, 1), range(1, 3, 1)]).unwrap();
    }
    assert_eq!(punches.load(Ordering::Relaxed), 1);
}

#[test]
fn however_many_segments_there_are_few_files_stay_open() {
    let (store, open, _) = counting();
    let written: Vec<_> = (0..300)
        .map(|seed| {
            store.rotate().unwrap();
            append(&store, 1, seed as u8)
        })
        .collect();
    store.flush().unwrap();
    for _ in 0..2 {
        written.iter().for_each(|w| w.assert_readable(&store));
    }
    // The storage itself holds two tokens: its own and the test's.
    assert!(
        Arc::strong_count(&open) <= 2 + 129,
        "{} files are open",
        Arc::strong_count(&open) - 2
    );
}
