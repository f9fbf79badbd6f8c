//! What tests of copies of a shared room have in common, whether backups or replicas: the copy is the directory `copy`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::cluster::{Cluster, synced};
use super::common::{listing, noise};

/// Does something while a client writes files below `at`, again and again: to segments that a copy has already.
pub fn beside_a_writer(at: &Path, work: impl FnOnce()) {
    /// The writer ends with this, also where the work fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                let bytes = noise(50_000 + round, round as u64);
                synced(&at.join(format!("w{}", round % 20)), &bytes);
                round += 1;
            }
        });
        let stopping = Stop(&stop);
        work();
        drop(stopping);
        writer.join().unwrap();
    });
}

/// What a file is in the copy. Nothing but the passphrase is needed.
#[track_caller]
pub fn in_copy(cluster: &Cluster, path: &str) -> Vec<u8> {
    let place = format!("copy:/{path}");
    let args = ["cat", &place, "--passphrase-file", "pass"];
    let found = cluster.command("server", &args).output().unwrap();
    assert!(found.status.success(), "{found:?}");
    found.stdout
}

/// Reads and checks everything in a copy.
pub fn check(cluster: &Cluster, copy: &str) {
    cluster.ok(&["check", copy, "--read-data", "--passphrase-file", "pass"]);
}

/// The disks are lost, and the metadata server's machine with them.
pub fn lose_all(cluster: &mut Cluster) {
    for client in 0..2 {
        cluster.stop_client(client);
    }
    cluster.stop_server();
    for disk in 0..2 {
        cluster.kill_disk(disk);
    }
}

/// Restores the copy, and compares what a mount of it shows.
pub fn assert_restores(cluster: &Cluster, wanted: &[String]) {
    cluster.ok(&["restore", "copy", "restored", "--passphrase-file", "pass"]);
    fs::create_dir(cluster.path("again")).unwrap();
    cluster.ok(&["mount", "restored", "again", "--passphrase-file", "pass"]);
    let found = listing(&cluster.path("again"));
    cluster.ok(&["umount", "again"]);
    assert_eq!(found, wanted);
}
