//! What is left of a run that ends before it is done.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{left, mounts};
use crate::common::{self, Sandbox, process::until};

/// More rounds than anybody waits for.
const ENDLESS: [&str; 8] = [
    "--rounds",
    "1000",
    "--size",
    "4MiB",
    "--seconds",
    "0.2",
    "--only",
    "random",
];

fn start(sandbox: &Sandbox, args: &[&str]) -> Child {
    let all = ["bench"]
        .iter()
        .chain(args)
        .chain(&ENDLESS)
        .chain(&["--json"]);
    sandbox
        .command(all)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Until the large file is there: the measurement is under way.
fn wait_until_it_measures(sandbox: &Sandbox) {
    until("a work directory with a file in it", || {
        let entries = std::fs::read_dir(sandbox.path("")).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains("/.strongroom-bench-"))
            .any(|path| path.join("data").exists() || path.join("mnt/data").exists())
    });
}

#[test]
fn ctrl_c_prints_what_is_done_and_leaves_nothing() {
    let sandbox = Sandbox::empty();
    let kinds: &[&str] = match common::can_mount() {
        true => &["directory:.", "mounted:."],
        false => &["directory:."],
    };
    for kind in kinds {
        let child = start(&sandbox, &["storage", kind]);
        wait_until_it_measures(&sandbox);
        send(&child, Signal::INT);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(14), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(report["interrupted"], true);
        assert_eq!(left(&sandbox), [""; 0], "{kind}");
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_clean_and_not_before_it_ended() {
    if !common::can_mount() {
        return;
    }
    let sandbox = Sandbox::empty();
    std::fs::write(sandbox.path("precious"), "mine").unwrap();
    let mut child = start(&sandbox, &["compare", "directory:.", "mounted:."]);
    wait_until_it_measures(&sandbox);
    until("the mount", || !mounts(&sandbox).is_empty());
    sandbox.ok(["bench", "clean"]);
    assert!(
        child.try_wait().unwrap().is_none(),
        "it goes on undisturbed"
    );
    assert!(!left(&sandbox).is_empty(), "what a living run needs stays");
    send(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(!left(&sandbox).is_empty(), "killed, it leaves what it had");
    sandbox.ok(["bench", "clean"]);
    assert_eq!(left(&sandbox), [""; 0]);
    assert_eq!(std::fs::read(sandbox.path("precious")).unwrap(), b"mine");
    sandbox.ok(["bench", "clean"]);
}

#[test]
fn what_a_killed_run_left_in_a_room_is_removed_with_the_rooms_key() {
    let sandbox = Sandbox::with_room();
    sandbox.with_pass(["mkdir", "room:/mine"]);
    let args = ["storage", "room", "--passphrase-file", "pass"];
    let mut child = start(&sandbox, &args);
    until("the run file", || {
        left(&sandbox).iter().any(|name| name.ends_with(".json"))
    });
    // Long enough for it to be somewhere in its work; where does not matter.
    std::thread::sleep(Duration::from_millis(500));
    send(&child, Signal::KILL);
    child.wait().unwrap();
    let wrong = sandbox.run(["bench", "clean", "--passphrase-file", "wrong"]);
    assert_eq!(wrong.code, 1, "{}", wrong.err);
    assert!(
        !left(&sandbox).is_empty(),
        "what is not removed is not forgotten"
    );
    sandbox.with_pass(["bench", "clean"]);
    assert_eq!(left(&sandbox), [""; 0]);
    assert_eq!(sandbox.with_pass(["ls", "room:/"]).trim(), "mine");
}
