//! Long work shows how much there is, how fast it goes, and the time left; to a person at a terminal only.

use std::process::Command;

use crate::common::{Sandbox, noise, program};

/// Runs the program at a terminal of its own; what it wrote there.
fn at_a_terminal(s: &Sandbox, args: &str) -> Option<String> {
    let line = format!("{} {args} --passphrase-file pass", program().display());
    let done = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(s.path(""))
        .env("XDG_STATE_HOME", s.path("state"))
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null())
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
