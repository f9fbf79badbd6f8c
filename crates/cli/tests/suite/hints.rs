//! What the command says when something is wrong or lost: the thing, its name, and the next step.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use crate::common::setting::on_a_disk;
use crate::common::{CHEAP, Sandbox, can_mount, is_root, noise, words};

/// What failed: `umount` of a room whose disk was full said "no space left" and no more. Nobody knew whether the room was
/// unmounted, or what was lost.
#[test]
fn a_full_disk_at_umount_lists_what_is_lost() {
    if !can_mount() || !is_root() {
        return;
    }
    let Some(s) = on_a_disk(64) else {
        return;
    };
    std::fs::create_dir_all(s.path("mnt")).unwrap();
    assert!(s.mount());
    std::fs::write(s.path("mnt/early"), noise(1_000_000, 1)).unwrap();
    s.ok(["sync", "room"]);
    std::fs::write(s.path("mnt/small"), "hello\n").unwrap();
    let late = std::fs::write(s.path("mnt/late\n2"), noise(5_000_001, 2));
    assert!(late.is_ok());
    // Something else fills the disk.
    let mut fill = std::fs::File::create(s.path("disk/fill")).unwrap();
    let piece = vec![1; 1 << 20];
    while fill.write_all(&piece).is_ok() {}
    // Refused by this write, or by what the kernel writes later.
    let _ = std::fs::write(s.path("mnt/later"), noise(2_000_000, 3));
    let ran = s.run(["umount", "mnt"]);
    assert!(!s.is_mounted());
    assert_eq!(ran.code, 9, "{}", ran.err);
    assert!(ran.err.contains("room: unmounted, but"), "{}", ran.err);
    assert!(ran.err.contains("Free space on the disk"), "{}", ran.err);
    drop(fill);
    std::fs::remove_file(s.path("disk/fill")).unwrap();
    // What is not listed is there.
    let mut lost = 0;
    for (name, shown, bytes) in [
        ("early", "/early", noise(1_000_000, 1)),
        ("small", "/small", b"hello\n".to_vec()),
        ("late\n2", "/late\\n2", noise(5_000_001, 2)),
        ("later", "/later", noise(2_000_000, 3)),
    ] {
        let path = format!("room:/{name}");
        let back = s.run(["cat", &path, "--passphrase-file", "pass"]).out;
        let listed = ran.err.contains(&format!("\n  {shown}: "));
        assert_eq!(back != bytes, listed, "{name}: {}", ran.err);
        assert!(!listed || name != "early");
        lost += u32::from(listed);
    }
    assert!(lost > 0, "{}", ran.err);
}

#[test]
fn a_room_on_a_read_only_disk_is_mounted_with_r() {
    if !can_mount() || !is_root() {
        return;
    }
    let Some(s) = on_a_disk(40) else {
        return;
    };
    s.with_pass(["cp", "pass", "room:/f"]);
    let remount = |how: &str| {
        let done = Command::new("mount")
            .args(["-o", how])
            .arg(s.path("disk"))
            .status();
        assert!(done.unwrap().success());
    };
    remount("remount,ro");
    std::fs::create_dir_all(s.path("mnt")).unwrap();
    for args in [&["mount", "room", "mnt"][..], &["cp", "pass", "room:/g"]] {
        let err = s.fails(1, args);
        assert_eq!(
            err,
            "strongroom: room: the room is stored on a read-only file system: it can be read, not changed; mount it with -r\n"
                .replace("room: the", &format!("{}: the", if args[0] == "mount" { s.path("room").canonicalize().unwrap().display().to_string() } else { "room".into() }))
        );
    }
    assert_eq!(s.with_pass(["ls", "room"]), "f\n");
    s.with_pass(["mount", "-r", "room", "mnt"]);
    assert!(s.path("mnt/f").exists());
    s.umount();
    remount("remount,rw");
    // One that was not closed is read there too.
    assert!(s.mount());
    s.kill_after(Duration::ZERO).join().unwrap();
    s.clear_after_kill();
    assert!(s.path("room/catalog.db-wal").exists());
    remount("remount,ro");
    assert_eq!(s.with_pass(["ls", "room"]), "f\n");
    s.with_pass(["check", "--read-data", "room"]);
    remount("remount,rw");
}

