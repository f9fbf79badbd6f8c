//! A disk is one room's. Two rooms that were given the same disk wrote to the same blocks, each within its own rights: what the one had
//! synced became noise when the other one wrote, and nobody was warned.

use crate::common::{Disk, ROOT, World, until};
use metadata_server::enrol::{self, EnrolError};
use metadata_server::server::ServerError;
use netdisk::{Admin, GroupId};
use room::FileKind;

fn is_refused<T>(done: Result<T, ServerError>) -> bool {
    matches!(done, Err(ServerError::Enrol(EnrolError::OtherRoom(_))))
}

fn groups(disk: &Disk) -> Vec<GroupId> {
    let enrol::Disk { address, key, .. } = disk.enrolled();
    let admin = Admin::new(address, key, crate::common::LONG);
    admin.status().unwrap().groups
}

#[test]
fn a_disk_of_another_room_is_refused_until_that_releases_it() {
    let mut one = World::new(2);
    let alice = one.client("alice", 0, &[0]);
    let file = alice.make(ROOT, "f", FileKind::Regular, 0o644).unwrap().no;
    alice.write(&one, file, b'a');
    let shared = one.disks[0].enrolled();
    let mut two = World::new(1);
    let disk = enrol::Disk {
        name: "other".into(),
        ..shared.clone()
    };
    assert!(is_refused(two.server().add_disk(disk.clone())));
    // While no server of the first room runs, too.
    one.stop();
    assert!(is_refused(two.server().add_disk(disk.clone())));
    // One that does not answer is not used when it does.
    let name = one.disks[0].name.clone();
    one.disks[0].stop();
    two.server().add_disk(disk.clone()).unwrap();
    one.disks[0].start();
    let there = || two.server().disks().unwrap_or_default().into_iter();
    until("it answers", || {
        there().any(|it| it.name == "other" && it.reachable)
    });
    assert_eq!(groups(&one.disks[0]), []);
    two.server().remove_disk("other").unwrap();
    two.stop();
    // The first room goes on, and releases it.
    one.start();
    let alice = one.client("alice", 0, &[0]);
    let map = alice.map(file).unwrap();
    assert_eq!(alice.read_by(&one, &map).unwrap(), b'a');
    one.server().remove_disk(&name).unwrap();
    until("it is empty", || {
        let mut left = one.server().disks().unwrap_or_default().into_iter();
        !left.any(|it| it.name == name)
    });
    two.start();
    two.server().add_disk(disk).unwrap();
    until("it is used", || !groups(&one.disks[0]).is_empty());
}
