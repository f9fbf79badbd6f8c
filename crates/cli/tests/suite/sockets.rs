//! Where the sockets are through which commands reach a process that has a room, and whom the commands trust.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{CHEAP, Sandbox, can_mount, is_root, process::until};
use rustix::process::Uid;
use serde_json::{Value, json};

const NOBODY: u32 = 65534;
/// For what happens at once, beside any load.
const TIME_MAX: Duration = Duration::from_secs(120);

/// A process of `user` that listens at `path`: what it was sent, connection by connection. It answers every request with `answer`.
fn impostor(path: PathBuf, user: u32, answer: &Value) -> Receiver<String> {
    let (report, heard) = channel();
    let (begin, begun) = channel();
    let answer = format!("{answer}\n");
    std::thread::spawn(move || {
        let user = Uid::from_raw(user);
        if user != rustix::process::geteuid() {
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        begin.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            // A client that is gone has said what it had to say.
            let _ = BufReader::new(&stream).read_line(&mut request);
            let _ = stream.write_all(answer.as_bytes());
            if report.send(request).is_err() {
                return;
            }
        }
    });
    begun.recv_timeout(TIME_MAX).unwrap();
    heard
}

/// As a serving process says where a room is mounted.
fn mounted_at(mountpoint: &Path) -> Value {
    let hex = mountpoint.to_str().unwrap().bytes();
    let hex: String = hex.map(|byte| format!("{byte:02x}")).collect();
    let status = json!({"pid": std::process::id(), "mountpoint": hex, "read_only": false});
    json!({"answer": {"done": {"status": status}}})
}

/// Anyone who could write to a room's directory could put a socket there, and was sent the passphrase.
#[test]
fn commands_send_nothing_to_a_process_of_another_user() {
    if !is_root() {
        return;
    }
    let s = Sandbox::with_room();
    std::fs::set_permissions(s.path("room"), PermissionsExt::from_mode(0o777)).unwrap();
    let answer = mounted_at(&s.path("mnt"));
    let control = impostor(s.path("room/control"), NOBODY, &answer);
    let metadata = impostor(s.path("room/metadata"), NOBODY, &answer);
    for (heard, command) in [
        (&control, &["info", "room"][..]),
        (&control, &["sync", "room"]),
        (
            &control,
            &["key", "add", "room", "--new-passphrase-file", "wrong"],
        ),
        (&control, &["header", "backup", "room", "saved"]),
        (&metadata, &["user", "list", "room"]),
        (&metadata, &["metadata", "status", "room"]),
    ] {
        let err = match command {
            ["metadata", ..] => s.run(command).err,
            _ => s.fails(4, command),
        };
        assert!(
            err.contains("of user 65534") && err.contains("nothing was sent"),
            "{err}"
        );
        assert_eq!(heard.recv_timeout(TIME_MAX).unwrap(), "", "{command:?}");
        assert!(
            heard.try_iter().all(|request| request.is_empty()),
            "{command:?}"
        );
    }
}

/// Root's process is not an ordinary user's: a real one answers root alone.
#[test]
fn an_ordinary_users_command_sends_nothing_to_roots_process() {
    if !is_root() {
        return;
    }
    let mut s = Sandbox::of_user(Some(NOBODY));
    s.use_own_copy();
    s.create();
    let heard = impostor(s.path("room/control"), 0, &mounted_at(&s.path("mnt")));
    let err = s.fails(4, ["key", "add", "room", "--new-passphrase-file", "wrong"]);
    assert!(err.contains("of user 0"), "{err}");
    assert_eq!(heard.recv_timeout(TIME_MAX).unwrap(), "");
}

/// A process of this user may be wrong about its mountpoint: what was copied into the room went to an ordinary directory.
#[test]
fn a_mountpoint_is_used_only_where_this_room_is_mounted() {
    let s = Sandbox::with_room();
    let own = rustix::process::geteuid().as_raw();
    let refused = |place: &str| {
        let _ = std::fs::remove_file(s.path("room/control"));
        let _heard = impostor(s.path("room/control"), own, &mounted_at(&s.path(place)));
        for command in [&["cp", "pass", "room:/secret"][..], &["umount", "room"]] {
            let err = s.fails(4, command);
            assert!(err.contains("sees no mount of it"), "{err}");
        }
        assert_eq!(std::fs::read_dir(s.path(place)).unwrap().count(), 0);
    };
    std::fs::create_dir(s.path("plain")).unwrap();
    refused("plain");
    if can_mount() {
        s.with_pass(["create", "other"].iter().chain(&CHEAP));
        s.with_pass(["mount", "other", "mnt"]);
        refused("mnt");
        s.ok(["umount", "mnt"]);
    }
}