/// What failed: a room whose directory, or one of whose files, a user may not change or read was called damaged, with the advice
/// to check it. `check --repair` of it ended with "everything is whole". One that was not closed could not be read there.
#[test]
fn a_room_that_this_user_may_not_change_is_readable_and_not_called_damaged() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut s = Sandbox::of_user(Some(65534));
    s.use_own_copy();
    s.create();
    let mode = |how: &[&str]| {
        let done = Command::new("chmod")
            .current_dir(s.path(""))
            .args(how)
            .status();
        assert!(done.unwrap().success(), "{how:?}");
    };
    let refused = |args: &[&str], next: &str| {
        let err = s.fails(1, args);
        assert!(
            err.contains("room: this user may not do that with the room's files (")
                && err.ends_with(&format!("): {next}\n")),
            "{args:?}: {err}"
        );
    };
    let (readable, unreadable) = (
        "it can be read, not changed; mount it with -r",
        "become the user to whom the room belongs",
    );
    assert!(s.mount());
    s.ok(["cp", "pass", "room:/f"]);
    s.ok(["sync", "room"]);
    s.kill_after(Duration::ZERO).join().unwrap();
    s.clear_after_kill();
    // With what the killed process left, and without; the room with all its files, and its directory alone.
    for (left, what) in [(true, "-R"), (false, "-R"), (false, "-f")] {
        assert_eq!(s.path("room/catalog.db-wal").exists(), left);
        mode(&[what, "a-w", "room"]);
        for args in [
            &["mount", "room", "mnt"][..],
            &["cp", "pass", "room:/g"],
            &["rm", "room:/f"],
            &["compact", "room"],
            &["check", "--repair", "room"],
        ] {
            refused(args, readable);
        }
        assert_eq!(s.with_pass(["ls", "room"]), "f\n");
        assert!(s.with_pass(["cat", "room:/f"]).starts_with("correct horse"));
        s.with_pass(["check", "--read-data", "room"]);
        s.with_pass(["mount", "-r", "room", "mnt"]);
        s.umount();
        mode(&["-R", "u+w", "room"]);
        // Opened for writing once, it is closed properly.
        s.with_pass(["compact", "room"]);
    }
    for file in ["room/catalog.db", "room/catalog.db-pages"] {
        mode(&["0", file]);
        for args in [
            &["ls", "room"][..],
            &["check", "room"],
            &["cp", "pass", "room:/g"],
        ] {
            refused(args, unreadable);
        }
        mode(&["600", file]);
    }
    mode(&["0", "room/lock"]);
    refused(&["cp", "pass", "room:/g"], readable);
    assert_eq!(s.with_pass(["ls", "room"]), "f\n");
    mode(&["600", "room/lock"]);
    for (dir, bits) in [
        ("room", "0"),
        ("room", "111"),
        ("room/segments", "0"),
        ("room/segments", "444"),
    ] {
        mode(&[bits, dir]);
        let err = s.fails(1, ["ls", "room"]);
        assert!(err.contains("belongs"), "{dir} {bits}: {err}");
        mode(&["755", dir]);
    }
    assert_eq!(s.with_pass(["ls", "room"]), "f\n");
}

