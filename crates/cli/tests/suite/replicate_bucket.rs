//! `replicate` to a bucket of a real S3 server (versitygw), killed, put back, and used there.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::process::until;
use crate::common::setting::beside_a_bucket;
use crate::common::{Sandbox, noise};

const PLACE: &str = "s3://rooms/backup/work";
/// Where the S3 server has the bucket.
const BUCKET: &str = "store/rooms";

fn put(s: &Sandbox, name: &str, bytes: &[u8]) {
    std::fs::write(s.path("new"), bytes).unwrap();
    s.with_pass(["cp", "new", &format!("room:/{name}")]);
}

fn file_of(s: &Sandbox, place: &str) -> Vec<u8> {
    let ran = s.run(["cat", place, "--passphrase-file", "pass"]);
    assert_eq!(ran.code, 0, "{place}: {}", ran.err);
    ran.out
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let mut command = Command::new("cp");
    assert!(
        command
            .arg("-a")
            .args([from, to])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_replica_in_a_bucket_is_brought_up_to_date_read_restored_and_promoted() {
    beside_a_bucket(|s| {
        put(&s, "f", &noise(3_000_000, 5));
        s.with_pass(["replicate", "room", PLACE]);
        assert!(file_of(&s, &format!("{PLACE}:/f")) == noise(3_000_000, 5));
        put(&s, "later", b"later");
        s.with_pass(["replicate", "room", PLACE]);
        assert_eq!(s.with_pass(["ls", PLACE]), "f\nlater\n");
        s.with_pass(["check", "--read-data", PLACE]);
        let status = s.ok(["receive", PLACE, "--status"]);
        assert!(status.starts_with("moment      "), "{status}");
        // Nothing about the room is needed there but its key.
        let refused = s.fails(1, ["cp", "pass", &format!("{PLACE}:/no")]);
        assert!(refused.contains("is a replica"), "{refused}");
        s.with_pass(["receive", PLACE, "--status", "--verify"]);
        s.with_pass(["rm", "room:/f"]);
        s.with_pass(["replicate", "room", PLACE, "--apply"]);
        assert_eq!(s.with_pass(["ls", PLACE]), "later\n");
        s.with_pass(["restore", PLACE, "restored"]);
        assert_eq!(s.with_pass(["ls", "restored"]), "later\n");
        s.with_pass(["cp", "pass", "restored:/own"]);
        s.with_pass(["receive", PLACE, "--promote"]);
        s.with_pass(["cp", "pass", &format!("{PLACE}:/own")]);
        let refused = s.fails(1, ["replicate", "room", PLACE]);
        assert!(refused.contains("choose another prefix"), "{refused}");
        // The store saw none of it.
        let words = ["-raqE", "later|correct horse", BUCKET];
        let found = Command::new("grep")
            .current_dir(s.path(""))
            .args(words)
            .status();
        assert_eq!(found.unwrap().code(), Some(1));
    });
}

#[test]
fn a_replica_keeps_snapshots_that_the_room_has_deleted() {
    beside_a_bucket(|s| {
        put(&s, "f", b"monday");
        s.with_pass(["snapshot", "create", "room", "monday"]);
        let keep = ["replicate", "room", PLACE, "--keep", "30d"];
        s.with_pass(keep);
        put(&s, "f", b"tuesday");
        s.with_pass(["snapshot", "delete", "room", "monday"]);
        s.with_pass(keep);
        assert_eq!(file_of(&s, &format!("{PLACE}@monday:/f")), b"monday");
        assert_eq!(file_of(&s, &format!("{PLACE}:/f")), b"tuesday");
        s.with_pass(["replicate", "room", PLACE, "--keep", "30d", "--apply"]);
        assert_eq!(file_of(&s, &format!("{PLACE}@monday:/f")), b"monday");
        // Nothing is as young as that.
        std::thread::sleep(Duration::from_millis(1100));
        s.with_pass(["replicate", "room", PLACE, "--keep", "1s", "--apply"]);
        let names = s.with_pass(["snapshot", "list", PLACE]);
        assert!(!names.contains("monday"), "{names}");
        s.with_pass(["check", "--read-data", PLACE]);
    });
}

#[test]
fn a_killed_replication_to_a_bucket_goes_on() {
    beside_a_bucket(|s| {
        put(&s, "f", &noise(20_000_000, 5));
        let mut kills = 0;
        for turn in 0..12_u64 {
            let pass = ["--passphrase-file", "pass"];
            let mut command = s.command(["replicate", "room", PLACE].iter().chain(&pass));
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            // What the test holds does not depend on when that is.
            std::thread::sleep(Duration::from_millis(50 + (turn * 137) % 900));
            if child.try_wait().unwrap().is_none() {
                kills += 1;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let status = s.run(["receive", PLACE, "--status"]);
            if status.code == 0 && !status.text().contains("none yet") {
                assert!(file_of(&s, &format!("{PLACE}:/f")) == noise(20_000_000, 5));
            }
            if turn == 6 {
                put(&s, "later", &noise(3_000_000, 6));
            }
        }
        println!("{kills} of 12 were killed");
        s.with_pass(["replicate", "room", PLACE]);
        s.with_pass(["check", "--read-data", PLACE]);
        assert!(file_of(&s, &format!("{PLACE}:/f")) == noise(20_000_000, 5));
        assert!(file_of(&s, &format!("{PLACE}:/later")) == noise(3_000_000, 6));
    });
}

#[test]
fn a_bucket_that_was_put_back_is_refused_with_and_without_the_key() {
    beside_a_bucket(|s| {
        put(&s, "f", b"first");
        s.with_pass(["replicate", "room", PLACE]);
        copy(&s.path(BUCKET), &s.path("old"));
        put(&s, "f", b"second");
        s.with_pass(["replicate", "room", PLACE]);
        assert_eq!(file_of(&s, &format!("{PLACE}:/f")), b"second");
        std::fs::remove_dir_all(s.path("store/rooms/backup")).unwrap();
        copy(&s.path("old/backup"), &s.path(BUCKET));
        s.fails(8, ["ls", PLACE]);
        let refused = s.fails(8, ["replicate", "room", PLACE]);
        assert!(refused.contains("put back to an older state"), "{refused}");
        // Somebody who did that on purpose goes on in another place.
        s.with_pass(["replicate", "room", "s3://rooms/backup/again"]);
        let again = file_of(&s, "s3://rooms/backup/again:/f");
        assert_eq!(again, b"second");
    });
}

#[test]
fn of_two_machines_one_replicates() {
    beside_a_bucket(|s| {
        put(&s, "f", &noise(3_000_000, 5));
        let pass = ["--passphrase-file", "pass"];
        let slowly = ["replicate", "room", PLACE, "--limit", "200KiB"];
        let mut command = s.command(slowly.iter().chain(&pass));
        let slow = command.stderr(Stdio::piped()).spawn().unwrap();
        until("it writes to the bucket", || {
            s.path("store/rooms/backup/work/commits").exists()
        });
        // Another machine has another cache, and a replica of the room that it replicates.
        let other = ["receive", PLACE, "--cache", "other", "--from", "pass"];
        let refused = s.fails(4, other);
        assert!(refused.contains("--take-over"), "{refused}");
        // It is no stream; the place is taken over all the same.
        s.fails(1, other.iter().chain(&["--take-over"]));
        let ended = slow.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("another writer has taken over"), "{said}");
        s.with_pass(["replicate", "room", PLACE]);
        s.with_pass(["check", "--read-data", PLACE]);
    });
}

/// A command that only read, or failed, left it to a later one, which did not ask for it.
#[test]
fn a_place_is_taken_over_by_the_command_that_asks_for_it_and_no_later_one() {
    beside_a_bucket(|s| {
        put(&s, "f", &noise(3_000_000, 5));
        let pass = ["--passphrase-file", "pass"];
        let slowly = ["replicate", "room", PLACE, "--limit", "100KiB"];
        let mut command = s.command(slowly.iter().chain(&pass));
        let mut slow = command.stderr(Stdio::null()).spawn().unwrap();
        until("it writes to the bucket", || {
            s.path("store/rooms/backup/work/commits").exists()
        });
        s.run([
            "receive",
            PLACE,
            "--cache",
            "other",
            "--status",
            "--take-over",
        ]);
        assert!(s.path("other/take-over").exists(), "it was asked for");
        let other = ["receive", PLACE, "--cache", "other", "--from", "pass"];
        let refused = s.fails(4, other);
        assert!(refused.contains("--take-over"), "{refused}");
        assert!(slow.try_wait().unwrap().is_none(), "it goes on");
        slow.kill().unwrap();
        slow.wait().unwrap();
    });
}

/// The log that it named, or did not name, was remembered for the room that was there, which could not be opened any more.
#[test]
fn a_creation_at_a_place_that_is_taken_changes_nothing() {
    beside_a_bucket(|s| {
        s.with_pass(["replicate", "room", PLACE]);
        let create = ["create", PLACE];
        s.fails(1, create);
        let log = ["--log", "etcd://127.0.0.1:1/x", "--store-timeout", "1"];
        s.fails(1, create.iter().chain(&log));
        assert_eq!(s.with_pass(["ls", PLACE]), "");
    });
}

#[test]
fn a_mounted_room_is_replicated_to_a_bucket_and_the_replica_is_mounted() {
    beside_a_bucket(|s| {
        if !s.mount() {
            return;
        }
        std::fs::write(s.path("mnt/f"), noise(3_000_000, 5)).unwrap();
        // Its process has the key: none is asked for.
        s.ok(["replicate", "room", PLACE, "--keep", "30d"]);
        std::fs::write(s.path("mnt/f"), noise(3_000_000, 6)).unwrap();
        s.ok(["replicate", "room", PLACE]);
        s.with_pass(["replicate", "room", PLACE, "--apply"]);
        s.umount();
        let read = ["mount", PLACE, "mnt", "--read-only"];
        s.with_pass(read);
        assert!(std::fs::read(s.path("mnt/f")).unwrap() == noise(3_000_000, 6));
        s.umount();
        s.with_pass([
            "mount",
            PLACE,
            "mnt",
            "--read-only",
            "--follow",
            "--cache",
            "reader",
        ]);
        s.with_pass(["cp", "pass", "room:/news"]);
        s.with_pass(["replicate", "room", PLACE]);
        until("the mount has followed", || s.path("mnt/news").exists());
        assert!(std::fs::read(s.path("mnt/f")).unwrap() == noise(3_000_000, 6));
        s.umount();
    });
}
