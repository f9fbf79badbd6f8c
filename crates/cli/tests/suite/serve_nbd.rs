//! `strongroom serve nbd`, as a user runs it: images, volumes made by cryptsetup, files of rooms; kills and stops.

mod several;

use crate::common;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{Sandbox, words};

/// A running server; killed when dropped.
struct Serving {
    child: Child,
    /// What it said when it began, one line for each target.
    said: Vec<String>,
}

impl Serving {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        Self::start_of(sandbox, args, 1)
    }

    fn start_of(sandbox: &Sandbox, args: &[&str], targets: usize) -> Self {
        let mut child = sandbox
            .command(["serve", "nbd"].iter().chain(args))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said: Vec<String> = lines
            .by_ref()
            .take(targets)
            .map_while(|line| line.ok())
            .collect();
        if said.len() < targets {
            let mut words = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut words)
                .unwrap();
            let _ = child.wait();
            panic!("{args:?}: {words}");
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.contains("Seccomp:\t2"), "not confined: {status}");
        // What it logs must not fill a pipe that nobody reads.
        let mut log = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, said }
    }

    fn uri(&self) -> &str {
        let (_, uri) = self.said[0].rsplit_once(' ').unwrap();
        uri
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As systemd ends it; its exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether programs are installed; says which is not.
fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    programs.iter().all(|program| {
        let there = dirs.iter().any(|dir| dir.join(program).is_file());
        if !there {
            eprintln!("skipped: {program} is not installed");
        }
        there
    })
}

