//! Rooms over the placement.

use room::{Credential, FileSystem as _, NewCredential, NewRoom, OpenOptions, Room, Secret};

use super::*;

fn options() -> OpenOptions {
    OpenOptions {
        commit_interval_ms: 0,
        background: false,
        network_backed: true,
        ..OpenOptions::default()
    }
}

fn key() -> Secret {
    Secret::from(vec![7; 32])
}

pub(super) fn made(storage: &NetStorage) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(key()));
    new.open = options();
    Room::create_on(Arc::new(storage.clone()), new).unwrap()
}

pub(super) fn opened(storage: &NetStorage) -> Room {
    let key = Credential::RawKey(key());
    Room::open_on(Arc::new(storage.clone()), &key, options()).unwrap()
}

pub(super) fn content(seed: u8) -> Vec<u8> {
    (0..3_000_001_usize)
        .map(|i| (i / BLOCK_LEN) as u8 ^ seed ^ (i % 251) as u8)
        .collect()
}

#[track_caller]
pub(super) fn assert_whole(room: &Room) {
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(
        report.findings.is_empty() && report.lost.is_empty(),
        "{report:?}"
    );
}

#[test]
fn a_room_lives_on_disks() {
    let bench = Bench::new(2, 8);
    let storage = bench.attached();
    let room = made(&storage);
    for n in 0..20 {
        room.write_file(format!("/{n}"), &content(n)).unwrap();
    }
    room.sync().unwrap();
    assert_eq!(
        bench
            .disks
            .iter()
            .filter(|d| !d.state.lock().durable.is_empty())
            .count(),
        1
    );
    let grant = room.grant(0, 8).unwrap();
    assert_ne!(
        bench.disk_of(&storage, grant.segment.0).id,
        bench.disk_of(&storage, 1).id
    );
    room.settle_grant(grant.id);
    for n in 0..19 {
        room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes())
            .unwrap();
    }
    room.close().unwrap();
    // Without its disks it opens, and says what is missing.
    let alone = bench.open();
    let room = opened(&alone);
    let missing = room.read_file("/19").unwrap_err();
    assert!(
        matches!(&missing, room::Error::Io(e) if e.kind() == io::ErrorKind::NotConnected),
        "{missing}"
    );
    bench.attach(&alone);
    assert!(room.read_file("/19").unwrap() == content(19));
    assert_whole(&room);
    room.compact(90, &|_, _| true).unwrap();
    room.tend().unwrap();
    assert_whole(&room);
    assert_eq!(alone.release(), 0);
    assert_eq!(alone.list(SEGMENTS_DIR).unwrap().len(), 1);
    room.close().unwrap();
    let storage = bench.attached();
    let room = opened(&storage);
    assert!(room.read_file("/19").unwrap() == content(19));
    assert!(
        !bench
            .host
            .list("")
            .unwrap()
            .contains(&"placement.new".into())
    );
    assert!(bench.host.list(SEGMENTS_DIR).unwrap().is_empty());
}

#[test]
fn a_disk_that_loses_power_costs_nothing_that_was_acknowledged() {
    let bench = Bench::new(2, 8);
    let storage = bench.attached();
    let room = made(&storage);
    room.write_file("/kept", &content(1)).unwrap();
    room.sync().unwrap();
    room.write_file("/lost", &content(2)).unwrap();
    bench.disk_of(&storage, 1).lose_power();
    assert!(room.sync().is_err());
    assert!(matches!(room.sync(), Err(room::Error::Poisoned)));
    drop(room);
    let storage = bench.attached();
    let room = opened(&storage);
    assert!(room.read_file("/kept").unwrap() == content(1));
    assert!(room.read_file("/lost").is_err());
    assert_whole(&room);
    room.write_file("/again", &content(3)).unwrap();
    room.sync().unwrap();
    bench.disks.iter().for_each(|disk| disk.lose_power());
    assert!(room.read_file("/again").unwrap() == content(3));
}

