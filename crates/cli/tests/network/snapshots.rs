//! Snapshots of a shared room: commands on the server's machine, and what each client reads of them.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::cluster::{Cluster, Shape, disk};
use super::common::{listing, make_tree, noise, words};
use super::process::until;
use super::seed;

fn names(cluster: &Cluster) -> Vec<String> {
    let list = cluster.ok(&["snapshot", "list", "room", "--json"]);
    let row = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    let name = |line: &str| row(line)["name"].as_str().unwrap().to_owned();
    list.lines().map(name).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// This process is root: only the server says no.
#[track_caller]
fn denied(result: std::io::Result<Vec<u8>>) {
    let error = result.expect_err("the user may not");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn each_user_reads_in_snapshots_what_was_allowed_then_and_is_now() {
    let Some(mut cluster) = Cluster::start(Shape::of(&["root", "ada", "bob"])) else {
        return;
    };
    let [root, ada, bob] = [0, 1, 2].map(|client| cluster.mountpoint(client));
    set_mode(&root, 0o1777);
    assert!(!ada.join(".snapshots").exists(), "there is none yet");
    let large = noise(5_000_000, 1);
    make_tree(&ada.join("tree"));
    fs::write(ada.join("tree/large"), &large).unwrap();
    let wanted = listing(&ada.join("tree"));
    for (name, mode) in [("open", 0o644), ("secret", 0o600), ("gone", 0o644)] {
        fs::write(ada.join(name), name).unwrap();
        set_mode(&ada.join(name), mode);
    }
    fs::create_dir_all(ada.join("private/below")).unwrap();
    set_mode(&ada.join("private"), 0o700);
    cluster.ok(&["snapshot", "create", "room", "monday"]);
    assert_eq!(names(&cluster), ["monday"]);

    fs::write(ada.join("tree/large"), b"short").unwrap();
    fs::write(ada.join("open"), b"new").unwrap();
    fs::remove_file(ada.join("gone")).unwrap();
    set_mode(&ada.join("secret"), 0o644);
    let then = |at: &Path, name: &str| fs::read(at.join(".snapshots/monday").join(name));
    // In the top directory and in every other, as it was.
    assert_eq!(listing(&ada.join(".snapshots/monday/tree")), wanted);
    assert_eq!(listing(&ada.join("tree/.snapshots/monday")), wanted);
    for at in [&ada, &bob] {
        assert!(then(at, "tree/large").unwrap() == large);
        assert_eq!(then(at, "open").unwrap(), b"open");
        assert_eq!(then(at, "gone").unwrap(), b"gone");
        let listed = fs::read_dir(at.join(".snapshots")).unwrap();
        let listed: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(listed, ["monday"]);
    }
    // A directory that could not be reached then is in no snapshot, and the others are.
    set_mode(&ada.join("private"), 0o755);
    let snapshots_of = |at: &Path| fs::read_dir(at.join("private/below/.snapshots"));
    assert_eq!(snapshots_of(&ada).unwrap().count(), 1);
    assert_eq!(snapshots_of(&bob).unwrap().count(), 0);
    assert_eq!(then(&ada, "secret").unwrap(), b"secret");
    assert_eq!(fs::read(bob.join("secret")).unwrap(), b"secret");
    denied(then(&bob, "secret"));
    // A file that was open to all, and is closed now.
    let mut open = File::open(bob.join(".snapshots/monday/tree/large")).unwrap();
    let mut some = vec![0; 4096];
    open.read_exact(&mut some).unwrap();
    assert!(some == large[..4096]);
    set_mode(&ada.join("open"), 0o600);
    denied(then(&bob, "open"));
    set_mode(&ada.join("tree"), 0o700);
    denied(fs::read(bob.join(".snapshots/monday/tree/small")));
    set_mode(&ada.join("tree"), 0o755);

    // Nothing there can be changed, and the live file can be made of it.
    let read_only = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS));
    };
    read_only(fs::write(ada.join(".snapshots/monday/open"), b"x"));
    read_only(fs::remove_file(ada.join(".snapshots/monday/gone")));
    read_only(fs::create_dir(ada.join(".snapshots/monday/x")));
    let copied = Command::new("cp")
        .args(words(
            "-a .snapshots/monday/gone .snapshots/monday/tree/large .",
        ))
        .current_dir(&ada)
        .status()
        .unwrap();
    assert!(copied.success());
    assert_eq!(fs::read(bob.join("gone")).unwrap(), b"gone");
    assert!(fs::read(bob.join("large")).unwrap() == large);
    let numbers = |at: &Path| {
        let meta = fs::metadata(at.join(".snapshots/monday/tree/large")).unwrap();
        (meta.ino(), meta.mtime_nsec(), meta.uid())
    };
    let before = numbers(&bob);
    assert_eq!(numbers(&ada), before);

    // A restart of the server costs a delay, and the number is the same after another mount.
    cluster.stop_server();
    cluster.start_server();
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert!(rest == large[4096..]);
    drop(open);
    cluster.stop_client(2);
    cluster.start_client(2);
    assert_eq!(numbers(&bob), before);

    // One snapshot in the place of the file system.
    fs::create_dir(cluster.path("past")).unwrap();
    let server = format!("strongroom://{}/", cluster.server_address());
    let mount = |name: &str| {
        let identity = ["--identity", "bob.identity", "--snapshot", name];
        let words = [&["mount", &server, "past"][..], &identity].concat();
        cluster.command("client2", &words).output().unwrap()
    };
    assert!(mount("monday").status.success());
    assert!(fs::read(cluster.path("past/tree/large")).unwrap() == large);
    denied(fs::read(cluster.path("past/secret")));
    cluster.ok(&["umount", "past"]);
    let missing = mount("tuesday");
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("there is no snapshot tuesday"), "{said}");
}