#[test]
fn a_mounts_socket_is_in_the_users_runtime_directory() {
    let Some(s) = Sandbox::mounted() else { return };
    let meta = std::fs::symlink_metadata(s.control()).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o777, 0o600);
    let dir = std::fs::metadata(s.path("run/strongroom")).unwrap();
    assert_eq!(dir.mode() & 0o777, 0o700);
    assert!(!s.path("room/control").exists());
    s.umount();
    assert!(!s.control().exists());
}

#[test]
fn without_a_runtime_directory_the_socket_is_in_the_rooms_and_is_found_there() {
    if !is_root() {
        return;
    }
    // Root has /run.
    let mut s = Sandbox::of_user(Some(NOBODY));
    s.use_own_copy();
    s.create();
    if !can_mount() {
        return;
    }
    let mount = ["mount", "room", "mnt", "--passphrase-file", "pass"];
    // A directory that others can write to is none.
    std::fs::set_permissions(s.path("run"), PermissionsExt::from_mode(0o777)).unwrap();
    let mounted = s.command(mount).output().unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    let meta = std::fs::symlink_metadata(s.path("room/control")).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    std::fs::set_permissions(s.path("run"), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(s.ok(["ls", "room"]), "");
    s.umount();
    assert!(!s.path("room/control").exists());
}

/// systemd removes a user's runtime directory when the last session ends; a mount stays.
#[test]
fn a_socket_comes_back_after_the_runtime_directory_has_gone() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    s.with_pass(["mount", "room", "mnt", "--confinement", "off"]);
    std::fs::remove_dir_all(s.path("run/strongroom")).unwrap();
    until("the socket is there again", || s.control().exists());
    assert_eq!(s.ok(["ls", "room"]), "");
    s.umount();
    assert!(!s.control().exists());
}

/// Of a process, from its status in `/proc`.
fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().to_owned()
}

/// A confined mount's process reaches no directory but its own. Where its runtime directory has gone, it cannot make another: its socket
/// comes back in the machine's, if root has one already, or in the room's.
#[test]
fn a_mounts_process_is_confined_and_works() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    let mount = ["mount", "room", "mnt", "--passphrase-file", "pass"];
    let mounted = s.run(mount.iter().chain(&["--confinement", "required"]));
    if mounted.code != 0 && mounted.err.contains("cannot confine") {
        eprintln!("skipped: this kernel lacks a part of Landlock or seccomp");
        return;
    }
    assert_eq!(mounted.code, 0, "{}", mounted.err);
    let pid = s.pid();
    assert_eq!(status(pid, "NoNewPrivs:"), "1");
    assert_eq!(status(pid, "Seccomp:"), "2");
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = thread.unwrap().path().join("status");
        let status = std::fs::read_to_string(path).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
    }
    std::fs::write(s.path("mnt/file"), "words").unwrap();
    // The directory of a backup is out of its reach: the command opens the files there.
    s.ok(["backup", "room", "copy"]);
    assert_eq!(s.with_pass(["cat", "copy:/file"]), "words");
    s.ok(["backup", "room", "copy"]);
    std::fs::remove_dir_all(s.path("run/strongroom")).unwrap();
    until("the socket is found again", || {
        s.run(["ls", "room"]).code == 0
    });
    assert!(!s.path("run/strongroom").exists());
    assert_eq!(s.ok(["ls", "room"]), "file\n");
    s.umount();
    until("the process has ended", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
}

/// Another user's process: whose memory it is shows by the owner of its files in `/proc`.
#[test]
fn an_ordinary_users_mount_cannot_be_looked_into_and_ends_by_signal_and_by_itself() {
    if !is_root() || !can_mount() {
        return;
    }
    let mut s = Sandbox::of_user(Some(NOBODY));
    s.use_own_copy();
    s.create();
    s.with_pass(["mount", "room", "mnt"]);
    let pid = s.pid();
    let owner = std::fs::metadata(format!("/proc/{pid}/environ"))
        .unwrap()
        .uid();
    assert_eq!(owner, 0, "the process of user {NOBODY} is dumpable");
    let signalled = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(signalled, rustix::process::Signal::TERM).unwrap();
    until("the mount is gone", || !s.is_mounted());
    until("the process has ended", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    s.with_pass(["mount", "room", "mnt", "--idle-timeout", "1s"]);
    until("the idle mount is gone", || !s.is_mounted());
}
