//! Long work shows how much there is, how fast it goes, and the time left; to a person at a terminal only.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::common::{Sandbox, noise, program};

/// Runs the program at a terminal of its own; what it wrote there.
fn at_a_terminal(s: &Sandbox, args: &str) -> Option<String> {
    let line = format!("{} {args} --passphrase-file pass", program().display());
    let done = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(s.path(""))
        .env("XDG_STATE_HOME", s.path("state"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output();
    let Ok(done) = done else {
        eprintln!("skipped: there is no script(1)");
        return None;
    };
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{args}: {said}");
    Some(said)
}

/// What failed: `cp` showed a spinner and what was done, and not how much there was.
#[test]
fn a_copy_shows_total_rate_and_time_left() {
    let s = Sandbox::with_room();
    std::fs::create_dir_all(s.path("tree/sub")).unwrap();
    for n in 0..8 {
        let bytes = noise(2 << 20, n);
        std::fs::write(s.path(format!("tree/sub/{n}")), bytes).unwrap();
    }
    for (args, total) in [
        ("cp -r tree room:/a", "16.00 MiB"),
        ("cp -r room:/a out", "16.00 MiB"),
        ("import tree room:/b", "16.00 MiB"),
        ("export room:/a --tar a.tar", "16.00 MiB"),
        ("rm -r room:/a", "/10"),
        ("backup room copy", "MiB"),
    ] {
        let Some(said) = at_a_terminal(&s, args) else {
            return;
        };
        for part in [total, "/s", " left"] {
            assert!(said.contains(part), "{args}: no {part} in {said}");
        }
    }
    // Not where nobody reads it.
    let ran = s.run(["cp", "-r", "tree", "room:/c", "--passphrase-file", "pass"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

/// What failed: Ctrl-C at a question for a passphrase ended the program while the terminal showed nothing of what is typed, and it
/// stayed so.
#[test]
fn a_terminal_shows_again_what_is_typed_after_ctrl_c_at_a_passphrase() {
    let s = Sandbox::with_room();
    for (args, prompt) in [
        ("ls room", "Passphrase for room: "),
        ("create other", "New passphrase for other: "),
    ] {
        let line = format!("{} {args}; echo code $?; stty -a", program().display());
        let started = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(s.path(""))
            .env("XDG_STATE_HOME", s.path("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut script) = started else {
            eprintln!("skipped: there is no script(1)");
            return;
        };
        let (mut typed, mut out) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let mut said = Vec::new();
        while !said.ends_with(prompt.as_bytes()) {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        typed.write_all(b"\x03").unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        script.wait().unwrap();
        assert!(rest.contains("code 14"), "{rest}");
        for mode in [" echo ", " icanon ", "isig "] {
            assert!(rest.contains(mode), "{mode}: {rest}");
        }
    }
    assert!(!s.path("other").exists());
}
