//! `replicate`, `send` and `receive`: a replica in a directory, here and on another host.

use crate::common;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::process::until;
use crate::common::setting::Disk;
use crate::common::{Sandbox, noise, words};
use room::{Credential, FileSystem as _, NewSnapshot, OpenOptions, Room, Secret};
use rustix::process::{Pid, Signal, kill_process};

fn with_file(bytes: usize) -> Sandbox {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), noise(bytes, 5)).unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    s
}

fn file_of(s: &Sandbox, replica: &str, name: &str) -> Vec<u8> {
    let _ = std::fs::remove_file(s.path("out"));
    s.with_pass(["cp", &format!("{replica}:/{name}"), "out"]);
    std::fs::read(s.path("out")).unwrap()
}

#[test]
fn a_room_is_replicated_again_and_again_and_promoted_at_last() {
    let s = with_file(3_000_000);
    s.with_pass(["replicate", "room", "copy"]);
    assert_eq!(file_of(&s, "copy", "f"), noise(3_000_000, 5));
    s.with_pass(["cp", "pass", "room:/later"]);
    s.with_pass(["replicate", "room", "copy"]);
    assert_eq!(s.with_pass(["ls", "copy"]), "f\nlater\n");
    // It is read only.
    s.fails(1, ["cp", "pass", "copy:/no"]);
    let moment = s.ok(["receive", "copy", "--status"]);
    assert!(moment.starts_with("moment      "), "{moment}");
    s.with_pass(["receive", "copy", "--status", "--verify"]);
    s.with_pass(["rm", "room:/f"]);
    s.with_pass(["replicate", "room", "copy"]);
    assert_eq!(s.with_pass(["ls", "copy"]), "later\n");
    s.with_pass(["check", "--read-data", "copy"]);
    s.with_pass(["receive", "copy", "--promote"]);
    s.with_pass(["cp", "pass", "copy:/own"]);
    s.fails(1, ["replicate", "room", "copy"]);
    assert_eq!(s.with_pass(["ls", "room"]), "later\n");
}

