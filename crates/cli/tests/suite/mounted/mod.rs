//! Every command on a mounted room, a mount from beginning to end, and the control socket.
mod endings;
mod locking;

use crate::common;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    CHEAP, Sandbox, can_mount, enable_uring, is_root, listing, make_tree, process::until, words,
};
use serde_json::Value;

#[test]
fn a_tree_is_the_same_after_unmounting_and_mounting_again() {
    let Some(s) = Sandbox::mounted() else { return };
    make_tree(&s.path("tree"));
    let copied = Command::new("cp")
        .arg("-a")
        .arg(s.path("tree"))
        .arg(s.path("mnt/tree"))
        .status()
        .unwrap();
    assert!(copied.success());
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/tree")));
    s.umount();
    assert!(!s.is_mounted());
    assert!(!s.control().exists());
    assert_eq!(std::fs::read_dir(s.path("mnt")).unwrap().count(), 0);
    // Nothing of it can be read from outside.
    for entry in std::fs::read_dir(s.path("room/segments")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(11).any(|window| window == b"a few words"));
    }
    assert!(s.mount());
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/tree")));
}

#[test]
fn the_file_commands_work_on_a_mounted_room_without_a_passphrase() {
    let Some(s) = Sandbox::mounted() else { return };
    make_tree(&s.path("tree"));
    s.ok(["cp", "-r", "tree", "room:/"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/tree")));
    s.ok(["cp", "-r", "room:/tree", "out"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("out")));
    s.ok(["mkdir", "room:/d"]);
    s.ok(["cp", "-r", "room:/tree", "room:/d/"]);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt/d/tree")));
    s.ok(["mv", "room:/d/tree", "room:/moved"]);
    s.ok(["ln", "room:/moved/small", "room:/d/hard"]);
    s.ok(["ln", "-s", "/moved/small", "room:/d/soft"]);
    // An absolute link leads from the room's root, not from the host's.
    assert_eq!(s.ok(["cat", "room:/d/soft"]), "a few words\n");
    assert_eq!(s.ok(["ls", "room:/d"]), "hard\nsoft\n");
    s.ok(["rm", "-r", "room:/moved", "room:/tree", "room:/d"]);
    assert_eq!(s.ok(["ls", "-a", "room"]), "");
    assert_eq!(std::fs::read_dir(s.path("mnt")).unwrap().count(), 0);
    for args in [
        &["df", "room", "--json"][..],
        &["du", "room:", "--json"],
        &["info", "room", "--json"],
    ] {
        assert!(s.ok(args).starts_with('{'), "{args:?}");
    }
    s.ok(["sync", "room"]);
}

#[test]
fn df_shows_what_is_reserved() {
    const LEN: u64 = 10 << 20;
    let Some(s) = Sandbox::mounted() else { return };
    let reserved = || {
        let shown: Value = serde_json::from_str(&s.ok(["df", "room", "--json"])).unwrap();
        shown["reserved"].as_u64().unwrap()
    };
    assert_eq!(reserved(), 0);
    let file = std::fs::File::create(s.path("mnt/f")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, LEN).unwrap();
    assert_eq!(reserved(), LEN);
    file.set_len(LEN / 2).unwrap();
    assert_eq!(reserved(), LEN / 2);
}

#[test]
fn a_link_in_a_mounted_room_does_not_lead_the_commands_out_of_it() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("secret"), "of the host").unwrap();
    if !s.mount() {
        return;
    }
    std::os::unix::fs::symlink(s.path("secret"), s.path("mnt/out")).unwrap();
    std::os::unix::fs::symlink("../../../../../../../../../../etc", s.path("mnt/up")).unwrap();
    let ran = s.run(["cat", "room:/out"]);
    assert_eq!((ran.code, ran.out.len()), (1, 0), "{}", ran.err);
    assert_eq!(s.run(["ls", "room:/up/"]).code, 1);
}