fn ok(program: &str, args: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("timeout")
        .args(["-k", "5", "120", program])
        .args(args)
        // The distribution's Python first: it is the one that has libnbd's module.
        .env("PATH", format!("/usr/bin:{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {words}");
    String::from_utf8(done.stdout).unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A LUKS2 volume with 24 MiB of contents, by cryptsetup; its passphrase is in `key`.
fn luks(sandbox: &Sandbox) {
    std::fs::write(sandbox.path("key"), "the key").unwrap();
    let image = sandbox.path("luks.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(40 << 20)
        .unwrap();
    let key = text(&sandbox.path("key"));
    ok(
        "cryptsetup",
        &[
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            &key,
            &text(&image),
        ],
    );
}

/// A file system with a file in it, in an image.
fn file_system(sandbox: &Sandbox, size: &str) -> String {
    let data = sandbox.path("data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("file"), "in the file system").unwrap();
    let image = text(&sandbox.path("fs.img"));
    ok("mkfs.ext4", &["-q", "-d", &text(&data), &image, size]);
    image
}

/// Copies the file system in, stops the server, serves again, copies it out, and looks at it.
fn holds_a_file_system(sandbox: &Sandbox, args: &[&str], size: &str) {
    let image = file_system(sandbox, size);
    let serving = Serving::start(sandbox, args);
    ok("nbdcopy", &["--flush", &image, serving.uri()]);
    assert_eq!(serving.stop(), Some(0));
    let serving = Serving::start(sandbox, args);
    let back = text(&sandbox.path("back.img"));
    ok("nbdcopy", &[serving.uri(), &back]);
    ok("e2fsck", &["-f", "-n", &back]);
    assert!(ok("debugfs", &["-R", "cat file", &back]).contains("in the file system"));
    assert_eq!(serving.stop(), Some(0));
}

const FS_TOOLS: [&str; 4] = ["nbdcopy", "mkfs.ext4", "e2fsck", "debugfs"];

#[test]
fn a_volume_of_cryptsetup_holds_a_file_system() {
    if !have(&FS_TOOLS) || !have(&["cryptsetup"]) {
        return;
    }
    let sandbox = Sandbox::empty();
    luks(&sandbox);
    let socket = ["--socket", "socket", "--key-file", "key", "luks.img"];
    holds_a_file_system(&sandbox, &socket, "24M");
    // On disk it is ciphertext, and cryptsetup still opens it.
    let raw = std::fs::read(sandbox.path("luks.img")).unwrap();
    assert!(!raw.windows(18).any(|bytes| bytes == b"in the file system"));
    let (key, image) = (text(&sandbox.path("key")), text(&sandbox.path("luks.img")));
    ok(
        "cryptsetup",
        &["open", "--test-passphrase", "--key-file", &key, &image],
    );
    let wrong = sandbox.run(words(
        "serve nbd --socket socket --passphrase-file wrong luks.img",
    ));
    assert_eq!(wrong.code, 3, "{}", wrong.err);
    assert!(wrong.err.contains("luks.img"), "{}", wrong.err);
}

#[test]
fn a_file_of_a_room_holds_a_file_system_and_is_thin() {
    if !have(&FS_TOOLS) {
        return;
    }
    let sandbox = Sandbox::with_room();
    let file = std::fs::File::create(sandbox.path("empty")).unwrap();
    file.set_len(64 << 20).unwrap();
    sandbox.with_pass(["cp", "empty", "room:/disk.img"]);
    let args = words("--socket socket --passphrase-file pass room:/disk.img");
    holds_a_file_system(&sandbox, &args, "64M");
    sandbox.with_pass(["check", "room", "--read-data"]);
    let stored: u64 = std::fs::read_dir(sandbox.path("room/segments"))
        .unwrap()
        .map(|entry| {
            std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap()) * 512
        })
        .sum();
    assert!(
        stored < 32 << 20,
        "{stored} bytes for a file system with one small file"
    );
}

#[test]
fn a_volume_within_a_file_of_a_room_goes_through_the_server_and_back() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let sandbox = Sandbox::with_room();
    std::fs::write(sandbox.path("key"), "the key").unwrap();
    let make = "volume format v.img --size 24MiB --key-file key --kdf pbkdf2 --kdf-iterations 1000";
    sandbox.ok(words(make));
    sandbox.with_pass(["cp", "v.img", "room:/v.img"]);
    let served = words("--socket socket --passphrase-file pass room:/v.img");
    let exported = |image: &str| {
        let args = ["volume", "export", image, "-", "--key-file", "key"];
        sandbox.run(args).out
    };
    for round in 0..2 {
        let plain = common::noise(8 << 20, round);
        std::fs::write(sandbox.path("plain"), &plain).unwrap();
        // Out through the server, changed as a volume, in through the server.
        let serving = Serving::start(&sandbox, &served);
        let out = text(&sandbox.path("out.img"));
        ok("nbdcopy", &[serving.uri(), &out]);
        sandbox.ok(["volume", "import", "out.img", "plain", "--key-file", "key"]);
        ok("nbdcopy", &["--flush", &out, serving.uri()]);
        serving.kill();
        // The room has the volume's ciphertext, whole, and the volume has the contents.
        std::fs::remove_file(sandbox.path("v.img")).unwrap();
        sandbox.with_pass(["cp", "room:/v.img", "v.img"]);
        assert!(std::fs::read(sandbox.path("v.img")).unwrap() == std::fs::read(&out).unwrap());
        assert!(exported("v.img") == plain, "round {round}");
        std::fs::remove_file(&out).unwrap();
    }
    sandbox.with_pass(["check", "room", "--read-data"]);
}

/// Takes the mount away however the test ends.
struct Fuse(Child, String);

impl Fuse {
    /// The server's first export as the file `disk` of this directory.
    fn over(sandbox: &Sandbox, uri: &str) -> (Self, String) {
        let dir = sandbox.path("mnt");
        std::fs::create_dir_all(&dir).unwrap();
        let disk = text(&dir.join("disk"));
        let child = Command::new("nbdfuse")
            .args([&disk, uri])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut fuse = Self(child, text(&dir));
        let begun = std::time::Instant::now();
        while !Path::new(&disk).exists() {
            assert!(fuse.0.try_wait().unwrap().is_none(), "nbdfuse ended");
            assert!(begun.elapsed().as_secs() < 60, "nbdfuse does not mount");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (fuse, disk)
    }

    /// Unmounts, and waits until it has written all.
    fn end(mut self) {
        ok("fusermount3", &["-u", &self.1]);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let unmount = Command::new("fusermount3").args(["-uz", &self.1]).status();
            let _ = unmount.and_then(|_| self.0.kill());
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_file_system_is_made_and_checked_within_a_served_volume() {
    if !common::can_mount() || !have(&FS_TOOLS) || !have(&["cryptsetup", "nbdfuse", "fusermount3"])
    {
        return;
    }
    let sandbox = Sandbox::empty();
    luks(&sandbox);
    let args = ["--socket", "socket", "--key-file", "key", "luks.img"];
    let serving = Serving::start(&sandbox, &args);
    let (fuse, disk) = Fuse::over(&sandbox, serving.uri());
    ok("mkfs.ext4", &["-q", "-F", &disk]);
    let file = text(&sandbox.path("file"));
    std::fs::write(&file, "in the file system").unwrap();
    ok(
        "debugfs",
        &["-w", "-R", &format!("write {file} file"), &disk],
    );
    ok("e2fsck", &["-f", "-n", &disk]);
    fuse.end();
    assert_eq!(serving.stop(), Some(0));
    let serving = Serving::start(&sandbox, &args);
    let (fuse, disk) = Fuse::over(&sandbox, serving.uri());
    ok("e2fsck", &["-f", "-n", &disk]);
    assert!(ok("debugfs", &["-R", "cat file", &disk]).contains("in the file system"));
    fuse.end();
}

/// Writes numbered blocks, and says after each flush how many there are that must not be lost.
const WRITER: &str = r#"
import sys
h.connect_uri(uri)
n = 0
while True:
    for i in range(8):
        h.pwrite((n.to_bytes(8, "big") * 1024)[:5000], n * 5000)
        n += 1
    h.flush()
    print(n, flush=True)
"#;

const READER: &str = r#"
h.connect_uri(uri)
for n in range(count):
    assert bytes(h.pread(5000, n * 5000)) == (n.to_bytes(8, "big") * 1024)[:5000], n
"#;

/// Kills the server in the midst of writing, twice, and looks for everything that was flushed.
fn keeps_what_was_flushed(sandbox: &Sandbox, args: &[&str]) {
    for kill_after in [3, 17] {
        let serving = Serving::start(sandbox, args);
        let script = format!("uri = {:?}\n{WRITER}", serving.uri());
        let mut writer = Command::new("timeout")
            .args(["-k", "5", "120", "/usr/bin/python3", "-mnbd", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut flushed: u64 = 0;
        for _ in 0..kill_after {
            flushed = lines.next().unwrap().unwrap().parse().unwrap();
        }
        serving.kill();
        // It may have said more before it noticed.
        for line in lines.map_while(|line| line.ok()) {
            flushed = line.parse().unwrap();
        }
        let _ = writer.wait();
        let serving = Serving::start(sandbox, args);
        let script = format!("uri = {:?}\ncount = {flushed}\n{READER}", serving.uri());
        ok("nbdsh", &["-c", &script]);
        assert_eq!(serving.stop(), Some(0));
    }
}

fn have_nbdsh() -> bool {
    have(&["nbdsh"]) && {
        let there = Command::new("/usr/bin/python3")
            .args(["-c", "import nbd"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !there {
            eprintln!("skipped: python3-libnbd is not installed");
        }
        there
    }
}

#[test]
fn what_was_flushed_to_a_volume_survives_kill_9_under_load() {
    if !have(&["cryptsetup"]) || !have_nbdsh() {
        return;
    }
    let sandbox = Sandbox::empty();
    luks(&sandbox);
    keeps_what_was_flushed(
        &sandbox,
        &["--socket", "socket", "--key-file", "key", "luks.img"],
    );
}

#[test]
fn what_was_flushed_to_a_file_of_a_room_survives_kill_9_under_load() {
    if !have_nbdsh() {
        return;
    }
    let sandbox = Sandbox::with_room();
    std::fs::File::create(sandbox.path("empty"))
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    sandbox.with_pass(["cp", "empty", "room:/disk.img"]);
    let args = words("--socket socket --passphrase-file pass room:/disk.img");
    keeps_what_was_flushed(&sandbox, &args);
    sandbox.with_pass(["check", "room", "--read-data"]);
}

#[test]
fn a_volume_is_never_served_as_its_ciphertext_unasked() {
    if !have(&["cryptsetup", "nbdinfo"]) {
        return;
    }
    let sandbox = Sandbox::empty();
    luks(&sandbox);
    // No passphrase: nothing is served rather than the ciphertext.
    let refused = sandbox.run(["serve", "nbd", "--socket", "socket", "luks.img"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    let raw = Serving::start(
        &sandbox,
        &["--socket", "socket", "--format", "raw", "luks.img"],
    );
    assert_eq!(
        ok("nbdinfo", &["--size", raw.uri()]).trim(),
        (40 << 20).to_string()
    );
    drop(raw);
    let plain = Serving::start(
        &sandbox,
        &words("--socket socket --key-file key --read-only luks.img"),
    );
    assert_eq!(
        ok("nbdinfo", &["--size", plain.uri()]).trim(),
        (24 << 20).to_string()
    );
    ok("nbdinfo", &["--is", "read-only", plain.uri()]);
}

#[test]
fn several_targets_are_exports_of_their_names_from_a_file_of_settings() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let sandbox = Sandbox::empty();
    for name in ["a.img", "b c.img"] {
        std::fs::write(sandbox.path(name), vec![1; 8192]).unwrap();
    }
    let settings =
        "target = [\"a.img\", \"b c.img\"]\nlisten = \"127.0.0.1:0\"\nread-only = true\n";
    std::fs::write(sandbox.path("settings.toml"), settings).unwrap();
    let serving = Serving::start_of(&sandbox, &["--config", "settings.toml"], 2);
    let list = ok("nbdinfo", &["--list", serving.uri()]);
    assert!(
        list.contains("export=\"a.img\"") && list.contains("export=\"b c.img\""),
        "{list}"
    );
    assert!(
        serving.said[1].ends_with("/b%20c.img"),
        "{:?}",
        serving.said
    );
    assert_eq!(serving.stop(), Some(0));
}

/// The default was a TCP port, where every user of the machine may read and write.
#[test]
fn unless_asked_only_a_socket_of_this_users_is_listened_on() {
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("a.img"), vec![1; 8192]).unwrap();
    let serving = Serving::start(&sandbox, &["a.img"]);
    let path = sandbox.path(format!("run/strongroom/nbd-{}", serving.child.id()));
    assert_eq!(
        serving.uri(),
        format!("nbd+unix:///?socket={}", path.display())
    );
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // It has no other socket that listens.
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", serving.child.id()))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(link.to_owned())
        })
        .collect();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        let of_server = |line: &&str| {
            let inode = line.split_whitespace().nth(9);
            inode.is_some_and(|inode| inodes.iter().any(|own| own == inode))
        };
        assert_eq!(table.lines().find(of_server), None);
    }
    assert_eq!(serving.stop(), Some(0));
    assert!(!path.exists());
}

#[test]
fn what_others_could_reach_or_destroy_is_refused() {
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("a.img"), vec![1; 8192]).unwrap();
    let refused = |args: &[&str], words: &str| {
        let ran = sandbox.run(["serve", "nbd"].iter().chain(args));
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    };
    refused(&["--listen", "0.0.0.0:0", "a.img"], "require TLS");
    refused(
        &["--tls", "require", "a.img"],
        "certificates or pre-shared keys",
    );
    refused(&["--tls-psk", "missing", "a.img"], "missing");
    refused(&["missing.img"], "missing.img");
    refused(
        &["--export-name", "x", "a.img", "a.img"],
        "--export-name once for each",
    );
    let _first = Serving::start(&sandbox, &["--socket", "socket", "a.img"]);
    refused(&["--socket", "other", "a.img"], "in use by another process");
    std::fs::write(sandbox.path("b.img"), vec![1; 8192]).unwrap();
    refused(&["--socket", "socket", "b.img"], "another server listens");
}

#[test]
fn attach_says_what_is_missing() {
    if Path::new("/dev/nbd0").exists() {
        eprintln!("skipped: there are network block devices here; attaching one is tried by hand");
        return;
    }
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("a.img"), vec![1; 8192]).unwrap();
    let ran = sandbox.run(["volume", "attach", "a.img"]);
    assert_eq!(ran.code, 12, "{}", ran.err);
    assert!(
        ran.err.contains("modprobe nbd") && ran.err.contains("serve nbd"),
        "{}",
        ran.err
    );
    let ran = sandbox.run(["volume", "detach", "/dev/nbd0"]);
    assert_eq!(ran.code, 12, "{}", ran.err);
}
