//! A move from other encrypting file systems, with their own programs.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{import, state, taken_out};
use crate::common::{Sandbox, can_mount, listing, noise, process::until, words};

const PASSPHRASE: &str = "a passphrase of theirs";

/// Runs a program with the passphrase for its standard input, twice: some ask again.
fn run(program: &str, args: &[&str], environment: &[(&str, &str)]) -> bool {
    let child = Command::new(program)
        .args(args)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: {program} is not installed");
        return false;
    };
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(format!("{PASSPHRASE}\n{PASSPHRASE}\n").as_bytes());
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{program} {args:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    true
}

fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .any(|line| line.split(' ').nth(4) == path.to_str())
}

/// A program in the foreground that has a directory mounted.
struct Mount {
    child: Child,
    at: std::path::PathBuf,
}

impl Mount {
    fn new(program: &str, args: &[&str], at: &Path, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(format!("{PASSPHRASE}\n").as_bytes())
            .unwrap();
        drop(stdin);
        let mount = Self {
            child,
            at: at.to_owned(),
        };
        until(&format!("{program} mounts"), || is_mounted(at));
        mount
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(&self.at)
            .status()
            .or_else(|_| Command::new("fusermount").arg("-u").arg(&self.at).status());
        let began = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none())
            && began.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fill(at: &Path) {
    std::fs::create_dir(at.join("papers")).unwrap();
    for n in 0..8_u64 {
        std::fs::write(
            at.join(format!("papers/{n}")),
            noise(30_000 * n as usize, n + 1),
        )
        .unwrap();
    }
    std::fs::write(at.join("with ü and [brackets]"), "x").unwrap();
    std::os::unix::fs::symlink("papers/3", at.join("link")).unwrap();
    std::fs::set_permissions(
        at.join("papers/2"),
        std::os::unix::fs::PermissionsExt::from_mode(0o640),
    )
    .unwrap();
}

/// Creates a directory of the other program, imports it, compares, and checks that it was neither changed nor left mounted.
fn moves(program: &str, make: &[&str], mount: &[&str], environment: &[(&str, &str)]) {
    if !can_mount() {
        return;
    }
    let s = Sandbox::with_room();
    let (cipher, plain) = (s.path("cipher"), s.path("plain"));
    std::fs::create_dir(&cipher).unwrap();
    std::fs::create_dir(&plain).unwrap();
    std::fs::write(s.path("their.pass"), format!("{PASSPHRASE}\n")).unwrap();
    let filled = |args: &[&str]| -> Vec<String> {
        args.iter()
            .map(|arg| match *arg {
                "SOURCE" => cipher.display().to_string(),
                "PLAIN" => plain.display().to_string(),
                "PASS" => s.path("their.pass").display().to_string(),
                other => other.to_owned(),
            })
            .collect()
    };
    // What they remember of a file system is their own matter.
    let home = s.path("home");
    std::fs::create_dir_all(&home).unwrap();
    let mut all = environment.to_vec();
    let home = home.display().to_string();
    all.push(("HOME", home.as_str()));
    let made = filled(make);
    if !make.is_empty()
        && !run(
            program,
            &made.iter().map(String::as_str).collect::<Vec<_>>(),
            &all,
        )
    {
        return;
    }
    if make.is_empty() && Command::new(program).arg("--version").output().is_err() {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let mounted = filled(mount);
    let mounted = Mount::new(
        program,
        &mounted.iter().map(String::as_str).collect::<Vec<_>>(),
        &plain,
        &all,
    );
    fill(&plain);
    let wanted = listing(&plain);
    drop(mounted);
    assert!(!is_mounted(&plain));
    // CryFS makes and removes a file of its own in its directory whenever it is mounted: that alone changes.
    let files_of = |cipher: &std::path::Path| {
        let mut found = state(cipher);
        if program == "cryfs" {
            found.remove(cipher);
        }
        found
    };
    let before = files_of(&cipher);
    let wrong = s.fails(
        1,
        words("import cipher room --source-passphrase-file wrong"),
    );
    assert!(wrong.contains("is the passphrase right"), "{wrong}");
    let none = s.fails(2, ["import", "cipher", "room"]);
    assert!(none.contains("--source-passphrase-file"), "{none}");
    let report = import(
        &s,
        &words("cipher room:/moved --source-passphrase-file their.pass"),
    );
    assert_eq!(report["different"], 0, "{report}");
    let out = taken_out(&s, "room:/moved");
    // What a directory says of its own size and time differs by mount; its files must not.
    let files = |lines: &[String]| -> Vec<String> { lines[1..].to_vec() };
    assert_eq!(files(&wanted), files(&listing(&out)));
    assert!(
        files_of(&cipher) == before,
        "{program}: its directory was changed"
    );
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&*cipher.display().to_string()), "{table}");
    let again = import(
        &s,
        &words("cipher room:/moved --source-passphrase-file their.pass"),
    );
    assert_eq!(again["bytes"], 0, "{again}");
}

