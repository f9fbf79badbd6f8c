//! The audit log of a server that is mounted: what it says, and that changes of it are found.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Output;

use super::cluster::{Cluster, Shape, client, synced};
use super::common::words;

#[test]
fn the_log_of_a_mount_names_no_file_and_verifies_until_it_is_changed() {
    let Some(mut cluster) = Cluster::start(Shape::small()) else {
        return;
    };
    let file = cluster.mountpoint(0).join("secret-plan");
    // Data that is not durable when the server is killed is committed again, by then without an open file.
    synced(&file, b"contents");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let number = file.metadata().unwrap().ino().to_string();
    assert_eq!(fs::read(&file).unwrap(), b"contents");
    fs::remove_file(&file).unwrap();
    administer(&cluster);
    let status = cluster.ok(&["metadata", "status", "room", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let entries = status["audit_entries"].as_u64().unwrap().to_string();
    cluster.kill_server();
    cluster.start_server();
    cluster.stop_client(0);
    cluster.stop_server();
    cluster.check_audit();
    let verify = ["audit", "verify", "audit", "--key", "audit.key"];
    cluster.ok(&[&verify[..], &["--entries", &entries]].concat());
    let shown = |more: &[&str]| cluster.ok(&[&["audit", "show", "audit"], more].concat());
    for (event, times) in [
        ("open", 2),
        ("rights-changed", 1),
        ("removed", 1),
        ("unopened", 0),
    ] {
        let lines = shown(&["--event", event, "--inode", &number, "--user", "root"]);
        assert_eq!(lines.lines().count(), times, "{event}: {lines}");
    }
    let removed = shown(&["--event", "user-removed"]);
    assert!(removed.contains("by=administrator carol"), "{removed}");
    let quota = shown(&["--event", "quota-set"]);
    assert!(quota.contains("bytes=10485760 files=7"), "{quota}");
    let all = shown(&["--json"]);
    assert!(!all.contains("secret-plan"));
    assert!(all.contains("\"event\":\"session-begin\""));
    let log = cluster.path("audit").join("audit.00000001.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replace("\"0640\"", "\"0600\"")).unwrap();
    let done = cluster.command("server", &verify).output().unwrap();
    assert_eq!(done.status.code(), Some(5));
}

/// An administrator works over the network, and cannot mount.
fn administer(cluster: &Cluster) {
    let add = words("user add room carol --admin --out carol.identity");
    cluster.ok(&add);
    let server = format!("strongroom://{}/", cluster.server_address());
    let as_carol = |command: &[&str]| {
        let identity = ["--identity", "carol.identity"];
        let all = [command, &identity[..]].concat();
        cluster.command(&client(0), &all).output().unwrap()
    };
    let listed = as_carol(&["user", "list", &server]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("carol  administrator"), "{listed}");
    let disks = as_carol(&["disk", "list", &server]);
    assert!(disks.status.success() && !disks.stdout.is_empty());
    let victim = listed
        .lines()
        .find(|line| !line.contains("administrator") && !line.starts_with("root"));
    let victim = victim.unwrap().split(' ').next().unwrap();
    let quota = ["user", "quota", &server, victim, "10MiB", "--files", "7"];
    assert!(as_carol(&quota).status.success());
    let listed = cluster.ok(&["user", "list", "room"]);
    assert!(listed.contains("of 10.00 MiB and 7 files"), "{listed}");
    let wrong = as_carol(&["user", "quota", &server, victim, "much"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        as_carol(&["user", "remove", &server, victim])
            .status
            .success()
    );
    keep_snapshots(&as_carol, &server);
    // Keys are made on the server's machine alone.
    let add = as_carol(&[
        "user", "add", &server, "eve", "--uid", "7", "--gid", "7", "--out", "e",
    ]);
    assert_eq!(add.status.code(), Some(2));
    fs::create_dir(cluster.path("mnt-carol")).unwrap();
    let mount = as_carol(&["mount", &server, "mnt-carol"]);
    assert!(!mount.status.success());
}

/// Snapshots are the administrator's too; names of files are not.
fn keep_snapshots(as_carol: &dyn Fn(&[&str]) -> Output, server: &str) {
    let ask = |command: &[&str], code: i32| {
        let (verb, rest) = command.split_first().unwrap();
        let done = as_carol(&[&["snapshot", verb, server], rest].concat());
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(done.status.code(), Some(code), "{command:?}: {text}");
        text
    };
    assert_eq!(ask(&["create", "by-carol"], 0), "by-carol\n");
    assert!(ask(&["create", "by-carol"], 1).contains("there is a snapshot by-carol already"));
    assert!(ask(&["show", "by-carol"], 0).contains("by hand"));
    ask(&["rename", "by-carol", "of-carol"], 0);
    assert!(ask(&["list"], 0).contains("of-carol"));
    assert!(ask(&["prune"], 1).contains("has no snapshot policy"));
    ask(&["diff", "of-carol"], 2);
    ask(&["restore", "of-carol", "/"], 2);
    ask(&["delete", "of-carol"], 0);
    let missing = ask(&["delete", "of-carol"], 1);
    assert!(
        missing.contains("there is no snapshot of-carol"),
        "{missing}"
    );
    let policy = |command: &[&str]| {
        let done = as_carol(&[&["snapshot", "policy"], command].concat());
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    policy(&["set", server, "--daily", "7"]);
    assert!(policy(&["show", server]).contains("daily     7"));
    policy(&["clear", server]);
    assert_eq!(policy(&["show", server]), "no policy\n");
}
