//! Changes of users and disks where there is no space for the room's files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, Raw, World, credential, until};
use metadata_server::enrol::EnrolError;
use metadata_server::server::{
    Config, InDirectory, MetadataServer, OpenFiles, RoomFiles, ServerError, Turn,
};
use parking_lot::Mutex;
use room::{Error, FileKind, OpenOptions, Room};
use storage::Storage;
use storage::testing::{Fault, FaultyStorage, Op, Times};

type Faulty = Arc<FaultyStorage<Arc<dyn Storage>>>;

/// A room's files on a disk that can be full.
#[derive(Debug, Clone, Default)]
struct OnFullDisk(Arc<Mutex<Option<Faulty>>>);

impl RoomFiles for OnFullDisk {
    fn open(&self, dir: &Path, turn: &Turn<'_>) -> io::Result<OpenFiles> {
        let opened = InDirectory.open(dir, turn)?;
        let storage = Arc::new(FaultyStorage::new(opened.storage));
        *self.0.lock() = Some(storage.clone());
        Ok(OpenFiles { storage, ..opened })
    }
}

impl OnFullDisk {
    /// From now on commits find no space, and the record of the log after so many more writes does not either.
    fn fill(&self, world: &World, writes: u64) {
        let storage = self.0.lock().clone().unwrap();
        storage.refuse(Op::Allocate, 1, Fault::NoSpace, Times::Always);
        // What was reserved for a commit is used up: by large changes while they are taken, then by small ones.
        for (from, len) in [(0, 100_000), (100, 5_000)] {
            for at in from..from + 40 {
                let change = |room: &Room| room.set_note(&format!("filler {at}"), &vec![0; len]);
                let _ = world.server().with_snapshots(change).unwrap();
            }
        }
        storage.refuse(Op::Write, writes + 1, Fault::NoSpace, Times::Once);
    }

    fn clear(&self) {
        self.0.lock().clone().unwrap().heal();
    }
}

fn world(disks: usize) -> (World, OnFullDisk) {
    let mut world = World::new(disks);
    world.stop();
    let files = OnFullDisk::default();
    let mut config = Config::new(world.room_dir());
    config.open = OpenOptions {
        state_dir: Some(world.path().join("state")),
        // The tests say themselves when something is made durable.
        commit_interval_ms: 600_000,
        ..OpenOptions::default()
    };
    config.lease = LONG;
    config.flush_timeout = Duration::from_secs(5);
    config.files = Arc::new(files.clone());
    world.server = Some(MetadataServer::start(config, credential()).unwrap());
    (world, files)
}

fn is_full<T>(done: &Result<T, ServerError>) -> bool {
    matches!(
        done,
        Err(ServerError::Enrol(EnrolError::Room(Error::NoSpace)))
    )
}

fn is_out(world: &World, client: &Raw) -> bool {
    let asked = client.ask(|c, x, s| async move { c.attributes(x, s, room::InodeNo::ROOT).await });
    !matches!(asked, Ok(Ok(_))) && Raw::connect(world, client.identity.clone(), None).is_err()
}

/// The user stayed in, and could not be removed any more: there was no such user.
#[test]
fn a_user_who_is_removed_while_there_is_no_space_is_out() {
    let (world, files) = world(1);
    let alice = world.client("alice", 0, &[0]);
    let bob = world.client("bob", 1001, &[1001]);
    let made = alice.make(room::InodeNo::ROOT, "f", FileKind::Regular, 0o644);
    let no = made.unwrap().no;
    alice.write(&world, no, b'a');
    let map = bob.map(no).unwrap();
    files.fill(&world, 0);
    let removed = world.server().remove_user("bob");
    assert!(is_full(&removed), "{removed:?}");
    assert!(is_out(&world, &bob));
    assert!(bob.read_by(&world, &map).is_err());
    // It is not durable yet.
    files.fill(&world, 0);
    let again = world.server().remove_user("bob");
    assert!(is_full(&again), "{again:?}");
    files.clear();
    let again = world.server().remove_user("bob");
    assert!(matches!(
        again,
        Err(ServerError::Enrol(EnrolError::Unknown(_)))
    ));
    alice.attributes(no).unwrap();
}

#[test]
fn keys_that_end_with_a_rotation_end_while_there_is_no_space() {
    let (world, files) = world(1);
    let bob = world.client("bob", 1001, &[1001]);
    world.server().rotate_authority().unwrap();
    files.fill(&world, 0);
    let finished = world.server().finish_rotation(true);
    assert!(is_full(&finished), "{finished:?}");
    assert!(is_out(&world, &bob));
    files.clear();
    world.server().finish_rotation(true).unwrap();
}

#[test]
fn a_disk_that_is_removed_while_there_is_no_space_is_forgotten_later() {
    let (world, files) = world(2);
    // That it is to be emptied is stored.
    files.fill(&world, 2);
    world.server().remove_disk("disk1").unwrap_err();
    files.clear();
    until("the disk is forgotten", || {
        world.server().disks().unwrap().len() == 1
    });
}
