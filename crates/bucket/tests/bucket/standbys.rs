//! A writer that shows that it lives, and who takes its place.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use storage::{OpenMode, Storage};
use strongroom_bucket::{BucketStorage, Options, Standby};

use crate::made::{arc, create, noise, options, polite, read, write};
use crate::store::{Store, list};

/// A writer that is taken for dead after this time; it never passes in a test that wants the writer alive.
fn with_lease(lease: Duration) -> Options {
    let mut options = polite();
    options.lease = Some(lease);
    options
}

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(300);

fn standby(store: &Store, dir: &Path, mut options: Options) -> Standby {
    options.log = store.log();
    Standby::open(arc(store), "rooms/a", dir, options).unwrap()
}

/// Looks until it writes.
fn takes(mut standby: Standby) -> BucketStorage {
    loop {
        if let Some(storage) = standby.look().unwrap() {
            return storage;
        }
    }
}

struct World {
    store: Store,
    dirs: [tempfile::TempDir; 3],
}

impl World {
    fn new() -> Self {
        Self {
            store: Store::new(),
            dirs: [(); 3].map(|()| tempfile::tempdir().unwrap()),
        }
    }

    fn dir(&self, number: usize) -> &Path {
        self.dirs[number].path()
    }

    /// A room with a file, written by one with this lease.
    fn writer(&self, options: Options) -> BucketStorage {
        drop(create(&self.store, self.dir(0), self::options()).unwrap());
        let writer = takes(standby(&self.store, self.dir(0), options));
        write(&writer, "f", b"of the first").unwrap();
        writer
    }
}

#[test]
fn a_standby_waits_for_a_writer_that_lives_and_begins_when_it_has_closed_the_room() {
    let world = World::new();
    let first = world.writer(with_lease(LONG));
    let mut second = standby(&world.store, world.dir(1), with_lease(LONG));
    for n in 0..3 {
        write(&first, &format!("g{n}"), &noise(n, 5000)).unwrap();
        assert!(second.look().unwrap().is_none());
    }
    assert!(second.look().unwrap().is_none());
    drop(first);
    let second = second.look().unwrap().expect("the room is closed");
    assert_eq!(read(&second, "f").unwrap(), b"of the first");
    assert_eq!(read(&second, "g2").unwrap(), noise(2, 5000));
}

#[test]
fn a_standby_takes_the_place_of_a_writer_that_has_no_heartbeat_any_more() {
    let world = World::new();
    let first = world.writer(with_lease(SHORT));
    let began = first.writer();
    let waiting = standby(&world.store, world.dir(1), with_lease(LONG));
    first.die();
    let second = takes(waiting);
    assert!(second.writer() > began);
    write(&second, "g", b"of the second").unwrap();
    assert!(first.prove().is_err());
}

/// As a process that is stopped does, and is woken.
#[test]
fn a_writer_that_wakes_after_it_was_overtaken_proves_nothing_and_syncs_nothing() {
    let world = World::new();
    let first = world.writer(with_lease(LONG));
    first.prove().unwrap();
    let mut take = with_lease(LONG);
    take.take_over = true;
    let second = takes(standby(&world.store, world.dir(1), take));
    let file = first.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"late", 0).unwrap();
    assert!(!first.has_failed());
    let refused = first.prove().unwrap_err().to_string();
    assert!(refused.contains("has taken over"), "{refused}");
    assert!(first.has_failed() && file.sync().is_err());
    assert_eq!(read(&second, "f").unwrap(), b"of the first");
    second.prove().unwrap();
}

#[test]
fn a_writer_that_promised_nothing_is_never_taken_for_dead() {
    let world = World::new();
    let first = world.writer({
        let mut options = options();
        options.lease = None;
        options
    });
    let mut second = standby(&world.store, world.dir(1), with_lease(SHORT));
    first.die();
    assert!(second.look().unwrap().is_none());
    assert!(second.writer().contains("no heartbeat"));
    drop(second);
    let mut take = with_lease(SHORT);
    take.take_over = true;
    takes(standby(&world.store, world.dir(1), take));
}