#[test]
fn keys_of_a_mounted_room_are_changed_only_by_who_brings_one() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("raw"), [9; 32]).unwrap();
    let refused = s.run(words(
        "key add room --passphrase-file wrong --new-raw-key-file raw",
    ));
    assert_eq!(
        (
            refused.code,
            refused.err.contains("does not open this room")
        ),
        (3, true),
        "{}",
        refused.err
    );
    s.with_pass(["key", "add", "room", "--new-raw-key-file", "raw"]);
    let list: Value = serde_json::from_str(&s.ok(["key", "list", "room", "--json"])).unwrap();
    assert_eq!(
        (&list["verified"], list["slots"].as_array().unwrap().len()),
        (&Value::Bool(true), 2)
    );
    s.with_pass(["header", "backup", "room", "saved"]);
    s.umount();
    assert_eq!(s.ok(["ls", "room", "--raw-key-file", "raw"]), "");
    assert!(std::fs::read(s.path("saved")).unwrap().starts_with(b"{"));
}

#[test]
fn a_second_opening_names_the_process() {
    let Some(s) = Sandbox::mounted() else { return };
    let pid = s.pid();
    std::fs::create_dir(s.path("other")).unwrap();
    let err = s.fails(4, ["mount", "room", "other"]);
    assert!(err.contains(&format!("in use by process {pid}")), "{err}");
    // Without the socket the lock still shows it.
    let ran = s
        .command(["ls", "room", "--passphrase-file", "pass"])
        .env("XDG_RUNTIME_DIR", s.path("nowhere"))
        .output()
        .unwrap();
    let ran = common::Ran::from(ran);
    assert_eq!(
        (ran.code, ran.err),
        (
            4,
            format!("strongroom: room: the room is in use by process {pid}\n")
        )
    );
}

fn send(pid: u32, signal: rustix::process::Signal) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).is_ok()
}

#[test]
fn flags_hold_for_the_commands_too_mounted_or_not() {
    let s = Sandbox::with_room();
    if !is_root() || !s.mount() {
        return;
    }
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    std::fs::create_dir(s.path("mnt/d")).unwrap();
    let chattr = |flag: &str, name: &str| {
        let done = Command::new("chattr").arg(flag).arg(s.path(name)).status();
        assert!(done.unwrap().success(), "{flag} {name}");
    };
    chattr("+i", "mnt/f");
    chattr("+a", "mnt/d");
    std::fs::write(s.path("mnt/d/g"), "x").unwrap();
    let check = || {
        let stat = s.with_pass(["stat", "room:/f"]);
        assert!(stat.contains("flags      immutable\n"), "{stat}");
        let stat = s.with_pass(["stat", "--json", "room:/d"]);
        let stat: Value = serde_json::from_str(&stat).unwrap();
        assert_eq!(stat["flags"], serde_json::json!(["append-only"]));
        assert!(!s.with_pass(["stat", "room:/d/g"]).contains("flags"));
        for args in [["rm", "room:/f"], ["rm", "room:/d/g"]] {
            let err = s.fails(1, args).to_lowercase();
            assert!(err.contains("not permitted"), "{err}");
        }
    };
    check();
    s.umount();
    check();
    s.with_pass(["check", "room"]);
    s.with_pass(["backup", "room", "copy"]);
    let stat = s.with_pass(["stat", "copy:/f"]);
    assert!(stat.contains("immutable"), "{stat}");
    assert!(s.mount());
    check();
    chattr("-i", "mnt/f");
    chattr("-a", "mnt/d");
    s.ok(["rm", "-r", "room:/f", "room:/d"]);
}

#[test]
fn mount_options_of_the_command_are_in_force() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    let options = "rw,noatime,nodiratime,lazytime,sync";
    s.with_pass(["mount", "room", "mnt", "-o", options]);
    let words = mount_words(&s);
    for word in ["noatime", "nodiratime", "lazytime", "sync"] {
        assert!(words.iter().any(|w| w == word), "{word}: {words:?}");
    }
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    s.umount();
    s.with_pass(["mount", "room", "mnt", "-o", "noatime,strictatime,dirsync"]);
    let words = mount_words(&s);
    assert!(words.iter().any(|w| w == "dirsync"), "{words:?}");
    assert!(!words.iter().any(|w| w.ends_with("atime")), "{words:?}");
}

#[test]
fn a_shared_file_system_has_no_strict_access_times() {
    let s = Sandbox::empty();
    let ran = s.run(words(
        "mount strongroom://127.0.0.1:1/ mnt --identity pass -o strictatime",
    ));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("do not follow reads"), "{}", ran.err);
}

