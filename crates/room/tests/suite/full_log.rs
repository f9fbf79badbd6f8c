//! Opening after a crash whose log is as full as it gets: everything acknowledged is there, and the work has a bound.
//!
//! The work is counted at the storage and in changes, so that no machine is too slow for these tests; `strongroom bench scale`
//! has the times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::stored::{create_on, open_on, options};
use crate::common::{pattern, sound};
use room::{FileKind, FileSystem as _, InodeNo, NewFile, RenameMode, Room};
use storage::testing::{FaultyStorage, MemoryStorage, Op};

const LOG: &str = "catalog.db-log";
/// Bytes of the log.
const LOG_LEN: u64 = 4 << 20;
/// Changes that the log holds at most.
const CHANGES_MAX: usize = 50_000;

/// What an opening may do at most, whatever the log holds: the log is read once, its data and the catalog's pages are
/// written once or twice.
const SYNCS_MAX: u64 = 8;
const READ_MAX: u64 = 2 * LOG_LEN;
const WRITTEN_MAX: u64 = 3 * LOG_LEN;

/// Records since the last commit.
#[derive(Debug, Clone, Copy, Default)]
struct Records {
    count: u64,
    /// Where the next one begins.
    end: u64,
    /// Length of the last one.
    last: u64,
}

/// A room whose log is watched.
struct Watched {
    storage: MemoryStorage,
    room: Room,
    log: Arc<Mutex<Records>>,
}

impl Watched {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let watched = FaultyStorage::new(storage.clone());
        let log = Arc::new(Mutex::new(Records::default()));
        let seen = log.clone();
        watched.observe(move |call| {
            // The write of all of it creates the file.
            if call.op == Op::Write && call.path == LOG && call.len < LOG_LEN {
                let mut log = seen.lock().unwrap();
                log.count = if call.offset == 0 { 1 } else { log.count + 1 };
                (log.end, log.last) = (call.offset + call.len, call.len);
            }
        });
        let room = create_on(Arc::new(watched), options());
        // The first sync is the commit that says that there is a log.
        room.write_file("/first", b"1").unwrap();
        room.sync().unwrap();
        Self { storage, room, log }
    }

    fn records(&self) -> Records {
        *self.log.lock().unwrap()
    }

    /// Does a step and a sync, again and again, until the next record would not fit. Returns how many.
    fn fill(&self, mut step: impl FnMut(&Room, u64)) -> u64 {
        for done in 0.. {
            let log = self.records();
            // A record may be longer than the one before.
            if log.end + log.last + log.last / 8 > LOG_LEN {
                return done;
            }
            step(&self.room, done);
            self.room.sync().unwrap();
        }
        unreachable!()
    }

    /// Loses what is not durable, and opens the room again.
    fn crash_and_open(self) -> Room {
        let acknowledged = self.room.info().unwrap().generation;
        let Records { count, .. } = self.records();
        self.storage.power_cut();
        drop(self.room);
        let counted = FaultyStorage::new(self.storage);
        let bytes: Arc<Mutex<BTreeMap<Op, u64>>> = Arc::default();
        let seen = bytes.clone();
        counted.observe(move |call| {
            *seen.lock().unwrap().entry(call.op).or_default() += call.len;
        });
        let began = std::time::Instant::now();
        let room = open_on(Arc::new(counted.clone()), options()).unwrap();
        let took = began.elapsed();
        let bytes = bytes.lock().unwrap().clone();
        let of = |op| bytes.get(&op).copied().unwrap_or(0);
        let syncs = counted.count(Op::Sync) + counted.count(Op::SyncDir);
        eprintln!(
            "{count} records: {syncs} syncs, {} bytes read, {} written, {took:.0?}",
            of(Op::Read),
            of(Op::Write)
        );
        assert_eq!(
            room.info().unwrap().generation,
            acknowledged + 1,
            "one commit behind the last record"
        );
        assert!(syncs <= SYNCS_MAX, "{syncs} syncs");
        assert!(of(Op::Read) <= READ_MAX, "{} bytes read", of(Op::Read));
        assert!(of(Op::Write) <= WRITTEN_MAX, "{} written", of(Op::Write));
        room
    }
}