/// What ssh does, on this host: without anything that opens a room. The search path with it.
fn with_ssh(s: &Sandbox, command: &str) -> String {
    let ssh = s.path("bin/ssh");
    std::fs::create_dir(s.path("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -- ] || exit 9\n[ \"$2\" = backup ] || exit 8\nunset STRONGROOM_PASSPHRASE\n{command}\n"
    );
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", s.path("bin").display())
}

/// The room's snapshots that are in common with replicas.
fn in_common(s: &Sandbox) -> Vec<String> {
    let list = s.with_pass(["snapshot", "list", "room"]);
    let words = list.split_whitespace();
    let names = words.filter(|word| word.starts_with("replicate-"));
    names.map(str::to_owned).collect()
}

#[test]
fn another_host_receives_without_a_key() {
    let s = with_file(200_000);
    let path = with_ssh(&s, "sh -c \"$3\"");
    let place = format!("ssh://backup{}", s.path("it's a copy").display());
    for name in ["one", "two"] {
        s.with_pass(["cp", "pass", &format!("room:/{name}")]);
        let mut command = s.command([
            "replicate",
            "room",
            &place,
            "--passphrase-file",
            "pass",
            "--remote-command",
            &common::program().display().to_string(),
        ]);
        let ran = command.env("PATH", &path).output().unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
    assert_eq!(s.with_pass(["ls", "it's a copy"]), "f\none\ntwo\n");
    s.with_pass(["check", "--read-data", "it's a copy"]);
}

/// What failed: each run left a snapshot behind, for as long as none was completed, and its message was "room: Broken pipe".
#[test]
fn a_replication_that_brings_nothing_leaves_no_snapshot_and_says_where_it_failed() {
    let s = with_file(3_000_000);
    let no_receiver = "case \"$3\" in *--status*) exec sh -c \"$3\";; esac; exit 1";
    let path = with_ssh(&s, no_receiver);
    let place = format!("ssh://backup{}", s.path("copy").display());
    let program = common::program().display().to_string();
    let pass = ["--passphrase-file", "pass", "--remote-command", &program];
    for _ in 0..2 {
        let mut command = s.command(["replicate", "room", &place].iter().chain(&pass));
        let ran = command.env("PATH", &path).output().unwrap();
        assert_eq!(ran.status.code(), Some(1));
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(
            said.contains("backup: the stream was not received") && !said.contains("Broken"),
            "{said}"
        );
    }
    assert_eq!(in_common(&s), [""; 0]);
}

/// What failed: the digests of the two spellings are different, and the snapshot of the first stayed for ever.
#[test]
fn a_place_with_a_slash_at_its_end_is_the_same() {
    let s = with_file(100_000);
    for place in ["copy", "copy/", "./copy//"] {
        s.with_pass(["replicate", "room", place]);
        assert_eq!(in_common(&s).len(), 1, "{place}");
    }
}

/// What failed: the one that ended first deleted the snapshot of the later one, which the replica then had in common with nothing.
#[test]
fn a_replication_leaves_the_snapshot_of_a_later_one_alone() {
    let s = with_file(100_000);
    let place = format!("ssh://backup{}", s.path("copy").display());
    let program = common::program().display().to_string();
    let later = format!(
        "case \"$3\" in *--status*) ;; *) {program} --quiet snapshot create room \"$LATER\" || exit 7;; esac; exec sh -c \"$3\""
    );
    let path = with_ssh(&s, &later);
    if !s.mount() {
        return;
    }
    let replicate = |later: &str| {
        let mut command = s.command(["replicate", "room", &place, "--remote-command", &program]);
        let ran = command.env("PATH", &path).env("LATER", later).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{ran:?}");
    };
    replicate("other");
    let first = in_common(&s).pop().unwrap();
    let stem = first.strip_suffix("-1").unwrap();
    let later = format!("{stem}-9");
    replicate(&later);
    assert_eq!(in_common(&s), [format!("{stem}-2"), later]);
    s.umount();
}

#[test]
fn a_killed_replication_goes_on() {
    let s = with_file(20_000_000);
    let mut kills = 0;
    for turn in 0..12_u64 {
        let mut command = s.command(["replicate", "room", "copy", "--passphrase-file", "pass"]);
        let mut child = command.spawn().unwrap();
        // What the test holds does not depend on when that is.
        std::thread::sleep(Duration::from_millis(20 + (turn * 37) % 400));
        if child.try_wait().unwrap().is_none() {
            kills += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if s.path("copy/replica").exists() {
            assert_eq!(file_of(&s, "copy", "f"), noise(20_000_000, 5));
            s.with_pass(["check", "--read-data", "copy"]);
        }
    }
    println!("{kills} of 12 were killed");
    s.with_pass(["replicate", "room", "copy"]);
    s.with_pass(["check", "--read-data", "copy"]);
    assert_eq!(file_of(&s, "copy", "f"), noise(20_000_000, 5));
}

/// What was interrupted leads to the moment of its time only.
#[test]
fn a_replication_after_an_interrupted_one_comes_to_the_present_moment() {
    let s = with_file(3_000_000);
    s.with_pass(["snapshot", "create", "room", "monday"]);
    s.with_pass(["send", "room@monday", "--to", "s"]);
    let whole = std::fs::read(s.path("s")).unwrap();
    std::fs::write(s.path("s"), &whole[..whole.len() / 2]).unwrap();
    s.fails(1, ["receive", "copy", "--from", "s"]);
    std::fs::write(s.path("later"), b"later").unwrap();
    s.with_pass(["cp", "later", "room:/later"]);
    s.with_pass(["replicate", "room", "copy"]);
    assert_eq!(s.with_pass(["ls", "copy"]), "f\nlater\n");
    s.with_pass(["check", "--read-data", "copy"]);
}

#[test]
fn a_stream_goes_through_a_file_and_is_refused_where_it_does_not_fit() {
    let s = with_file(200_000);
    s.with_pass(["replicate", "room", "copy"]);
    let unknown = s.fails(1, ["send", "room@none", "--to", "s"]);
    assert!(unknown.contains("there is no snapshot none"), "{unknown}");
    s.fails(2, ["send", "room", "--to", "s"]);
    // The name of the snapshot in common is the command's own.
    let status = s.command(words("replicate room other --json --passphrase-file pass"));
    let out = { status }.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let from = text.find("\"snapshot\":\"").unwrap() + 12;
    let name = &text[from..from + text[from..].find('"').unwrap()];
    s.with_pass(["send", &format!("room@{name}"), "--to", "s"]);
    s.ok(["receive", "third", "--from", "s"]);
    assert_eq!(s.with_pass(["ls", "third"]), "f\n");
    s.fails(1, ["receive", "third", "--from", "s"]);
    s.fails(1, ["receive", "room", "--from", "s"]);
    let whole = std::fs::read(s.path("s")).unwrap();
    std::fs::write(s.path("s"), &whole[..whole.len() - 40]).unwrap();
    let cut = s.fails(1, ["receive", "fourth", "--from", "s"]);
    assert!(cut.contains("cut off") && cut.contains("--resume"), "{cut}");
}

#[test]
fn a_mounted_room_is_replicated_sent_and_stays_in_use() {
    let s = with_file(3_000_000);
    if !s.mount() {
        return;
    }
    let write = |name: &str, seed| std::fs::write(s.path("mnt").join(name), noise(200_000, seed));
    // Its process has the key: none is asked for. What the kernel still keeps is in it.
    write("written", 1).unwrap();
    s.ok(["replicate", "room", "copy"]);
    write("later", 2).unwrap();
    s.ok(["replicate", "room", "copy"]);
    write("written", 3).unwrap();
    s.ok(["snapshot", "create", "room", "monday"]);
    s.ok(["send", "room@monday", "--to", "s"]);
    let unknown = s.run(["send", "room@none", "--to", "none"]);
    assert!(
        unknown.code == 1 && unknown.err.contains("there is no snapshot none"),
        "{unknown:?}"
    );
    assert!(!s.path("none").exists());
    s.ok(["receive", "third", "--from", "s"]);
    assert_eq!(std::fs::read_dir(s.path("mnt")).unwrap().count(), 3);
    s.umount();
    assert_eq!(s.with_pass(["ls", "copy"]), "f\nlater\nwritten\n");
    assert_eq!(file_of(&s, "copy", "f"), noise(3_000_000, 5));
    assert_eq!(file_of(&s, "copy", "written"), noise(200_000, 1));
    assert_eq!(file_of(&s, "third", "written"), noise(200_000, 3));
    for replica in ["copy", "third"] {
        s.with_pass(["check", "--read-data", replica]);
    }
    // And not mounted, it goes on with the same replica.
    s.with_pass(["replicate", "room", "copy"]);
    assert_eq!(file_of(&s, "copy", "written"), noise(200_000, 3));
}

#[test]
fn a_replica_keeps_the_newest_of_each_period() {
    let s = with_file(100_000);
    // A snapshot of three days ago.
    let pass = Secret::from(b"correct horse battery staple".to_vec());
    let room = Room::open(
        &s.path("room"),
        &Credential::Passphrase(pass),
        OpenOptions::with_state_dir(s.path("state/strongroom")),
    )
    .unwrap();
    room.stamp_by(|| {
        let now = room::now();
        Some(room::Timestamp {
            secs: now.secs - 3 * 24 * 3600,
            ..now
        })
    });
    room.create_snapshot("old", NewSnapshot::default()).unwrap();
    room.close().unwrap();
    // More days than a midnight beside this test adds.
    let keep = ["replicate", "room", "copy", "--keep-daily", "7"];
    s.with_pass(keep);
    s.with_pass(["snapshot", "delete", "room", "old"]);
    s.with_pass(["cp", "pass", "room:/f"]);
    s.with_pass(keep);
    assert_eq!(s.with_pass(["ls", "copy@old"]), "f\n");
    // The process of a mount is asked for the same.
    if s.mount() {
        std::fs::write(s.path("mnt/g"), b"later").unwrap();
        s.ok(keep);
        s.umount();
        assert_eq!(s.with_pass(["ls", "copy"]), "f\ng\n");
        assert_eq!(file_of(&s, "copy@old", "f"), noise(100_000, 5));
    }
    for no_number in ["-1", "many", "4294967296"] {
        let option = format!("--keep-weekly={no_number}");
        s.fails(2, ["replicate", "room", "copy", &option]);
    }
    // The one of today is newer.
    s.with_pass(words("replicate room copy --keep-hourly=1 --keep-weekly=0"));
    s.fails(1, ["ls", "copy@old"]);
    s.with_pass(["check", "--read-data", "copy"]);
}

/// A receiver that takes nothing more would keep the room from being unmounted.
#[test]
fn a_mount_ends_while_a_stream_of_it_is_not_taken() {
    let s = with_file(3_000_000);
    if !s.mount() {
        return;
    }
    s.ok(["snapshot", "create", "room", "monday"]);
    let mut command = s.command(["send", "room@monday"]);
    let mut sender = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = sender.stdout.take().unwrap();
    let mut byte = [0];
    out.read_exact(&mut byte).unwrap();
    s.umount();
    let rest = out.read_to_end(&mut Vec::new()).unwrap();
    assert!(rest < 3_000_000, "the pipe takes {rest} bytes");
    assert_eq!(sender.wait().unwrap().code(), Some(1));
    s.with_pass(["check", "room"]);
}

/// Each said only that the stream is cut off, which is what the receiver sees of it.
#[test]
fn a_replication_says_why_its_mount_sends_no_more() {
    let s = with_file(3_000_000);
    if !s.mount() {
        return;
    }
    let replicate = replicating(&s, "100KiB");
    s.umount();
    let ended = replicate.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("the room is being closed"), "{said}");
}

/// What failed: the room was named, which has space.
#[test]
fn a_stream_that_finds_no_space_names_its_target() {
    let s = with_file(3_000_000);
    s.with_pass(["snapshot", "create", "room", "monday"]);
    let send = || {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let pass = ["--passphrase-file", "pass"];
        let mut command = s.command(["send", "room@monday"].iter().chain(&pass));
        let sent = command.stdout(full.unwrap()).stderr(Stdio::piped());
        let sent = sent.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(sent.status.code(), Some(9), "{sent:?}");
        let said = String::from_utf8(sent.stderr).unwrap();
        assert!(said.contains("standard output: no space left"), "{said}");
    };
    send();
    if s.mount() {
        send();
        s.umount();
    }
}

/// What failed: the room was named, which has space, and its catalog called damaged.
#[test]
fn a_full_directory_for_temporary_files_is_named() {
    let s = Sandbox::with_room();
    let small = s.path("small");
    let Some(_small) = Disk::mounted(&small, 8) else {
        return;
    };
    std::fs::create_dir(s.path("tree")).unwrap();
    for n in 0..1500 {
        std::fs::write(s.path(format!("tree/{n:0200}")), "").unwrap();
    }
    s.with_pass(["cp", "-r", "tree", "room:/"]);
    s.with_pass(["snapshot", "create", "room", "monday"]);
    let mut fills = std::fs::File::create(small.join("fills")).unwrap();
    while fills.write_all(&[1; 4096]).is_ok() {}
    let len = fills.metadata().unwrap().len();
    fills.set_len(len - (64 << 10)).unwrap();
    fills.sync_all().unwrap();
    let send = |name: &str| {
        let pass = ["--passphrase-file", "pass"];
        let mut command = s.command(["send", "room@monday"].iter().chain(&pass));
        let sent = command.env("TMPDIR", &small).output().unwrap();
        let said = String::from_utf8(sent.stderr).unwrap();
        assert_eq!(sent.status.code(), Some(9), "{said}");
        assert!(said.contains(&format!("{name}: no space left")), "{said}");
    };
    send(small.to_str().unwrap());
    if s.mount() {
        send("temporary files (TMPDIR)");
        s.umount();
    }
}

#[test]
fn a_replication_that_is_interrupted_says_so() {
    let s = with_file(20_000_000);
    let replicate = replicating(&s, "4MiB");
    kill_process(Pid::from_child(&replicate), Signal::INT).unwrap();
    let ended = replicate.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(14));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("the transfer was stopped"), "{said}");
}

/// A slow replication whose stream has begun.
fn replicating(s: &Sandbox, limit: &str) -> Child {
    let pass = ["--passphrase-file", "pass"];
    let args = ["replicate", "room", "copy", "--limit", limit];
    let mut command = s.command(args.iter().chain(&pass));
    let replicate = command.stderr(Stdio::piped()).spawn().unwrap();
    until("the stream begins", || s.path("copy/segments").exists());
    replicate
}