/// Options of the mount and of the file system as the kernel shows them.
fn mount_words(s: &Sandbox) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = s.path("mnt").canonicalize().unwrap();
    let line = table
        .lines()
        .find(|line| line.split(' ').nth(4) == at.to_str())
        .unwrap();
    line.split([' ', ',']).map(str::to_owned).collect()
}

/// The answer to an interrupt often comes after the interrupted request has ended, and the kernel then refuses it: that was logged
/// as an error each time.
#[test]
fn interrupted_requests_are_no_errors_in_the_log() {
    const SCRIPT: &str = "
import os, signal, time
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
end = time.monotonic() + 3
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 65536)
while time.monotonic() < end:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(fd, 4096, 0)
    os.listdir('.')
    os.pwrite(fd, b'y', 0)
    os.fsync(fd)
    os.close(os.open('g', os.O_CREAT | os.O_WRONLY))
    os.unlink('g')
signal.setitimer(signal.ITIMER_REAL, 0)
";
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    let mut child = s
        .mount_in_foreground()
        .stderr(std::fs::File::create(s.path("log")).unwrap())
        .spawn()
        .unwrap();
    until("it is mounted", || s.is_mounted());
    let programs: Vec<_> = (0..3)
        .map(|n| {
            let dir = s.path(format!("mnt/{n}"));
            std::fs::create_dir(&dir).unwrap();
            Command::new("python3")
                .args(["-c", SCRIPT])
                .current_dir(dir)
                .spawn()
                .unwrap()
        })
        .collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    s.ok(["umount", "mnt"]);
    assert!(child.wait().unwrap().success());
    let log = std::fs::read_to_string(s.path("log")).unwrap();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(
        errors.is_empty(),
        "{} lines, such as {}",
        errors.len(),
        errors[0]
    );
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    s.with_pass(["mount", "room", "mnt", "--read-only"]);
    let refused = std::fs::write(s.path("mnt/f"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(s.run(["mkdir", "room:/d"]).code, 1);
    let info: Value = serde_json::from_str(&s.ok(["info", "room", "--json"])).unwrap();
    assert_eq!(info["mounted"]["read_only"], true);
    assert_eq!(info["mounted"]["transport"], common::transport());
}

#[test]
fn a_mount_is_over_io_uring_where_the_kernel_offers_it() {
    if !can_mount() || enable_uring::offered().is_none() {
        return;
    }
    let s = Sandbox::with_room();
    for (options, expected) in [
        (vec![], "io_uring"),
        (vec!["-o", "noio_uring"], "device"),
        // It waits for its own mount.
        (vec!["--confinement", "off"], "device"),
    ] {
        // Not as the first word: the sandbox would add an option of its own.
        let words = ["--quiet", "mount", "room", "mnt"];
        let pass = ["--passphrase-file", "pass"];
        let words: Vec<&str> = words.into_iter().chain(pass).chain(options).collect();
        enable_uring::with_it_enabled(|| s.ok(&words));
        let info: Value = serde_json::from_str(&s.ok(["info", "room", "--json"])).unwrap();
        assert_eq!(info["mounted"]["transport"], expected, "{words:?}");
        s.ok(["umount", "mnt"]);
    }
}

#[test]
fn the_helper_mounts_as_mount_calls_it() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    std::os::unix::fs::symlink(common::program(), s.path("mount.strongroom")).unwrap();
    let options = format!(
        "rw,ro,noauto,_netdev,passphrase-file={}",
        s.path("pass").display()
    );
    let helper = |options: &str| {
        Command::new(s.path("mount.strongroom"))
            .arg(s.path("room"))
            .arg(s.path("mnt"))
            .args(["-n", "-o", options])
            .env("XDG_STATE_HOME", s.path("state"))
            .env("XDG_RUNTIME_DIR", s.path("run"))
            .output()
            .unwrap()
    };
    assert_eq!(helper("frobnicate").status.code(), Some(1));
    let wrong = format!("passphrase-file={}", s.path("wrong").display());
    assert_eq!(helper(&wrong).status.code(), Some(32));
    let done = helper(&options);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(s.is_mounted());
    assert!(std::fs::write(s.path("mnt/f"), "x").is_err());
}