fn names(room: &Room) -> Vec<Vec<u8>> {
    let entries = room.read_dir(InodeNo::ROOT, 0, usize::MAX).unwrap();
    entries.into_iter().map(|(entry, _)| entry.name).collect()
}

#[test]
fn many_small_records_are_applied() {
    let watched = Watched::new();
    let done = watched.fill(|room, i| room.write_file(format!("/{i}"), &pattern(i, 100)).unwrap());
    assert!(done > 400 && watched.records().count == done, "{done}");
    let room = watched.crash_and_open();
    for i in 0..done {
        assert_eq!(room.read_file(format!("/{i}")).unwrap(), pattern(i, 100));
    }
    assert_eq!(names(&room).len() as u64, done + 1);
    sound(&room);
}

#[test]
fn records_full_of_inodes_names_and_chunks_are_applied() {
    const EACH: u64 = 500;
    let watched = Watched::new();
    let done = watched.fill(|room, i| {
        for i in i * EACH..(i + 1) * EACH {
            room.write_file(format!("/a name of some length {i}"), &i.to_le_bytes())
                .unwrap();
        }
    });
    let Records { count, end, .. } = watched.records();
    assert!(count == done && end > LOG_LEN * 8 / 10, "{done}, {end}");
    let room = watched.crash_and_open();
    for i in 0..done * EACH {
        let content = room.read_file(format!("/a name of some length {i}"));
        assert_eq!(content.unwrap(), i.to_le_bytes());
    }
    assert_eq!(names(&room).len() as u64, done * EACH + 1);
    sound(&room);
}

#[test]
fn records_full_of_data_are_applied() {
    let watched = Watched::new();
    let done = watched.fill(|room, i| {
        room.write_file(format!("/{}", i % 16), &pattern(i, 100_000))
            .unwrap();
    });
    assert!(done > 30 && watched.records().count == done, "{done}");
    let room = watched.crash_and_open();
    for i in done - 16..done {
        let content = room.read_file(format!("/{}", i % 16)).unwrap();
        assert!(content == pattern(i, 100_000), "{i}");
    }
    sound(&room);
}

/// A change can be as short as ten bytes: a log that is bounded by bytes alone would hold 400,000 of them.
#[test]
fn the_log_holds_a_bounded_number_of_changes() {
    const EACH: usize = 500;
    let watched = Watched::new();
    let room = &watched.room;
    room.make(InodeNo::ROOT, b"a", &NewFile::of_kind(FileKind::Regular))
        .unwrap();
    room.tend().unwrap();
    let rename = |from: &[u8], to: &[u8]| {
        let root = InodeNo::ROOT;
        room.rename(root, from, root, to, RenameMode::Replace)
            .unwrap();
    };
    let mut changes = 0;
    let mut most = 0;
    for _ in 0..CHANGES_MAX / EACH + 2 {
        let before = watched.records();
        for _ in 0..EACH / 2 {
            rename(b"a", b"b");
            rename(b"b", b"a");
        }
        room.sync().unwrap();
        let after = watched.records();
        // A record behind the last one, or the first one; else it was a commit.
        let recorded = after.end > before.end || after.count == 1;
        changes = if recorded { changes + EACH } else { 0 };
        most = most.max(changes);
    }
    assert!((CHANGES_MAX / 2..=CHANGES_MAX).contains(&most), "{most}");
    // Again up to the bound, and there the power fails.
    for _ in 0..(most - changes) / EACH {
        for _ in 0..EACH / 2 {
            rename(b"a", b"b");
            rename(b"b", b"a");
        }
        room.sync().unwrap();
    }
    let room = watched.crash_and_open();
    assert_eq!(names(&room), [b"first".to_vec(), b"a".to_vec()]);
    sound(&room);
}
