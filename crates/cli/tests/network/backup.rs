//! A shared room is backed up by its metadata server while clients work, and restored without any server.

use std::thread;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Shape, synced};
use super::common::{listing, make_tree, noise};
use super::copies::{assert_restores, beside_a_writer, check, in_copy, lose_all};

/// What failed: "a backup of a room on network disks: copy its files through a mount", although the docs said to back it up.
#[test]
fn a_shared_room_is_backed_up_while_it_is_served() {
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    make_tree(&one.join("tree"));
    synced(&one.join("early"), &noise(3_000_000, 1));
    beside_a_writer(&other, || {
        for round in 0..4_u64 {
            let name = format!("before{round}");
            let bytes = noise(200_000, 100 + round);
            synced(&one.join(&name), &bytes);
            cluster.ok(&["backup", "room", "copy"]);
            // As a room of its own, with its data in its directory.
            assert!(in_copy(&cluster, &name) == bytes, "round {round}");
            check(&cluster, "copy");
        }
    });
    rustix::fs::sync();
    let wanted = listing(&one);
    cluster.ok(&["backup", "room", "copy"]);
    // Only what is new. A segment of which positions are still granted is copied again, until its clients have discarded their grants.
    let kept = || {
        let report = cluster.ok(&["backup", "room", "copy", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["segments_kept"].as_u64().unwrap() > 0
    };
    let long = Instant::now() + Duration::from_secs(120);
    while !kept() {
        assert!(Instant::now() < long, "no backup keeps a segment");
        thread::sleep(Duration::from_secs(1));
    }
    lose_all(&mut cluster);
    assert_restores(&cluster, &wanted);
}
