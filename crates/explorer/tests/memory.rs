//! Memory that SQLite is refused: the room says so, and what it acknowledged is there when it is opened again.
//!
//! The limit is SQLite's own (`hard_heap_limit`); it holds for a whole process and is never raised again, so each limit
//! is tried in a process of its own. Memory refused to the rest of the program ends the process, as Rust's allocator
//! does: that is a crash, and the explorer's business.

#![allow(missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use explorer::faults::Reference;
use explorer::image::{Entry, Image};
use explorer::verify::{How, verify};
use explorer::workload::{Session, Workload};
use storage::HostStorage;

const LIMIT: &str = "STRONGROOM_MEMORY_LIMIT";
/// Set where the limit comes when the room is open already.
const OPENED: &str = "STRONGROOM_MEMORY_OPENED";
const ROOM: &str = "STRONGROOM_MEMORY_ROOM";

fn workload() -> Workload {
    "start tree
    create bar
    write bar 0 70000
    set-xattr bar user.a 5000
    sync
    copy foo 0 bar 0 32768
    rename A B/A
    insert foo 8192 4096
    sync
    unlink foo
    add-slot 1
    append bar 3000
    compact 100
    check
    close"
        .parse()
        .unwrap()
}

fn write_out(image: &Image, dir: &Path) {
    for (path, entry) in image.entries() {
        match entry {
            Entry::Dir => fs::create_dir(dir.join(path)).unwrap(),
            Entry::File(content) => fs::write(dir.join(path), content.bytes()).unwrap(),
        }
    }
}

/// Runs the workload in the room that the environment names, with as little memory as it says, and prints how far it
/// came.
#[test]
#[ignore = "a part of the test below, which starts it"]
fn a_process_with_little_memory() {
    let (Some(room), Some(limit)) = (std::env::var_os(ROOM), std::env::var_os(LIMIT)) else {
        return;
    };
    let storage = Arc::new(HostStorage::open(Path::new(&room)).unwrap());
    let limiter = rusqlite::Connection::open_in_memory().unwrap();
    let sql = format!("PRAGMA hard_heap_limit = {}", limit.to_str().unwrap());
    let refuse = || limiter.query_row(&sql, (), |_| Ok(())).unwrap();
    let opened_first = std::env::var_os(OPENED).is_some();
    if !opened_first {
        refuse();
    }
    let mut session = match Session::open(storage) {
        Ok(session) => session,
        Err(e) => {
            println!("\nfailed 0 {e}");
            return;
        }
    };
    if opened_first {
        refuse();
    }
    for (number, step) in (1..).zip(&workload().steps) {
        match session.step(number, step) {
            Ok(()) if step.is_durable() => println!("\ndurable {number}"),
            Ok(()) => {}
            Err(e) => {
                println!("\nfailed {number} {e}");
                return;
            }
        }
    }
}

#[test]
fn memory_that_sqlite_is_refused_costs_nothing_acknowledged() {
    let workload = workload();
    let reference = Reference::of(&workload).unwrap();
    let how = How {
        thorough: true,
        accept_old_header: false,
        timeless: true,
        blended: false,
    };
    let limits = |from: u64, to: u64, part: u64| {
        std::iter::successors(Some(from), move |limit| Some(limit + limit / part))
            .take_while(move |limit| *limit < to)
    };
    let (mut failed, mut began, mut whole) = (0, 0, 0);
    let before = limits(60_000, 900_000, 8).map(|limit| (limit, false));
    let after = limits(150_000, 900_000, 20).map(|limit| (limit, true));
    for (limit, opened_first) in before.chain(after) {
        let dir = tempfile::tempdir().unwrap();
        write_out(&reference.start, dir.path());
        let mut command = Command::new(std::env::current_exe().unwrap());
        if opened_first {
            command.env(OPENED, "1");
        }
        let output = command
            .args("--ignored --exact a_process_with_little_memory --nocapture".split(' '))
            .env(ROOM, dir.path())
            .env(LIMIT, limit.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{limit} bytes: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Nobody waits for memory.
        assert!(!said.contains("does not start"), "{limit} bytes: {said}");
        let durable = said
            .lines()
            .filter_map(|line| line.strip_prefix("durable ")?.parse::<usize>().ok())
            .next_back()
            .unwrap_or(0);
        match said.lines().find_map(|line| line.strip_prefix("failed ")) {
            Some(what) => {
                failed += 1;
                began += usize::from(!what.starts_with("0 "));
                println!("{limit} bytes: {what}");
            }
            None => whole += 1,
        }
        verify(
            Arc::new(HostStorage::open(dir.path()).unwrap()),
            &reference.snapshots[durable..],
            how,
        )
        .unwrap_or_else(|e| panic!("{limit} bytes, durable {durable}: {e}\n{said}"));
    }
    println!("{failed} limits were too small, {began} of them after opening; {whole} were enough");
    assert!(began > 9 && whole > 3, "{failed} {began} {whole}");
}