#[test]
fn an_ordinary_user_mounts_and_nobody_else_gets_in() {
    if !can_mount() || !is_root() {
        return;
    }
    let s = Sandbox::of_user(Some(65534));
    // Readable by the user it runs as, wherever the build put it.
    let bin = s.path("strongroom");
    common::copy_program(&common::program(), &bin);
    s.create_as(&bin);
    let pass = ["--passphrase-file", "pass"];
    // What only the kernel can do takes a fusermount3 that asks it to.
    let mount = |options| [&["mount", "room", "mnt", "-o", options][..], &pass].concat();
    let lazily = s.try_as(&bin, 65534, &mount("lazytime"));
    if lazily.code == 0 {
        assert!(mount_words(&s).iter().any(|w| w == "lazytime"));
        s.run_as(&bin, 65534, &["umount", "mnt"], 0);
    } else {
        assert!(lazily.err.contains("leave it out"), "{}", lazily.err);
    }
    let options = "noatime,nodiratime,sync";
    s.run_as(&bin, 65534, &mount(options), 0);
    assert!(s.is_mounted());
    let words = mount_words(&s);
    for word in ["noatime", "sync"] {
        assert!(words.iter().any(|w| w == word), "{word}: {words:?}");
    }
    s.run_as(&bin, 65534, &["cp", "pass", "room:/f"], 0);
    s.run_as(&bin, 65534, &["cat", "room:/f"], 0);
    // Root finds the socket, and sends nothing to another user's process.
    for command in ["info", "ls"] {
        let refused = s.run_as(&bin, 0, &[command, "room"], 4);
        assert!(refused.err.contains("of user 65534"), "{}", refused.err);
    }
    // Another user reaches neither.
    let other = s.run_as(&bin, 65533, &["info", "room"], 1);
    assert!(
        other.err.contains("belongs to another user"),
        "{}",
        other.err
    );
    s.run_as(&bin, 65534, &["umount", "mnt"], 0);
    assert!(!s.is_mounted());
    let owner = std::fs::metadata(s.path("room/header.json")).unwrap().uid();
    assert_eq!(owner, 65534);
}

#[test]
fn the_control_socket_answers_only_whole_and_known_requests() {
    let Some(s) = Sandbox::mounted() else { return };
    let path = s.control();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let ask = |request: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask(b"{\"op\":\"status\"}\n").contains("\"pid\":"));
    for bad in [
        &b""[..],
        b"\n",
        b"{}\n",
        b"{\"op\":\"status\"",
        b"{\"op\":\"status\",\"x\":1}\n",
        b"\xff\xfe\n",
    ] {
        assert!(ask(bad).contains("\"exit\":2"), "{bad:?}");
    }
    let mut stream = UnixStream::connect(&path).unwrap();
    let piece = vec![b'x'; 1 << 20];
    // Refused, or cut off, once it is longer than any request is.
    while stream.write_all(&piece).is_ok() {}
    assert_eq!(s.ok(["ls", "room"]), "");
}

#[test]
fn a_room_with_a_path_too_long_for_a_socket_has_one_all_the_same() {
    let s = Sandbox::empty();
    if !can_mount() {
        return;
    }
    let deep = format!("{0}/{0}", "d".repeat(100));
    std::fs::create_dir_all(s.path(&deep)).unwrap();
    let room = format!("{deep}/room");
    s.with_pass(["create", &room].iter().chain(&CHEAP));
    s.with_pass(["mount", &room, "mnt"]);
    assert_eq!(s.ok(["ls", &room]), "");
    s.ok(["umount", &room]);
}

impl Sandbox {
    fn create_as(&self, bin: &std::path::Path) {
        let args: Vec<&str> = ["create", "room", "--passphrase-file", "pass"]
            .into_iter()
            .chain(CHEAP)
            .collect();
        self.run_as(bin, 65534, &args, 0);
    }

    fn run_as(&self, bin: &std::path::Path, user: u32, args: &[&str], code: i32) -> common::Ran {
        let ran = self.try_as(bin, user, args);
        assert_eq!(ran.code, code, "user {user}, {args:?}: {}", ran.err);
        ran
    }

    fn try_as(&self, bin: &std::path::Path, user: u32, args: &[&str]) -> common::Ran {
        let output = Command::new(bin)
            .args(args)
            .current_dir(self.path(""))
            .env("XDG_STATE_HOME", self.path(format!("state-{user}")))
            .env("HOME", self.path(""))
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null())
            .uid(user)
            .gid(user)
            .output()
            .unwrap();
        common::Ran::from(output)
    }
}
