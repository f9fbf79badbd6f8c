//! `strongroom bench` starts the program `strongroom-bench`: how it is found, what it gets and what comes back.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Sandbox, program};

/// A copy of `strongroom` alone in a directory, and what it gets for PATH.
struct Alone {
    sandbox: Sandbox,
}

impl Alone {
    fn new() -> Self {
        let sandbox = Sandbox::empty();
        for directory in ["bin", "path"] {
            fs::create_dir(sandbox.path(directory)).unwrap();
        }
        let copy = sandbox.path("bin/strongroom");
        shell("cp \"$1\" \"$2\"", &[&program(), &copy]);
        Self { sandbox }
    }

    /// Puts a shell script under the name of the benchmark's program.
    fn script(&self, directory: &str, body: &str) {
        let file = self.sandbox.path(directory).join("strongroom-bench");
        let script = format!("#!/bin/sh\n{body}\n");
        let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
        shell(write, &[Path::new(&script), &file]);
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.sandbox.path("bin/strongroom"))
            .args(arguments)
            .env("PATH", self.sandbox.path("path"))
            .output()
            .unwrap()
    }
}

/// Programs are written by another process: one that this process has open for writing, if only in a child that another
/// test is starting, cannot be executed.
fn shell(command: &str, arguments: &[&Path]) {
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", command, "sh"]).args(arguments).status();
    assert!(done.unwrap().success());
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn an_absent_program_is_named_with_what_to_do() {
    let alone = Alone::new();
    // A file that cannot be executed is none.
    fs::write(alone.sandbox.path("path/strongroom-bench"), "").unwrap();
    for arguments in [&["bench", "cost"][..], &["help", "bench"]] {
        let ran = alone.run(arguments);
        assert_eq!(ran.status.code(), Some(1));
        let said = text(&ran.stderr);
        assert!(said.contains("strongroom-bench is not installed"), "{said}");
        assert!(said.contains("install the package"), "{said}");
    }
    let script = alone.run(&["completions", "bash"]);
    assert!(text(&script.stdout).contains("umount"));
    let pages = alone.sandbox.path("pages");
    assert!(
        alone
            .run(&["man", pages.to_str().unwrap()])
            .status
            .success()
    );
    assert!(pages.join("strongroom-bench.1").exists());
}

#[test]
fn the_one_beside_strongroom_comes_before_path() {
    let alone = Alone::new();
    alone.script("path", "echo in PATH");
    assert_eq!(text(&alone.run(&["bench"]).stdout), "in PATH\n");
    alone.script("bin", "echo beside");
    assert_eq!(text(&alone.run(&["bench"]).stdout), "beside\n");
    // mount(8) finds its helper by such a link: what is beside its target counts.
    symlink("../bin/strongroom", alone.sandbox.path("path/linked")).unwrap();
    let linked = Command::new(alone.sandbox.path("path/linked"))
        .arg("bench")
        .output();
    assert_eq!(text(&linked.unwrap().stdout), "beside\n");
}

#[test]
fn arguments_exit_codes_and_signals_pass_through() {
    let alone = Alone::new();
    alone.script(
        "bin",
        r#"printf '%s|' "$@"; [ -x "$STRONGROOM_PROGRAM" ] || exit 99; exit 37"#,
    );
    for (arguments, got) in [
        (&["bench", "cost", "--help"][..], "cost|--help|"),
        (&["bench", "--help"], "--help|"),
        (&["bench", "-V"], "-V|"),
        (
            &["bench", "dd", "a b", "--read", "4KiB:1GiB"],
            "dd|a b|--read|4KiB:1GiB|",
        ),
        (
            &["--json", "-v", "bench", "cost", "-v"],
            "--json|--verbose|cost|-v|",
        ),
        (&["-q", "bench", "clean"], "--quiet|clean|"),
        (&["help", "bench", "cost"], "help|cost|"),
    ] {
        let ran = alone.run(arguments);
        assert_eq!(text(&ran.stdout), got);
        assert_eq!(ran.status.code(), Some(37), "{arguments:?}");
    }
    alone.script("bin", "kill -KILL $$");
    assert_eq!(alone.run(&["bench", "cost"]).status.signal(), Some(9));
}

#[test]
fn help_completions_and_manual_pages_have_the_measurements() {
    let s = Sandbox::empty();
    let help = s.ok(["bench", "--help"]);
    assert!(help.contains("Usage: strongroom bench"), "{help}");
    assert!(help.contains("small-files"), "{help}");
    assert_eq!(
        s.ok(["help", "bench", "cost"]),
        s.ok(["bench", "cost", "--help"])
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = s.ok(["completions", shell]);
        for word in ["umount", "small-files", "drop-caches"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    s.ok(["man", "pages"]);
    for page in [
        "strongroom.1",
        "strongroom-bench.1",
        "strongroom-bench-cost.1",
    ] {
        assert!(s.path("pages").join(page).exists(), "{page}");
    }
    assert_eq!(s.run(["bench", "nonsense"]).code, 2);
}

#[test]
fn the_product_carries_no_published_figures() {
    let has = |program: &Path| {
        let bytes = fs::read(program).unwrap();
        bytes.windows(7).any(|word| word == b"Nexus 6")
    };
    assert!(!has(&program()));
    assert!(has(Path::new(env!("CARGO_BIN_EXE_strongroom-bench"))));
}