#[test]
fn a_full_disk_is_no_space_and_deleting_makes_some() {
    let bench = Bench::new(1, 2);
    let storage = bench.attached();
    let room = made(&storage);
    let mut n = 0;
    let full = loop {
        match room.write_file(format!("/{n}"), &content(n)) {
            Ok(()) => n += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(full, room::Error::NoSpace), "{full}");
    for n in 0..=n {
        let _ = room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes());
    }
    room.tend().unwrap();
    storage.release();
    room.write_file("/again", &content(1)).unwrap();
    room.sync().unwrap();
    assert_whole(&room);
}

/// Frees what is discarded, as the server does all the time, while `run` works.
fn releasing<T>(storage: &NetStorage, run: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                storage.release();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        over.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn fifty_openings_of_small_disks_leave_space_for_nearly_all_bytes() {
    let bench = Bench::new(2, 16);
    made(&bench.attached()).close().unwrap();
    let small = |n: u8| vec![n; 30_000];
    for n in 0..50 {
        let storage = bench.attached();
        let room = opened(&storage);
        storage.release();
        room.write_file(format!("/{n}"), &small(n)).unwrap();
        for lane in 0..2 {
            let grant = room.grant(lane, 64).unwrap();
            if n % 3 == 0 {
                room.settle_grant(grant.id);
            }
        }
        room.sync().unwrap();
        match n % 2 {
            0 => room.close().unwrap(),
            _ => bench.host.inner().power_cut(),
        }
    }
    let storage = bench.attached();
    let room = opened(&storage);
    assert_eq!(storage.release(), 0);
    let space = storage.space().unwrap();
    assert!(
        space.available > space.total / 100 * 99,
        "{} of {} bytes are left",
        space.available,
        space.total
    );
    for n in 0..50 {
        assert_eq!(room.read_file(format!("/{n}")).unwrap(), small(n));
    }
    assert_whole(&room);
}

#[test]
fn a_full_disk_can_be_cleaned_after_files_are_deleted() {
    let bench = Bench::new(1, 4);
    let storage = bench.attached();
    let room = made(&storage);
    let full = (0..)
        .find(|n| room.write_file(format!("/{n}"), &content(*n)).is_err())
        .unwrap();
    let gone = |n: u8| !n.is_multiple_of(3) || n == full;
    for n in (0..=full).filter(|n| gone(*n)) {
        let _ = room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes());
    }
    room.tend().unwrap();
    storage.release();
    let more = |seed: u8| {
        (0..)
            .find(|n| {
                let path = format!("/again-{seed}-{n}");
                let failed = room.write_file(&path, &content(*n)).is_err();
                if failed {
                    let _ = room.unlink(room::InodeNo::ROOT, &path.as_bytes()[1..]);
                }
                failed
            })
            .unwrap()
    };
    let before = more(0);
    assert!(
        before < full / 4,
        "every segment holds something that lives"
    );
    let report = releasing(&storage, || room.compact(95, &|_, _| true)).unwrap();
    assert!(report.segments_rewritten > 1, "{report:?}");
    let after = more(1);
    assert!(after > full / 3, "{before} files fit before, {after} after");
    for n in (0..full).filter(|n| !gone(*n)) {
        assert!(room.read_file(format!("/{n}")).unwrap() == content(n));
    }
    assert_whole(&room);
}

#[test]
fn a_room_whose_places_are_forgotten_is_refused_and_not_written_over() {
    let bench = Bench::new(1, 4);
    let room = made(&bench.attached());
    room.write_file("/kept", &content(1)).unwrap();
    room.close().unwrap();
    let table = storage::read_limited(&bench.host, table::PLACEMENT, 1 << 20).unwrap();
    for name in [table::PLACEMENT, table::COPY] {
        bench.host.remove(name).unwrap();
    }
    let credential = Credential::RawKey(key());
    let refused = Room::open_on(Arc::new(bench.attached()), &credential, options()).unwrap_err();
    assert!(refused.to_string().contains("`placement`"), "{refused}");
    storage::replace(&bench.host, table::COPY, &table).unwrap();
    let room = opened(&bench.attached());
    assert!(room.read_file("/kept").unwrap() == content(1));
}
