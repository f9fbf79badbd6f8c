//! The contract that every binding keeps (tests/contract/cases.tsv), in C.

mod common;

use std::fs;
use std::path::Path;

use common::{Work, root, say, succeeded};

#[test]
fn the_c_library_keeps_the_contract() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let work = Work::with("libstrongroom.so", "libstrongroom.so.0");
    let mut sources: Vec<_> = fs::read_dir(here.join("tests/c"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let program = work.compile(&sources, &here.join("include"), &[], "contract");
    let mut run = work.command(program);
    run.arg(root().join("tests/contract/cases.tsv"))
        .arg(work.fresh("cases"));
    let output = succeeded(&mut run);
    for line in output.lines().filter(|line| !line.starts_with("ok ")) {
        say(line);
    }
}
