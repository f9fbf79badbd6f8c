//! A disk that a server has not reached may still accept what was given before: by an earlier server, or by this one when the disk had
//! another address. Nobody knows what that is, so it is waited for.

use std::time::{Duration, Instant};

use crate::common::{Disk, LONG, ROOT, Raw, World, people, port, to_copy, to_unlink, until};
use metadata_proto::admin::Ended;
use metadata_proto::rpc::*;
use metadata_server::enrol;
use metadata_server::server::ServerError;
use room::{FileKind, InodeNo, NewSnapshot, SetAttr};

/// A disk, where nothing answers.
fn elsewhere(disk: &Disk) -> enrol::Disk {
    let mut disk = disk.enrolled();
    disk.address.address = format!("127.0.0.1:{}", port::fixed_port());
    disk
}

/// Takes a file from everybody else.
fn only_owner(no: InodeNo) -> Change {
    let set = SetAttr::mode(0o600);
    Change::SetAttributes { no, set }
}

/// The same, asked for as the same change each time.
fn private(alice: &Raw, no: InodeNo) -> Reply<Changed> {
    alice.change_by(3, 1, only_owner(no))
}

#[test]
fn what_an_earlier_server_gave_is_waited_for_where_a_disk_was_not_reached() {
    // There is space on another disk.
    let mut world = World::new(2);
    let alice = world.client("alice", 0, &[0]);
    let bob = world.client("bob", 1001, &[1001]);
    let make = |name| alice.make(ROOT, name, FileKind::Regular, 0o644).unwrap().no;
    let (file, copy, gone) = (make("f"), make("copy"), make("gone"));
    alice.write(&world, file, b'a');
    let map = bob.map(file).unwrap();
    let disk = world.disk(&map.tickets[0]);
    // It ends without the disk, as one that is killed.
    world.server().add_disk(elsewhere(disk)).unwrap();
    let disk = disk.enrolled();
    world.stop();
    world.change = |config| {
        config.disks.clear();
        config.timing.revocation_timeout = Duration::from_secs(1);
    };
    world.start();
    let carol = world.client("carol", 1002, &[1002]);
    let alice = Raw::connect(&world, alice.identity.clone(), None).unwrap();
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');

    // Bob has no session here.
    let waits = Err(Refusal::NotNow(Delay::Disk));
    assert_eq!(private(&alice, file), waits);
    let unlink = to_unlink(ROOT, "gone");
    assert_eq!(alice.change_by(1, 1, unlink.clone()), waits);
    let share = to_copy(file, 0, copy, 0, 4096);
    assert_eq!(alice.change_by(2, 1, share.clone()), waits);
    let snapshot = || {
        world.server().change_snapshots(None, |room| {
            room.create_snapshot("s", NewSnapshot::default())
        })
    };
    assert!(matches!(snapshot(), Err(ServerError::StillWritable)));
    let removed = world.server().remove_user("bob").unwrap();
    assert_eq!(removed, Ended::ButOnDisks);
    // What takes nothing away goes on, and so does the end of what this server began, and all of files that are newer.
    let make = |name| alice.make(ROOT, name, FileKind::Regular, 0o644).unwrap().no;
    let (new, shared) = (make("new"), make("shared"));
    alice.write(&world, new, b'n');
    alice.change_by(4, 1, only_owner(new)).unwrap();
    let share_new = to_copy(new, 0, shared, 0, 4096);
    alice.change_by(5, 1, share_new).unwrap();
    let unlink_new = to_unlink(ROOT, "new");
    alice.change_by(6, 1, unlink_new).unwrap();
    carol
        .ask(|c, x, s| async move { c.bye(x, s).await })
        .unwrap()
        .unwrap();
    until("the session is over", || {
        let all = world.server().sessions().unwrap();
        all.iter().all(|(_, name)| name != "carol")
    });
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');

    world.server().add_disk(disk).unwrap();
    for (slot, sequence, change) in [(1, 1, unlink), (2, 1, share)] {
        until("an answer", || {
            alice.change_by(slot, sequence, change.clone()).is_ok()
        });
    }
    private(&alice, file).unwrap();
    snapshot().unwrap().unwrap();
    assert!(bob.read_by(&world, &map).is_err());
    assert!(alice.attributes(gone).is_err());
}

#[test]
fn what_was_given_is_revoked_at_a_disk_whose_address_was_changed_to_a_wrong_one() {
    let (world, _, alice, bob, d) = people(LONG);
    let file = alice.make(d, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&world, file, b'a');
    let map = bob.map(file).unwrap();
    world.server().add_disk(elsewhere(&world.disks[0])).unwrap();
    let waits = Err(Refusal::NotNow(Delay::Disk));
    assert_eq!(private(&alice, file), waits);
    assert_eq!(
        world.server().remove_user("bob").unwrap(),
        Ended::ButOnDisks
    );
    assert_eq!(bob.read_by(&world, &map).unwrap(), b'a');
    world.server().add_disk(world.disks[0].enrolled()).unwrap();
    private(&alice, file).unwrap();
    assert!(bob.read_by(&world, &map).is_err());
}

/// Each session was waited for by itself, one after the other, and nothing else could be administered meanwhile.
#[test]
fn the_removal_of_a_user_waits_for_a_disk_once_for_all_sessions() {
    const SESSIONS: u32 = 10;
    let timeout = Duration::from_secs(3);
    let mut world = World::new(1);
    world.stop();
    world.change = |config| config.timing.revocation_timeout = Duration::from_secs(3);
    world.start();
    let bob = world.client("bob", 1001, &[1001]);
    let connect = |_| Raw::connect(&world, bob.identity.clone(), None).unwrap();
    let _others: Vec<Raw> = (1..SESSIONS).map(connect).collect();
    world.server().add_disk(elsewhere(&world.disks[0])).unwrap();
    let begun = Instant::now();
    let removed = world.server().remove_user("bob").unwrap();
    assert_eq!(removed, Ended::ButOnDisks);
    let took = begun.elapsed();
    assert!(took < timeout * SESSIONS, "{took:?}");
}
