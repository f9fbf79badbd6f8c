//! A shared room is replicated by its metadata server while clients work; the replica needs neither server nor disks.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Shape, synced};
use super::common::{listing, make_tree, noise, words};
use super::copies::{assert_restores, beside_a_writer, check, in_copy, lose_all};
use super::process::until;

const LARGE: usize = 3_000_000;

/// Brings the replica up to date; the bytes that took.
fn replicate(cluster: &Cluster) -> u64 {
    let report = cluster.ok(&["replicate", "room", "copy", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["sent"].as_u64().unwrap()
}

/// Bytes of what a transfer has brought.
fn come(cluster: &Cluster) -> u64 {
    let parts = fs::read_dir(cluster.path("copy/segments"))
        .into_iter()
        .flatten()
        .flatten();
    let came = parts.filter(|part| part.file_name().to_string_lossy().ends_with(".incoming"));
    let came = came.filter_map(|part| part.metadata().ok());
    came.map(|part| part.blocks() * 512).sum()
}

/// Begins a transfer that would take a minute, or goes on with it; a part of it has come.
fn begin_slowly(cluster: &Cluster) -> Child {
    let before = come(cluster);
    let slow = ["replicate", "room", "copy", "--limit", "400KiB"];
    let mut slow = cluster.command("server", &slow);
    let slow = slow.stderr(Stdio::piped()).spawn().unwrap();
    until("a part has come", || come(cluster) > before + 100_000);
    slow
}

/// It says why it ended.
fn assert_stopped(mut command: Child) {
    assert_eq!(command.wait().unwrap().code(), Some(1));
    let mut why = String::new();
    command.stderr.unwrap().read_to_string(&mut why).unwrap();
    assert!(why.starts_with("strongroom: "), "{why}");
}

#[test]
fn a_shared_room_is_replicated_while_it_is_served() {
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    make_tree(&one.join("tree"));
    synced(&one.join("large"), &noise(LARGE, 1));
    assert!(replicate(&cluster) > LARGE as u64);
    beside_a_writer(&other, || {
        for round in 0..4_u64 {
            let name = format!("before{round}");
            let bytes = noise(200_000, 100 + round);
            synced(&one.join(&name), &bytes);
            replicate(&cluster);
            assert!(in_copy(&cluster, &name) == bytes, "round {round}");
            check(&cluster, "copy");
        }
    });

    // The server dies in the middle of a transfer, or ends in an orderly way. The next one goes on with it.
    let later = noise(24_000_000, 2);
    synced(&one.join("later"), &later);
    let slow = begin_slowly(&cluster);
    cluster.kill_server();
    assert_stopped(slow);
    cluster.start_server();
    let slow = begin_slowly(&cluster);
    let began = Instant::now();
    cluster.stop_server();
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it waited for the transfer"
    );
    assert_stopped(slow);
    cluster.start_server();
    replicate(&cluster);
    assert!(in_copy(&cluster, "later") == later);

    // A stream in a file, and what refuses one.
    cluster.ok(&["snapshot", "create", "room", "monday"]);
    cluster.ok(&["send", "room@monday", "--to", "monday.stream"]);
    cluster.ok(&["receive", "second", "--from", "monday.stream"]);
    check(&cluster, "second");
    let missing = ["send", "room@sunday", "--to", "sunday.stream"];
    let missing = cluster.command("server", &missing).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("there is no snapshot sunday"), "{said}");
    assert!(!cluster.path("sunday.stream").exists());

    rustix::fs::sync();
    let wanted = listing(&one);
    cluster.ok(&words("replicate room copy --apply --passphrase-file pass"));
    let sent = cluster.ok(&["audit", "show", "audit", "--event", "snapshot-sent"]);
    assert!(sent.lines().count() >= 7, "{sent}");
    lose_all(&mut cluster);
    // Only a server that serves has the disks.
    let unserved = ["replicate", "room", "copy", "--passphrase-file", "pass"];
    let unserved = cluster.command("server", &unserved).output().unwrap();
    assert_eq!(unserved.status.code(), Some(1), "{unserved:?}");
    assert_restores(&cluster, &wanted);
}
