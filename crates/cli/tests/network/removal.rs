//! A disk that is taken from the room while clients use it, and a server that is killed meanwhile.

use std::fs;

use super::cluster::{Cluster, Shape, disk, synced};
use super::common::noise;
use super::process::until;
use super::seed;

const FILES: u64 = 40;
const FILE_LEN: usize = 8 << 20;

/// Bytes still to be moved from a disk; `None`: it is no disk of the room.
fn left(cluster: &Cluster, name: &str) -> Option<u64> {
    let list = cluster.ok(&["disk", "list", "room", "--json"]);
    let disks: serde_json::Value = serde_json::from_str(&list).unwrap();
    let disks = disks.as_array().unwrap();
    let it = disks.iter().find(|disk| disk["name"] == name)?;
    Some(it["leaving"].as_u64().expect("the disk is being emptied"))
}

#[test]
fn a_disk_is_emptied_through_kills_of_the_server_and_every_file_reads_back_without_it() {
    let seed = seed();
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let root = cluster.mountpoint(0);
    let bytes = |n: u64| noise(FILE_LEN, seed.wrapping_add(n));
    for n in 0..FILES {
        synced(&root.join(n.to_string()), &bytes(n));
    }
    let mut writer = cluster.start_writer(1, seed, 0);
    writer.goes_on(3);
    let victim = disk(0);
    cluster.ok(&["disk", "remove", "room", &victim]);
    let mut in_the_middle = 0;
    for _ in 0..3 {
        let Some(before) = left(&cluster, &victim) else {
            break;
        };
        until("something is moved", || {
            left(&cluster, &victim).is_none_or(|now| now < before)
        });
        cluster.kill_server();
        cluster.start_server();
        // Nobody asked again.
        in_the_middle += u64::from(left(&cluster, &victim).is_some_and(|bytes| bytes > 0));
    }
    assert!(in_the_middle > 0, "no kill came while data was moved");
    writer.goes_on(3);
    until("the disk is empty", || left(&cluster, &victim).is_none());
    cluster.kill_disk(0);
    writer.goes_on(3);
    writer.stop();
    for client in 0..2 {
        cluster.judge(seed, 1, client, true).unwrap();
        cluster.stop_client(client);
        cluster.start_client(client);
    }
    for n in 0..FILES {
        let found = fs::read(cluster.mountpoint(0).join(n.to_string())).unwrap();
        assert!(found == bytes(n), "seed {seed}: file {n} is another one");
    }
    cluster.judge(seed, 1, 0, true).unwrap();
}