#[test]
fn snapshots_of_a_served_room_are_managed_on_its_machine_and_by_its_policy() {
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let (one, other) = (cluster.mountpoint(0), cluster.mountpoint(1));
    let old = noise(3_000_000, 2);
    fs::write(one.join("letter"), &old).unwrap();
    fs::write(one.join("gone"), &old[..100_000]).unwrap();
    cluster.ok(&["snapshot", "create", "room", "first"]);
    fs::write(other.join("letter"), noise(3_000_000, 3)).unwrap();
    fs::remove_file(other.join("gone")).unwrap();
    cluster.ok(&["snapshot", "create", "room", "second"]);
    let diff = cluster.ok(&["snapshot", "diff", "room", "first", "second", "--json"]);
    assert!(
        diff.contains(r#""path":"/gone""#) && diff.contains(r#""path":"/letter""#),
        "{diff}"
    );
    let removed = cluster.ok(&["undelete", "room", "--json"]);
    assert!(removed.contains(r#""path":"/gone""#), "{removed}");
    let list = cluster.ok(&["snapshot", "list", "room", "--json"]);
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    assert!(first["exclusive"].as_u64().unwrap() >= 3_000_000, "{first}");
    let held = cluster.ok(&["du", "--snapshots", "room"]);
    assert!(held.contains("2 snapshots together"), "{held}");
    cluster.ok(&["snapshot", "rename", "room", "second", "later"]);
    assert_eq!(names(&cluster), ["first", "later"]);
    let shown = cluster.ok(&["snapshot", "show", "room", "later"]);
    assert!(shown.contains("by hand"), "{shown}");
    for (words, why) in [
        (["snapshot", "create", "room", "first"], "already"),
        (
            ["snapshot", "delete", "room", "nothing"],
            "no snapshot nothing",
        ),
        (["snapshot", "create", "room", "a/b"], "a/b"),
    ] {
        let refused = cluster.command("server", &words).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    // A backup has them.
    cluster.ok(&["backup", "room", "copy"]);
    let words = ["cat", "copy@first:/letter", "--passphrase-file", "pass"];
    let found = cluster.command("server", &words).output().unwrap();
    assert!(
        found.stdout == old,
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );

    // What only a snapshot has moves with the rest when a disk is removed.
    cluster.ok(&["disk", "remove", "room", &disk(0)]);
    until("the disk is empty", || {
        let list = cluster.ok(&["disk", "list", "room", "--json"]);
        !list.contains(&format!("\"name\":\"{}\"", disk(0)))
    });
    cluster.stop_disk(0);
    for at in [&one, &other] {
        assert!(fs::read(at.join(".snapshots/first/letter")).unwrap() == old);
        assert!(fs::read(at.join(".snapshots/first/gone")).unwrap() == old[..100_000]);
    }

    // A server does what the policy says as soon as it starts, and once a minute.
    cluster.ok(&["snapshot", "policy", "set", "room", "--hourly", "24"]);
    let shown = cluster.ok(&["snapshot", "policy", "show", "room"]);
    assert!(shown.contains("hourly    24"), "{shown}");
    cluster.stop_server();
    cluster.start_server();
    until("an automatic snapshot", || names(&cluster).len() == 3);
    assert!(names(&cluster)[2].starts_with("auto-"));
    let list = cluster.ok(&["snapshot", "list", "room"]);
    assert!(list.contains("automatic"), "{list}");
    let pruned = cluster.ok(&["snapshot", "prune", "room", "--dry-run"]);
    assert_eq!(pruned, "", "nothing is old");

    cluster.ok(&["snapshot", "delete", "room", "first", "later"]);
    assert_eq!(names(&cluster).len(), 1);
    until("the snapshot is gone from the mounts", || {
        !one.join(".snapshots/first").exists() && !other.join(".snapshots/first").exists()
    });
    cluster.check_audit();
    let shown = cluster.ok(&["audit", "show", "audit", "--event", "snapshots-changed"]);
    for change in ["create", "rename", "delete", "policy"] {
        assert!(shown.contains(change), "{change}: {shown}");
    }
}

/// As on a room of one user: `cli/tests/suite/snapshots/restores.rs`.
#[test]
fn the_server_restores_files_directories_and_the_room_for_all_clients() {
    let Some(cluster) = Cluster::start(Shape::of(&["root", "ada", "bob"])) else {
        return;
    };
    let [root, ada, bob] = [0, 1, 2].map(|client| cluster.mountpoint(client));
    set_mode(&root, 0o1777);
    make_tree(&root.join("tree"));
    fs::create_dir(ada.join("papers")).unwrap();
    let old = noise(3_000_000, 4);
    let letter = ada.join("papers/letter");
    fs::write(&letter, &old).unwrap();
    set_mode(&letter, 0o600);
    // The top directory's own time is that of the last name that went.
    let listed = |at: &Path| listing(at).split_off(1);
    let wanted = listed(&root);
    cluster.ok(&["snapshot", "create", "room", "good"]);

    set_mode(&letter, 0o644);
    fs::write(&letter, b"new").unwrap();
    fs::write(root.join("tree/added"), b"added").unwrap();
    fs::remove_dir_all(root.join("tree/sub")).unwrap();
    let added = bob.join("added");
    fs::write(&added, noise(2_000_000, 5)).unwrap();
    assert_eq!(fs::read(bob.join("papers/letter")).unwrap(), b"new");
    let mut open = File::open(bob.join("papers/letter")).unwrap();
    let mut gone = File::open(&added).unwrap();

    // One file: its rights come back with it. A client that has the replaced one open reads it until it is closed.
    let done = cluster.ok(&words("snapshot restore room good /papers/letter --json"));
    let done: serde_json::Value = serde_json::from_str(&done).unwrap();
    assert_eq!(
        (&done["files"], &done["bytes"]),
        (&1.into(), &3_000_000.into())
    );
    assert!(
        done.get("meanwhile").is_none() && done.get("revoked").is_none(),
        "{done}"
    );
    assert!(fs::read(&letter).unwrap() == old);
    denied(fs::read(bob.join("papers/letter")));
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert_eq!(read, b"new");
    drop(open);
    let first = done["before"].as_str().unwrap().to_owned();
    assert_eq!(names(&cluster), ["good".to_owned(), first.clone()]);
    // Undone, and put elsewhere.
    cluster.ok(&["snapshot", "restore", "room", &first, "/papers/letter"]);
    assert_eq!(fs::read(bob.join("papers/letter")).unwrap(), b"new");
    cluster.ok(&[
        "snapshot",
        "restore",
        "room",
        "good",
        "/papers",
        "--to",
        "/papers then",
    ]);
    assert!(fs::read(ada.join("papers then/letter")).unwrap() == old);
    fs::remove_dir_all(root.join("papers then")).unwrap();

    // The whole room. What is open and gone lives until it is closed.
    let changed = listed(&root);
    cluster.ok(&["snapshot", "restore", "room", "good", "/"]);
    assert_eq!(listed(&root), wanted);
    assert!(fs::read(&letter).unwrap() == old);
    assert!(!bob.join("added").exists());
    let mut read = Vec::new();
    gone.read_to_end(&mut read).unwrap();
    assert!(read == noise(2_000_000, 5));
    drop(gone);
    let before = names(&cluster).pop().unwrap();
    cluster.ok(&["snapshot", "restore", "room", &before, "/"]);
    assert_eq!(listed(&root), changed);

    // What was removed comes back, and nothing is replaced for that.
    fs::remove_file(&letter).unwrap();
    fs::remove_dir(ada.join("papers")).unwrap();
    let count = names(&cluster).len();
    let back = cluster.ok(&words("undelete room /papers/letter --since good --json"));
    let back: serde_json::Value = serde_json::from_str(&back).unwrap();
    let newest = names(&cluster).pop().unwrap();
    assert_eq!(
        (&back["snapshot"], &back["bytes"]),
        (&newest.as_str().into(), &3_000_000.into())
    );
    assert!(fs::read(&letter).unwrap() == old);
    assert_eq!(fs::metadata(&letter).unwrap().uid(), 1001);
    // What is refused changes nothing, and leaves no snapshot.
    for (words, code, why) in [
        (&["undelete", "room", "/papers/letter"][..], 1, "--to"),
        (&["undelete", "room", "/never"], 1, "no snapshot has it"),
        (
            &["snapshot", "restore", "room", "good", "/nothing"],
            1,
            "no such file",
        ),
        (
            &["snapshot", "restore", "room", "good", "papers"],
            2,
            "begins with a slash",
        ),
        (
            &["snapshot", "restore", "room", "sunday", "/"],
            1,
            "no snapshot sunday",
        ),
        (
            &["snapshot", "restore", "room", "good", "/papers/letter/"],
            1,
            "not a directory",
        ),
        (
            &words("snapshot restore room good /papers/letter --to /"),
            2,
            "root",
        ),
        (
            &words("snapshot restore room good /papers --to /missing/x"),
            1,
            "no such file",
        ),
    ] {
        let refused = cluster.command("server", words).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).to_lowercase();
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert_eq!(names(&cluster).len(), count);
    cluster.check_audit();
    let shown = cluster.ok(&["audit", "show", "audit", "--event", "snapshots-changed"]);
    assert!(
        shown.contains("restore") && shown.contains("undelete"),
        "{shown}"
    );
}

/// Whether two trees are the same, but for the times of their top directories.
fn are_same(one: &[String], other: &[String]) -> bool {
    one[1..] == other[1..]
}

/// Each snapshot ends the grants under which clients write: they go on with others, lose nothing, and what a snapshot has stays as it was.
#[test]
fn writers_go_on_while_snapshots_come_and_go_and_the_server_is_killed() {
    const KEPT: usize = 3;
    let seed = seed();
    let Some(mut cluster) = Cluster::start(Shape::default()) else {
        return;
    };
    let side = cluster.mountpoint(0).join("side");
    fs::create_dir_all(side.join("sub")).unwrap();
    for n in 0..50 {
        fs::write(side.join(format!("sub/{n}")), noise(9_000, n)).unwrap();
    }
    let then = listing(&side);
    cluster.ok(&["snapshot", "create", "room", "first"]);
    fs::remove_dir_all(side.join("sub")).unwrap();
    let now = listing(&side);
    let mut writers = [0, 1].map(|client| cluster.start_writer(client, seed, 0));
    let read = |cluster: &Cluster, client: usize, name: &str| {
        listing(&cluster.mountpoint(client).join(".snapshots").join(name))
    };
    let mut seen: Vec<(String, Vec<String>)> = Vec::new();
    for round in 0..8 {
        writers.iter_mut().for_each(|writer| writer.goes_on(5));
        let name = format!("s{round}");
        cluster.ok(&["snapshot", "create", "room", &name]);
        let was = read(&cluster, 0, &name);
        seen.push((name, was));
        if seen.len() > KEPT {
            let (oldest, _) = seen.remove(0);
            cluster.ok(&["snapshot", "delete", "room", &oldest]);
        }
        // What else is in the room is restored, whole or not at all.
        let words = ["snapshot", "restore", "room", "first", "/side"];
        if round == 4 {
            let restore = cluster.command("server", &words).output();
            assert!(restore.unwrap().status.success());
            assert_eq!(listing(&side), then);
            fs::remove_dir_all(side.join("sub")).unwrap();
            let mut restore = cluster.command("server", &words).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(seed % 150));
            cluster.kill_server();
            restore.wait().unwrap();
            cluster.start_server();
            let found = listing(&side);
            assert!(
                are_same(&found, &then) || are_same(&found, &now),
                "{found:?}"
            );
        }
        for (name, was) in &seen {
            assert!(read(&cluster, 1, name) == *was, "{name} is another one");
        }
    }
    let kept = names(&cluster).into_iter();
    assert_eq!(kept.filter(|name| name.starts_with('s')).count(), KEPT);
    for writer in writers {
        writer.stop();
    }
    for writer in 0..2 {
        cluster.judge(seed, writer, 1 - writer, true).unwrap();
    }
}
