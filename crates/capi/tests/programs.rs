//! The examples, as a newcomer compiles and runs them: plainly, under the sanitizer of addresses, under valgrind, and installed.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Work, built, have, output_of, root, say, succeeded};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn include() -> PathBuf {
    here().join("include")
}

fn work() -> Work {
    let work = Work::with("libstrongroom.so", "libstrongroom.so.0");
    fs::write(work.path().join("key"), [7; 32]).unwrap();
    work
}

/// Compiles all examples with these flags and runs each with `runner` before it, twice over where it may be.
fn examples_run(flags: &[&str], runner: &[&str]) {
    let work = work();
    let room = |name: &str| work.path().join(name).display().to_string();
    let run = |example: &str, arguments: &[&str]| {
        let source = here().join(format!("examples/{example}.c"));
        let program = work.compile(&[source], &include(), flags, example);
        let mut words = runner.iter().map(Path::new).chain([program.as_path()]);
        succeeded(
            work.command(words.next().unwrap())
                .args(words)
                .args(arguments),
        )
    };
    let expected = "Nobody reads this without the passphrase.\n";
    assert_eq!(run("first", &[&room("first.room")]), expected);
    assert_eq!(run("first", &[&room("first.room")]), expected);
    let big = work.path().join("big");
    fs::write(&big, vec![1; 3 << 20]).unwrap();
    let big = big.display().to_string();
    let listed = run("copy", &[&room("copy.room"), "key", &big, "key"]);
    assert!(
        listed.contains("3145728 big\n") && listed.contains("32 key\n"),
        "{listed}"
    );
    let snapshots = run("snapshots", &[&room("snapshots.room")]);
    assert_eq!(
        snapshots,
        "Dear Ada\nchanged since: /letter.txt\nDear Ada\nautomatic snapshots created: 1\n"
    );
    let threads = run("threads", &[&room("threads.room")]);
    assert!(threads.contains("1260 bytes of log\n"), "{threads}");
}

/// A program with this body of `main` fails when it is compiled and run so: the check under which the examples run does see something.
fn sees(body: &str, flags: &[&str], runner: &[&str]) {
    let work = work();
    let source = work.path().join("wrong.c");
    let text = format!("#include <stdlib.h>\nint main(void) {{ {body} }}\n");
    fs::write(&source, text).unwrap();
    let program = work.compile(&[source], &include(), flags, "wrong");
    let mut words = runner.iter().map(Path::new).chain([program.as_path()]);
    let output = work
        .command(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(!output.status.success(), "not seen: {}", output_of(&output));
}

const LEAK: &str = "char *volatile p = malloc(10); p[0] = 1; p = 0; return 0;";
const FREED: &str = "char *volatile p = malloc(10); p[0] = 1; free(p); return p[0] == 2;";

#[test]
fn the_examples_run() {
    examples_run(&["-Wpedantic"], &[]);
}

#[test]
fn the_ladder_says_what_the_comparison_of_languages_asks_for() {
    let work = work();
    fs::write(work.path().join("source"), vec![5; 2 << 20]).unwrap();
    let source = here().join("examples/ladder.c");
    let program = work.compile(&[source], &include(), &[], "ladder");
    let said = succeeded(
        work.command(program)
            .args(["ladder.room", "source", "1000"]),
    );
    for key in [
        "{\"language\":\"c\",\"write_MiB_s\":{\"1048576\":",
        "\"256\":",
        "},\"call_ns\":",
        "\"copy_MiB_s\":",
    ] {
        assert!(said.contains(key), "{key}: {said}");
    }
}

#[test]
fn the_examples_run_under_the_address_sanitizer() {
    // Leaks are looked for too, and nothing is excused.
    let flags = [
        "-fsanitize=address,undefined",
        "-fno-omit-frame-pointer",
        "-fno-sanitize-recover=all",
    ];
    let none = Vec::from(["env", "ASAN_OPTIONS=detect_leaks=1"]);
    sees(LEAK, &flags, &none);
    sees(
        FREED,
        &[&flags[..], &["-Wno-use-after-free"]].concat(),
        &none,
    );
    examples_run(&flags, &none);
}

#[test]
fn the_examples_run_under_valgrind() {
    if !have("valgrind") {
        say("left out: there is no valgrind here (scripts/setup.sh test installs it)");
        return;
    }
    // Nothing is excused.
    let runner = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ];
    sees(LEAK, &[], &runner);
    sees(FREED, &["-Wno-use-after-free"], &runner);
    examples_run(&[], &runner);
}

/// The names that nm finds defined in a library.
fn exported(library: &Path) -> BTreeSet<String> {
    let output = succeeded(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    output
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_library_has_the_functions_of_the_header_and_nothing_else() {
    let header = fs::read_to_string(include().join("strongroom.h")).unwrap();
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with(' '))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("strongroom_"))
        .map(str::to_owned)
        .collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(exported(&built("libstrongroom.so")), declared);
}

#[test]
fn every_function_says_whether_threads_may_call_it() {
    let header = fs::read_to_string(include().join("strongroom.h")).unwrap();
    let (mut said, mut functions) = (false, 0);
    for line in header.lines() {
        if line.starts_with("//") {
            said |= line.contains("Thread safety:");
        } else if !line.starts_with(' ') && line.contains("strongroom_") && line.contains('(') {
            assert!(said, "{line}");
            functions += 1;
            said = false;
        } else if line.is_empty() {
            said = false;
        }
    }
    assert!(functions > 40);
}

#[test]
fn an_installed_library_is_found_by_pkg_config_and_links_both_ways() {
    let work = work();
    let built = built("libstrongroom.so");
    let to = work.path().join("root");
    let prefix = to.join("usr");
    succeeded(
        Command::new(root().join("scripts/install-capi.sh"))
            .arg(built.parent().unwrap())
            .arg("")
            .arg(&prefix),
    );
    let example = here().join("examples/threads.c");
    for (kind, more) in [("shared", ""), ("static", "--static")] {
        let program = work.path().join(kind);
        // As a newcomer would: the shell takes the answer apart.
        let line = format!(
            "cc -std=c11 '{}' $(pkg-config --cflags --libs {more} strongroom) -lpthread -o '{}'",
            example.display(),
            program.display()
        );
        if kind == "static" {
            fs::remove_file(prefix.join("lib/libstrongroom.so")).unwrap();
        }
        succeeded(
            Command::new("sh")
                .args(["-c", &line])
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
        );
        let mut run = work.command(&program);
        run.arg(work.path().join(format!("{kind}.room")));
        if kind == "shared" {
            run.env("LD_LIBRARY_PATH", prefix.join("lib"));
        }
        succeeded(&mut run);
    }
}
