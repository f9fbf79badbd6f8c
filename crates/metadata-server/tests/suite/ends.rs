//! A server's incarnation that has failed ends, with all that it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{World, credential, until};
use metadata_server::server::{Beside, Config, InDirectory, MetadataServer};
use room::OpenOptions;
use storage::HostStorage;
use storage::testing::FaultyStorage;

/// A suspended command kept the room of an incarnation that had failed: nobody was served, and later its threads and those of the next
/// incarnation took the disks from each other.
#[test]
fn a_backup_that_waits_for_its_command_does_not_keep_a_failed_room() {
    let world = World::new(1);
    let target = tempfile::tempdir().unwrap();
    let storage = FaultyStorage::new(HostStorage::open(target.path()).unwrap());
    let waits = Arc::new(AtomicBool::new(false));
    let interrupted = Arc::new(AtomicBool::new(false));
    let (waiting, over) = (waits.clone(), interrupted.clone());
    storage.observe(move |_| {
        waiting.store(true, Ordering::SeqCst);
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    std::thread::scope(|scope| {
        let interrupt = || interrupted.store(true, Ordering::SeqCst);
        let (server, storage) = (world.server(), Arc::new(storage));
        let at = target.path();
        let backup = scope.spawn(move || server.backup(storage, at, &|_, _| true, &interrupt));
        until("it waits", || waits.load(Ordering::SeqCst));
        server.fail_for_test();
        until("the room is open again", || {
            server.metrics().reopened == 1 && server.is_serving()
        });
        backup.join().unwrap().unwrap_err();
    });
}

/// Its threads went on looking after the disks.
#[test]
fn a_server_that_cannot_start_leaves_the_disks_alone() {
    let mut world = World::new(1);
    world.stop();
    let mut config = Config::new(world.room_dir());
    config.open = OpenOptions::with_state_dir(world.path().join("state"));
    let open = config.open.clone();
    let beside = Beside::open(&world.room_dir(), &credential(), open, &InDirectory).unwrap();
    beside.room.set_note("metadata.admins", b"no list").unwrap();
    drop(beside);
    MetadataServer::start(config, credential()).unwrap_err();
    // A disk that starts has no group until somebody sets one, as who looks after it does within a second or two.
    let disk = &mut world.disks[0];
    disk.stop();
    disk.start();
    std::thread::sleep(Duration::from_secs(4));
    let key = disk.keys.key.clone();
    let admin = netdisk::Admin::new(disk.address(), key, Duration::from_secs(5));
    assert_eq!(admin.status().unwrap().groups, []);
}