/// The disk of a standby was full. It took the room from its writer again and again, and served it never.
#[test]
fn a_standby_that_cannot_note_its_begin_does_not_begin() {
    let world = World::new();
    let first = world.writer(with_lease(LONG));
    let mut take = with_lease(LONG);
    take.take_over = true;
    let mut second = standby(&world.store, world.dir(1), take.clone());
    let full = world.dir(1).join("writer.new");
    std::fs::create_dir(&full).unwrap();
    second.look().unwrap_err();
    write(&first, "g", b"of the first").unwrap();
    // It still waits: nobody else does on its machine.
    take.log = world.store.log();
    let other = Standby::open(arc(&world.store), "rooms/a", world.dir(1), take);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::ResourceBusy);
    std::fs::remove_dir(&full).unwrap();
    let second = takes(second);
    assert_eq!(read(&second, "g").unwrap(), b"of the first");
    write(&second, "h", b"of the second").unwrap();
}

/// The disk is full just when the begin is there: what was noted before it says enough.
#[test]
fn a_standby_that_began_serves_the_room_though_its_disk_is_full() {
    let world = World::new();
    let first = world.writer(with_lease(LONG));
    let mut take = with_lease(LONG);
    take.take_over = true;
    let second = standby(&world.store, world.dir(1), take);
    let full = world.dir(1).join("writer.new");
    let second = std::thread::scope(|scope| {
        world.store.hold_next();
        let taking = scope.spawn(|| takes(second));
        while !world.store.is_holding() {
            std::thread::yield_now();
        }
        std::fs::create_dir(&full).unwrap();
        world.store.let_go();
        taking.join().unwrap()
    });
    write(&second, "g", b"of the second").unwrap();
    second.die();
    drop((first, second));
    std::fs::remove_dir(&full).unwrap();
    // Its machine knows the begin as its own.
    let storage = crate::made::open(&world.store, world.dir(1), polite()).unwrap();
    assert_eq!(read(&storage, "g").unwrap(), b"of the second");
}

/// It waited for ever: nobody had promised a heartbeat, and the note of its own machine was not understood.
#[test]
fn a_standby_takes_the_place_of_a_command_of_its_machine_that_was_killed_as_it_began() {
    let world = World::new();
    drop(create(&world.store, world.dir(0), options()).unwrap());
    let full = world.dir(0).join("writer.new");
    let killed = std::thread::scope(|scope| {
        world.store.hold_next();
        let opening = scope.spawn(|| crate::made::open(&world.store, world.dir(0), options()));
        while !world.store.is_holding() {
            std::thread::yield_now();
        }
        // What is noted once the begin is there is not noted any more.
        std::fs::create_dir(&full).unwrap();
        world.store.let_go();
        opening.join().unwrap().unwrap()
    });
    killed.die();
    drop(killed);
    std::fs::remove_dir(&full).unwrap();
    let mut here = standby(&world.store, world.dir(0), with_lease(LONG));
    assert!(here.look().unwrap().is_some());
}

#[test]
fn of_two_that_wait_one_begins() {
    let world = World::new();
    let first = world.writer(with_lease(LONG));
    let mut waiting = [1, 2].map(|n| standby(&world.store, world.dir(n), with_lease(LONG)));
    for standby in &mut waiting {
        assert!(standby.look().unwrap().is_none());
    }
    drop(first);
    let began: Vec<BucketStorage> = std::thread::scope(|scope| {
        let looks = waiting.each_mut().map(|one| {
            scope.spawn(|| {
                let first = one.look().unwrap();
                // Who was slower sees who was faster.
                first.or_else(|| one.look().unwrap())
            })
        });
        looks
            .into_iter()
            .filter_map(|look| look.join().unwrap())
            .collect()
    });
    assert_eq!(began.len(), 1);
    began[0].prove().unwrap();
}

#[test]
fn a_turn_that_is_left_to_others_is_over_when_one_took_it() {
    let world = World::new();
    drop(world.writer(with_lease(LONG)));
    let mut yielding = standby(&world.store, world.dir(1), with_lease(LONG));
    yielding.yields(LONG);
    assert!(yielding.look().unwrap().is_none());
    let other = takes(standby(&world.store, world.dir(2), with_lease(LONG)));
    assert!(yielding.look().unwrap().is_none());
    drop(other);
    assert!(yielding.look().unwrap().is_some());
}

#[test]
fn heartbeats_do_not_pile_up() {
    let world = World::new();
    let mut often = with_lease(Duration::from_millis(30));
    often.checkpoint_commits = 5;
    often.grace = Duration::ZERO;
    let writer = world.writer(often);
    // An idle writer: nothing but heartbeats.
    let first = writer.requests();
    let sent = |now: strongroom_bucket::Requests| now.puts + now.log - first.puts - first.log;
    while sent(writer.requests()) < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
    if !world.store.has_log() {
        let kept = list(&world.store, "rooms/a/commits");
        assert!(kept.len() < 30, "{} are kept", kept.len());
    }
}
