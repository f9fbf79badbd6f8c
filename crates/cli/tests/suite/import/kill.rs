//! Imports that are killed, and go on.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use super::{import, nothing_is_left, taken_out};
use crate::common::{Sandbox, listing, noise, process::until, words};

#[test]
fn a_directory_whose_import_is_killed_again_and_again_arrives_whole() {
    let s = Sandbox::with_room();
    for dir in 0..10 {
        std::fs::create_dir_all(s.path(format!("tree/{dir}"))).unwrap();
        for file in 0..20_u64 {
            let len = 1000 + 40_000 * file as usize;
            std::fs::write(
                s.path(format!("tree/{dir}/{file}")),
                noise(len, dir * 100 + file + 1),
            )
            .unwrap();
        }
        std::fs::hard_link(
            s.path(format!("tree/{dir}/3")),
            s.path(format!("tree/{dir}/x")),
        )
        .unwrap();
    }
    for round in 0..6 {
        let mut child = s
            .command(["import", "tree", "room:/t", "--passphrase-file", "pass"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(150 + 170 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        s.with_pass(["check", "room"]);
    }
    let report = import(&s, &["tree", "room:/t"]);
    assert_eq!(report["different"], 0, "{report}");
    let out = taken_out(&s, "room:/t");
    assert_eq!(listing(&s.path("tree")), listing(&out));
    nothing_is_left(&out);
    let again = import(&s, &["tree", "room:/t"]);
    assert_eq!(
        (&again["present"], &again["bytes"]),
        (&210.into(), &0.into())
    );
}

/// A stream of ten files and a large one, and how much of it comes before the middle of the large one.
fn stream(s: &Sandbox) -> (Vec<u8>, usize) {
    std::fs::create_dir(s.path("tree")).unwrap();
    for n in 0..10 {
        std::fs::write(s.path(format!("tree/{n}")), noise(100_000, n + 1)).unwrap();
    }
    std::fs::write(s.path("tree/large"), noise(8_000_000, 77)).unwrap();
    let tar = std::process::Command::new("tar")
        .args(["--format=posix", "--sort=name", "-cf", "-", "-C"])
        .arg(s.path("tree"))
        .arg(".")
        .output()
        .unwrap();
    assert!(tar.status.success());
    let middle = tar.stdout.len() - 4_000_000;
    (tar.stdout, middle)
}

/// Begins an import and leaves it waiting for the rest; and a moment before which it had all small files, and after which it had
/// still something to do.
fn begun(s: &Sandbox, stream: &[u8]) -> (Child, SystemTime) {
    let mut child = s
        .command(["import", "--tar", "-", "room", "--passphrase-file", "pass"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // More than the pipe between the two holds.
    let (first, second) = stream.split_at(stream.len() - 2_000_000);
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(first).unwrap();
    let fed = SystemTime::now();
    stdin.write_all(second).unwrap();
    (child, fed)
}

fn goes_on(s: &Sandbox, stream: &[u8]) {
    let ran = s.run_with_input(
        words("import --tar - room --json --passphrase-file pass"),
        stream,
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(report["present"], 10, "{report}");
    assert_eq!(report["bytes"], 8_000_000, "{report}");
}

#[test]
fn what_was_committed_before_a_kill_is_not_copied_again() {
    let s = Sandbox::with_room();
    let (stream, middle) = stream(&s);
    let halved = (0..10).any(|_| {
        let (mut child, fed) = begun(&s, &stream[..middle]);
        // The room commits by itself, every five seconds, and moves into this file what is committed and durable. The log
        // in front of it is written to before there is a commit, and syncing that may take long.
        until("a commit", || {
            std::fs::metadata(s.path("room/catalog.db"))
                .and_then(|meta| meta.modified())
                .is_ok_and(|time| time > fed)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        // A commit that began before all of it was fed, and ended after, has less.
        let stat = s.run(["stat", "--json", "room:/large", "--passphrase-file", "pass"]);
        let size = |stat: serde_json::Value| stat["size"].as_u64().unwrap();
        stat.code == 0 && size(serde_json::from_str(&stat.text()).unwrap()) < 8_000_000
    });
    assert!(halved, "no kill came after a commit of half a file");
    goes_on(&s, &stream);
    let out = taken_out(&s, "room:/");
    assert_eq!(listing(&s.path("tree")), listing(&out));
    nothing_is_left(&out);
}

/// What failed: an import that was stopped in the last file of its stream went on to compare everything, and ended with exit code 1.
#[test]
fn an_import_that_is_stopped_says_so_and_goes_on() {
    let s = Sandbox::with_room();
    let (stream, middle) = stream(&s);
    let (mut child, _) = begun(&s, &stream[..middle]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // It may have ended before all of it was read.
    let _ = child.stdin.take().unwrap().write_all(&stream[middle..]);
    assert_eq!(child.wait().unwrap().code(), Some(14));
    assert!(!s.with_pass(["ls", "room"]).contains("large"));
    goes_on(&s, &stream);
    nothing_is_left(&taken_out(&s, "room:/"));
}

#[test]
fn what_came_into_a_mounted_room_before_a_kill_is_not_copied_again() {
    let s = Sandbox::with_room();
    let (stream, middle) = stream(&s);
    if !s.mount() {
        return;
    }
    let (mut child, _) = begun(&s, &stream[..middle]);
    until("half a file", || {
        std::fs::metadata(s.path("mnt/large")).is_ok_and(|meta| meta.len() > 1_000_000)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    goes_on(&s, &stream);
    assert_eq!(listing(&s.path("tree")), listing(&s.path("mnt")));
    nothing_is_left(&s.path("mnt"));
    s.umount();
}

#[test]
fn a_mounted_room_whose_process_dies_ends_the_import_with_one_message() {
    let s = Sandbox::with_room();
    let (stream, middle) = stream(&s);
    if !s.mount() {
        return;
    }
    let mut child = s
        .command(["import", "--tar", "-", "room"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&stream[..middle]).unwrap();
    until("half a file", || {
        std::fs::metadata(s.path("mnt/large")).is_ok_and(|meta| meta.len() > 1_000_000)
    });
    s.kill_after(Duration::ZERO).join().unwrap();
    // It may have ended already.
    let _ = stdin.write_all(&stream[middle..]);
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success());
    assert_eq!(
        said.lines()
            .filter(|line| line.starts_with("strongroom:"))
            .count(),
        1,
        "{said}"
    );
    s.clear_after_kill();
    let ran = s.run_with_input(
        ["import", "--tar", "-", "room", "--passphrase-file", "pass"],
        &stream,
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(listing(&s.path("tree")), listing(&taken_out(&s, "room:/")));
}
