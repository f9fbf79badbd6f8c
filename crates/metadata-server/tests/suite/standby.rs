//! One of several servers of a room: what it does while another one may have the room, and after that took it.

use crate::common;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{LONG, World, lock, until};
use metadata_proto::rpc::{Delay, Refusal};
use metadata_server::server::{
    Config, Fence, MetadataServer, OpenFiles, RoomFiles, ServerError, Turn,
};
use netdisk::Writer;
use room::{FileKind, InodeNo, LockKind, LockOwner, LockTable, OpenOptions};
use storage::HostStorage;

/// The room's directory, as if several servers had it; the test says which.
#[derive(Debug, Default)]
struct Place {
    /// Another server has the room.
    taken: AtomicBool,
    /// Another server may have it.
    doubtful: AtomicBool,
    /// This one was overtaken.
    lost: AtomicBool,
    proofs: AtomicU64,
    openings: AtomicU64,
    yielded: AtomicBool,
}

#[derive(Debug, Clone, Default)]
struct Several(Arc<Place>);

#[derive(Debug)]
struct Numbered(Arc<Place>, u64);

impl RoomFiles for Several {
    fn open(&self, dir: &Path, turn: &Turn<'_>) -> io::Result<OpenFiles> {
        let yields = !turn.yields.is_zero();
        self.0.yielded.store(yields, Ordering::SeqCst);
        while self.0.taken.load(Ordering::SeqCst) {
            if (turn.stops)() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.lost.store(false, Ordering::SeqCst);
        let number = self.0.openings.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(OpenFiles {
            storage: Arc::new(HostStorage::open(dir)?),
            fence: Arc::new(Numbered(self.0.clone(), number)),
        })
    }
}

impl Fence for Numbered {
    fn writer(&self) -> Writer {
        Writer(self.1)
    }

    fn prove(&self) -> io::Result<()> {
        self.0.proofs.fetch_add(1, Ordering::SeqCst);
        match self.0.lost.load(Ordering::SeqCst) {
            true => Err(io::Error::other("overtaken")),
            false => Ok(()),
        }
    }

    fn holds(&self) -> bool {
        !self.0.doubtful.load(Ordering::SeqCst)
    }

    fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::SeqCst)
    }
}

/// A world whose server is one of several.
fn world(disks: usize) -> (World, Arc<Place>) {
    let mut world = World::new(disks);
    world.stop();
    let files = Several::default();
    let mut config = Config::new(world.room_dir());
    config.open = OpenOptions::with_state_dir(world.path().join("state"));
    config.lease = LONG;
    config.flush_timeout = Duration::from_secs(5);
    config.files = Arc::new(files.clone());
    config.waits = true;
    let server = MetadataServer::start(config, common::credential()).unwrap();
    until("it serves", || server.is_serving());
    world.server = Some(server);
    (world, files.0)
}

#[test]
fn nothing_is_answered_while_another_server_may_have_the_room() {
    let (world, place) = world(1);
    let root = world.client("root", 0, &[0]);
    let no = root
        .make(InodeNo::ROOT, "f", FileKind::Regular, 0o644)
        .unwrap()
        .no;
    root.open(no, true, true).unwrap();
    // Locks are in memory, and so could be answered without a look at the room.
    let lock = lock(LockKind::Exclusive, 0, 9);
    let (table, owner) = (LockTable::Posix, LockOwner(1));
    let set_lock = || {
        root.ask(|c, x, s| async move { c.set_lock(x, s, no, table, owner, lock, false).await })
            .unwrap()
    };
    let test_lock = || {
        root.ask(|c, x, s| async move { c.test_lock(x, s, no, table, owner, lock).await })
            .unwrap()
    };
    set_lock().unwrap();
    place.doubtful.store(true, Ordering::SeqCst);
    let later = Refusal::NotNow(Delay::Reopening);
    assert_eq!(root.lookup(InodeNo::ROOT, "f").unwrap_err(), later);
    assert_eq!(root.heartbeat().unwrap_err(), later);
    assert_eq!(set_lock().unwrap_err(), later);
    assert_eq!(test_lock().unwrap_err(), later);
    // Not even that a name is not there.
    assert_eq!(root.lookup(InodeNo::ROOT, "g").unwrap_err(), later);
    assert!(common::Raw::connect(&world, root.identity.clone(), None).is_err());
    place.doubtful.store(false, Ordering::SeqCst);
    root.lookup(InodeNo::ROOT, "f").unwrap();
    root.heartbeat().unwrap();
}

#[test]
fn a_server_that_was_overtaken_waits_and_serves_again_when_the_room_is_free() {
    let (world, place) = world(1);
    let root = world.client("root", 0, &[0]);
    place.taken.store(true, Ordering::SeqCst);
    place.lost.store(true, Ordering::SeqCst);
    until("it is a standby", || world.server().is_standing_by());
    // It lets nobody in: its users may be those of before.
    assert!(common::Raw::connect(&world, root.identity.clone(), None).is_err());
    place.taken.store(false, Ordering::SeqCst);
    until("it serves", || world.server().is_serving());
    let again = common::Raw::connect(&world, root.identity.clone(), None).unwrap();
    assert_ne!(again.welcome.boot, root.welcome.boot);
    assert!(!place.yielded.load(Ordering::SeqCst));
}

#[test]
fn a_server_that_waits_stops_when_asked_to() {
    let (mut world, place) = world(1);
    place.taken.store(true, Ordering::SeqCst);
    place.lost.store(true, Ordering::SeqCst);
    until("it is a standby", || world.server().is_standing_by());
    world.stop();
}

#[test]
fn a_server_steps_down_for_another_one_and_leaves_the_room_to_it_for_a_moment() {
    let (world, place) = world(1);
    let root = world.client("root", 0, &[0]);
    place.taken.store(true, Ordering::SeqCst);
    world.server().step_down().unwrap();
    assert!(world.server().is_standing_by());
    until("the place is yielded", || {
        place.yielded.load(Ordering::SeqCst)
    });
    // Its connection is closed, so that it asks the other server at once.
    let asked = root.ask(|client, context, session| async move {
        client.attributes(context, session, InodeNo::ROOT).await
    });
    assert!(asked.is_err());
    assert!(world.server().step_down().is_err());
    place.taken.store(false, Ordering::SeqCst);
    until("it serves", || world.server().is_serving());
    let alone = World::new(1);
    assert!(matches!(
        alone.server().step_down(),
        Err(ServerError::NoStandby)
    ));
}

/// A restarted disk has forgotten which server is the later one.
#[test]
fn a_server_proves_that_it_is_the_only_one_before_it_sets_groups_on_a_restarted_disk() {
    let (mut world, place) = world(1);
    let before = place.proofs.load(Ordering::SeqCst);
    assert!(before > 0);
    world.disks[0].stop();
    world.disks[0].start();
    until("it is proved again", || {
        place.proofs.load(Ordering::SeqCst) > before
    });
}