#[test]
fn one_failure_is_one_line() {
    let s = Sandbox::with_room();
    s.with_pass(["mkdir", "room:/d"]);
    assert_eq!(
        s.fails(1, ["cat", "room:/none"]),
        "strongroom: room:/none: no such file or directory\n"
    );
    assert_eq!(
        s.fails(1, ["cat", "room:/none", "room:/d"]),
        "strongroom: room:/none: no such file or directory\nstrongroom: room:/d: is a directory\nstrongroom: 2 files failed; see above\n"
    );
    let json = s.fails(1, ["cat", "--json", "room:/none"]);
    assert_eq!(json.lines().count(), 1, "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["exit"], 1);
}

/// Two ends of standard output or error where nobody reads: a pipe that is closed, and a full disk.
fn unread() -> [std::process::Stdio; 2] {
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full");
    [closed.into(), full.unwrap().into()]
}

/// What failed: a command whose messages nobody could read ended in the middle of its work, with exit code 101.
#[test]
fn a_command_does_its_work_where_nobody_reads_its_messages() {
    let s = Sandbox::with_room();
    s.with_pass(["mkdir", "room:/a", "room:/b"]);
    for (stderr, left) in unread().into_iter().zip(["a\nb\n", "b\n"]) {
        assert_eq!(s.with_pass(["ls", "room"]), left);
        let name = &left[..1];
        let path = format!("room:/{name}");
        let args = ["rm", "-r", "room:/none", &path, "--passphrase-file", "pass"];
        let done = s.command(args).stderr(stderr).status().unwrap();
        assert_eq!(done.code(), Some(1), "{name}");
    }
    assert_eq!(s.with_pass(["ls", "room"]), "");
    for (at, stderr) in unread().into_iter().enumerate() {
        let room = format!("other{at}");
        let args = ["create", &room, "--passphrase-file", "pass"];
        let mut create = s.command(args.iter().chain(&CHEAP));
        assert!(create.stderr(stderr).status().unwrap().success());
    }
}

/// What failed: `undelete` whose report nobody read brought the first file back, left the others, and ended with exit code 0; so did
/// a `check` that found damage.
#[test]
fn a_command_does_its_work_where_nobody_reads_its_report() {
    for at in 0..2 {
        let s = Sandbox::with_room();
        let run = |args: &[&str]| {
            let [closed, full] = unread();
            let stdout = if at == 0 { closed } else { full };
            let mut command =
                s.command(args.iter().chain(&["--json", "--passphrase-file", "pass"]));
            let done = command.stdout(stdout).stderr(std::process::Stdio::null());
            done.status().unwrap().code()
        };
        s.with_pass(["cp", "pass", "room:/a"]);
        s.with_pass(["cp", "pass", "room:/b"]);
        s.with_pass(["snapshot", "create", "room", "one"]);
        s.with_pass(["rm", "room:/a", "room:/b"]);
        assert_eq!(run(&["undelete", "room", "/a", "/b"]), Some(at));
        assert_eq!(s.with_pass(["ls", "room"]), "a\nb\n");
        std::fs::remove_file(s.path("room/header.backup.json")).unwrap();
        assert_eq!(run(&["check", "room"]), Some(5));
        // What only prints ends where nobody reads: a listing that was cut short on a full disk is none.
        assert_eq!(run(&["ls", "room"]), Some(9 * at));
    }
}

/// What failed: names of files in some messages, and all in what `check` lists, reached the terminal as they are.
#[test]
fn names_in_messages_cannot_drive_the_terminal() {
    let s = Sandbox::with_room();
    let name = "\u{1b}[31mred\nstrongroom: fine";
    std::fs::create_dir_all(s.path("files")).unwrap();
    std::fs::write(s.path("files").join(name), "x").unwrap();
    std::fs::create_dir_all(s.path("directories").join(name)).unwrap();
    s.with_pass(["cp", "-r", "files", "room:/"]);
    s.with_pass(["cp", "-r", "directories", "room:/"]);
    let (file, directory) = (format!("files/{name}"), format!("directories/{name}"));
    let inside = format!("room:/{name}");
    for (code, args) in [
        (1, &["cp", "-r", &directory, "room:/files"][..]),
        (1, &["cp", "-r", &file, "room:/directories"]),
        (1, &["import", "directories", "room:/files"]),
        (1, &["import", "files", "room:/directories"]),
        (1, &["cat", &inside]),
        (1, &["cp", name, "room:/"]),
        (1, &["header", "restore", "room", name]),
    ] {
        let err = s.fails(code, args);
        assert!(
            err.contains("\\u{1b}[31mred\\nstrongroom: fine"),
            "{args:?}: {err}"
        );
        assert!(
            !err.contains('\u{1b}') && !err.contains("\nstrongroom: fine"),
            "{err}"
        );
    }
    for segment in std::fs::read_dir(s.path("room/segments")).unwrap() {
        let segment = std::fs::File::options()
            .write(true)
            .open(segment.unwrap().path());
        std::os::unix::fs::FileExt::write_all_at(&segment.unwrap(), &[0x5a; 64], 4096).unwrap();
    }
    let args = ["check", "room", "--read-data", "--passphrase-file", "pass"];
    let found = s.run(args).text();
    assert!(
        found.contains("lost      /files/\\u{1b}[31mred\\nstrongroom: fine"),
        "{found}"
    );
}

/// What failed: `--force` put a file in the place of a device node or a pipe of the name, as of /dev/null.
#[test]
fn an_export_replaces_nothing_but_files() {
    let s = Sandbox::with_room();
    std::fs::create_dir(s.path("directory")).unwrap();
    let fifo = Command::new("mkfifo").arg(s.path("pipe")).status();
    assert!(fifo.unwrap().success());
    std::os::unix::fs::symlink("/dev/null", s.path("null")).unwrap();
    for target in ["directory", "pipe", "null"] {
        let kind = || s.path(target).symlink_metadata().unwrap().file_type();
        let before = kind();
        for force in [&["--force"][..], &[]] {
            let err = s.fails(1, ["export", "room", "--tar", target].iter().chain(force));
            assert!(
                err.contains(&format!("{target}: is no regular file")),
                "{err}"
            );
            assert_eq!(kind(), before);
        }
    }
    std::fs::write(s.path("file"), "earlier").unwrap();
    s.with_pass(["export", "room", "--tar", "file", "--force"]);
    assert_ne!(std::fs::read(s.path("file")).unwrap(), b"earlier");
}

/// What failed: the store of a disk whose keys could not be kept, and the directory of a replica whose stream was not there, were
/// left, and in the way of the next try.
#[test]
fn a_disk_or_replica_that_cannot_be_made_leaves_nothing() {
    let s = Sandbox::empty();
    let init = |key| {
        [
            "disk",
            "init",
            "--store",
            "disk",
            "--size",
            "1MiB",
            "--key-out",
            key,
        ]
    };
    for key in ["no/key", "disk"] {
        assert_eq!(s.run(init(key)).code, 1);
        assert!(
            !s.path("disk").exists() && !s.path("disk.add").exists(),
            "{key}"
        );
    }
    s.ok(init("key"));
    let ran = s.run(["receive", "replica", "--from", "none"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (1, "strongroom: none: no such file or directory\n")
    );
    assert!(!s.path("replica").exists());
}

/// What failed: it said that there is no room, and to create one of this name.
#[test]
fn a_snapshot_in_the_place_of_a_room_is_called_one() {
    let s = Sandbox::with_room();
    s.with_pass(["snapshot", "create", "room", "one"]);
    for args in [&["mount", "room@one", "mnt"][..], &["check", "room@one"]] {
        assert_eq!(
            s.fails(2, args),
            "strongroom: room@one: a snapshot, which this command does not work on; mount it with: strongroom mount room MOUNTPOINT \
             --snapshot one\n"
        );
    }
}

#[test]
fn numbers_and_their_nouns_agree() {
    let s = Sandbox::with_room();
    s.with_pass(["cp", "pass", "room:/f"]);
    let tree = s.with_pass(["tree", "room"]);
    assert!(tree.ends_with("\n0 directories, 1 file\n"), "{tree}");
    let ran = s.run(["check", "room", "--passphrase-file", "pass"]);
    assert!(
        ran.err.starts_with("1 file and 1 directory checked"),
        "{}",
        ran.err
    );
    let info = s.with_pass(["info", "room"]);
    assert!(info.contains(" in 1 segment\n"), "{info}");
    let keys = s.ok(["key", "list", "room"]);
    assert!(keys.contains(" 1 pass\n"), "{keys}");
}

#[test]
fn a_wrong_identity_is_called_an_identity() {
    use seal::age::secrecy::ExposeSecret;
    let s = Sandbox::empty();
    let of = |name: &str| {
        let identity = seal::age::x25519::Identity::generate();
        std::fs::write(s.path(name), identity.to_string().expose_secret()).unwrap();
        identity.to_public().to_string()
    };
    s.ok(["create", "room", "--recipient", &of("id")]);
    of("other");
    let ran = s.run(["ls", "room", "--identity", "other"]);
    assert_eq!(
        (ran.code, &*ran.err),
        (
            3,
            "strongroom: room: this identity does not open this room\n"
        )
    );
}

#[test]
fn a_bad_recipient_is_found_before_anything_is_asked_for() {
    let s = Sandbox::with_room();
    for command in ["add", "change"] {
        // Nobody sits here, and standard input is empty: asking would fail first.
        let ran = s.run(["key", command, "room", "--new-recipient", "age1nonsense"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(
            ran.err.contains("age1nonsense") && !ran.err.contains("passphrase"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_compressed_tar_stream_is_imported_and_a_damaged_one_is_an_error() {
    let s = Sandbox::with_room();
    std::fs::create_dir(s.path("tree")).unwrap();
    std::fs::write(s.path("tree/f"), noise(200_000, 3)).unwrap();
    for (format, option) in [("gzip", "-z"), ("xz", "-J"), ("zstd", "--zstd")] {
        let there = Command::new(format).arg("--version").output();
        if !there.is_ok_and(|there| there.status.success()) {
            eprintln!("skipped: there is no {format}");
            continue;
        }
        let file = format!("t.tar.{format}");
        let tar = Command::new("tar")
            .args([option, "-cf", &file, "-C", "tree", "."])
            .current_dir(s.path(""))
            .status();
        assert!(tar.unwrap().success());
        let named = s.fails(2, ["import", &file, "room:/x"]);
        assert_eq!(
            named,
            format!(
                "strongroom: {file}: compressed with {format}; import a compressed tar stream with: strongroom import --tar \
                 {file} room:/x\n"
            )
        );
        let inside = format!("room:/{format}");
        s.with_pass(["import", "--tar", &file, &inside]);
        let path = format!("{inside}/f");
        let back = || s.run(["cat", &path, "--passphrase-file", "pass"]).out;
        assert!(back() == noise(200_000, 3), "{format}");
        s.with_pass(["rm", "-r", &inside]);
        let bytes = std::fs::read(s.path(&file)).unwrap();
        let piped = ["import", "--tar", "-", &inside, "--passphrase-file", "pass"];
        let ran = s.run_with_input(piped, &bytes);
        assert_eq!(ran.code, 0, "{format}: {}", ran.err);
        assert!(back() == noise(200_000, 3), "{format}");
        std::fs::write(s.path("cut"), &bytes[..bytes.len() / 2]).unwrap();
        let ran = s.run(words("import --tar cut room:/cut --passphrase-file pass"));
        assert_ne!(ran.code, 0, "{format}: {}", ran.err);
    }
}

#[test]
fn df_never_shows_more_than_the_disk_has() {
    if !is_root() {
        return;
    }
    let Some(s) = on_a_disk(40) else {
        return;
    };
    std::fs::write(s.path("f"), noise(8 << 20, 4)).unwrap();
    // What stays of each copy keeps its segment, most of which is a hole.
    for n in 0..8 {
        s.with_pass(["mkdir", &format!("room:/{n}")]);
        s.with_pass(["cp", "f", "pass", &format!("room:/{n}")]);
        s.with_pass(["rm", &format!("room:/{n}/f")]);
    }
    let df = s.with_pass(["df", "room", "--json"]);
    let df: serde_json::Value = serde_json::from_str(&df).unwrap();
    let number = |name: &str| df[name].as_u64().unwrap();
    assert!(
        number("stored") + number("available") <= number("total"),
        "{df}"
    );
}

#[test]
fn a_device_is_copied_as_one_only_where_that_is_asked_for() {
    if !is_root() {
        return;
    }
    let s = Sandbox::with_room();
    assert_eq!(
        s.fails(1, ["cp", "/dev/null", "room:/null"]),
        "strongroom: /dev/null: is a device node, whose contents are not copied; copy the node itself with -a\n"
    );
    assert_eq!(s.with_pass(["ls", "room"]), "");
    s.with_pass(["cp", "-a", "/dev/null", "room:/null"]);
    assert!(s.with_pass(["ls", "-l", "room"]).starts_with('c'));
    let made = s.run(
        ["create", "second", "--recipient", "age1nonsense"]
            .iter()
            .chain(&CHEAP),
    );
    assert_eq!(made.code, 2, "{}", made.err);
}
