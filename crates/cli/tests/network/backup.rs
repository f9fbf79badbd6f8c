//! A shared room is backed up by its metadata server while clients work, and restored without any server.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Shape, synced};
use super::common::{can_mount, is_root, listing, make_tree, noise};

/// What failed: "a backup of a room on network disks: copy its files through a mount", although the docs said to back it up.
#[test]
fn a_shared_room_is_backed_up_while_it_is_served() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut cluster = Cluster::start(Shape::default());
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    make_tree(&one.join("tree"));
    synced(&one.join("early"), &noise(3_000_000, 1));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Each round adds blocks to segments that the backup has copied already.
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                synced(
                    &other.join(format!("w{}", round % 20)),
                    &noise(50_000 + round, round as u64),
                );
                round += 1;
            }
        });
        for round in 0..4_u64 {
            let name = format!("before{round}");
            let bytes = noise(200_000, 100 + round);
            synced(&one.join(&name), &bytes);
            cluster.ok(&["backup", "room", "copy"]);
            let args = ["cat", &format!("copy:/{name}"), "--passphrase-file", "pass"];
            // As a room of its own, with its data in its directory.
            let found = cluster.command("server", &args).output().unwrap();
            assert!(
                found.stdout == bytes,
                "round {round}: {}",
                String::from_utf8_lossy(&found.stderr)
            );
            cluster.ok(&["check", "copy", "--read-data", "--passphrase-file", "pass"]);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
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
    for client in 0..2 {
        cluster.stop_client(client);
    }
    cluster.stop_server();
    for disk in 0..2 {
        cluster.kill_disk(disk);
    }
    // The disks are lost, and the metadata server's machine with them.
    cluster.ok(&["restore", "copy", "restored", "--passphrase-file", "pass"]);
    fs::create_dir(cluster.path("again")).unwrap();
    cluster.ok(&["mount", "restored", "again", "--passphrase-file", "pass"]);
    let found = listing(&cluster.path("again"));
    cluster.ok(&["umount", "again"]);
    assert_eq!(found, wanted);
}