#[test]
fn a_gocryptfs_directory_moves() {
    moves(
        "gocryptfs",
        &words("-init -q -scryptn 10 -passfile PASS SOURCE"),
        &["-fg", "-q", "-nosyslog", "SOURCE", "PLAIN"],
        &[],
    );
}

#[test]
fn a_cryfs_directory_moves() {
    let environment = [
        ("CRYFS_FRONTEND", "noninteractive"),
        ("CRYFS_NO_UPDATE_CHECK", "true"),
    ];
    moves("cryfs", &[], &["-f", "SOURCE", "PLAIN"], &environment);
}

#[test]
fn an_encfs_directory_moves() {
    moves(
        "encfs",
        &[],
        &["-f", "--standard", "--stdinpass", "SOURCE", "PLAIN"],
        &[],
    );
}

#[test]
fn a_securefs_directory_moves() {
    moves(
        "securefs",
        &["create", "--rounds", "1", "SOURCE"],
        &["mount", "SOURCE", "PLAIN"],
        &[],
    );
}

#[test]
fn a_killed_import_leaves_no_mount_and_goes_on() {
    if !can_mount() {
        return;
    }
    let s = Sandbox::with_room();
    let (cipher, plain) = (s.path("cipher"), s.path("plain"));
    std::fs::create_dir(&cipher).unwrap();
    std::fs::create_dir(&plain).unwrap();
    std::fs::write(s.path("their.pass"), format!("{PASSPHRASE}\n")).unwrap();
    let (pass, cipher) = (
        s.path("their.pass").display().to_string(),
        cipher.display().to_string(),
    );
    if !run(
        "gocryptfs",
        &["-init", "-q", "-scryptn", "10", "-passfile", &pass, &cipher],
        &[],
    ) {
        return;
    }
    let mounted = Mount::new(
        "gocryptfs",
        &[
            "-fg",
            "-q",
            "-nosyslog",
            &cipher,
            &plain.display().to_string(),
        ],
        &plain,
        &[],
    );
    for n in 0..40 {
        std::fs::write(plain.join(n.to_string()), noise(400_000, n + 1)).unwrap();
    }
    let wanted = listing(&plain);
    drop(mounted);
    // Not by looking into it: a program killed at a bad moment leaves a mount that never answers.
    let is_there = || {
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .any(|line| line.contains(&cipher))
    };
    let args = words(
        "import cipher room:/moved --source-passphrase-file their.pass --passphrase-file pass",
    );
    let mut child = s.command(&args).stderr(Stdio::null()).spawn().unwrap();
    until("it is mounted", is_there);
    child.kill().unwrap();
    child.wait().unwrap();
    s.ok(args);
    assert_eq!(wanted[1..], listing(&taken_out(&s, "room:/moved"))[1..]);
    assert!(!is_there());
}
