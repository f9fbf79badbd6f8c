//! A C program that knows nothing but sqlfs.h runs what libsqlfs's own tests run.

#[path = "../../capi/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Work, built, say, succeeded};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(flags: &[&str]) -> String {
    let work = Work::with("libsqlfs.so", "libsqlfs.so.1");
    let source = here().join("tests/c/cases.c");
    let program = work.compile(&[source], &here().join("include"), flags, "cases");
    succeeded(work.command(program).arg(work.fresh("containers")))
}

#[test]
fn a_program_of_libsqlfs_runs_on_rooms() {
    let output = run(&[]);
    let done = output
        .lines()
        .filter(|line| line.starts_with("ok "))
        .count();
    assert_eq!(done, 18, "{output}");
    say(&format!("libsqlfs's cases: {done} passed"));
}

#[test]
fn the_example_runs_on_a_new_room_and_on_one_that_is_there() {
    let work = Work::with("libsqlfs.so", "libsqlfs.so.1");
    let source = here().join("examples/notes.c");
    let program = work.compile(&[source], &here().join("include"), &["-Wpedantic"], "notes");
    for _ in 0..2 {
        let room = work.path().join("notes.strongroom");
        let said = succeeded(work.command(&program).arg(room));
        assert_eq!(said, "Remember the milk.\n");
    }
}

#[test]
fn it_runs_under_the_address_sanitizer() {
    run(&[
        "-fsanitize=address,undefined",
        "-fno-omit-frame-pointer",
        "-fno-sanitize-recover=all",
    ]);
}

#[test]
fn the_library_has_the_functions_of_the_header_and_nothing_else() {
    let header = fs::read_to_string(here().join("include/sqlfs.h")).unwrap();
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect();
    let output = succeeded(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(built("libsqlfs.so")),
    );
    let exported: BTreeSet<_> = output
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, declared);
}
