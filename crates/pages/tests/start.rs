//! SQLCipher's start while several threads open their first connection. A process starts it once, so each try is a process.

use std::process::Command;
use std::sync::Barrier;
use std::thread;

use rusqlite::Connection;

/// Threads of a try; the more wait for SQLite's lock, the sooner one of them comes too early.
const THREADS: usize = 16;
const TRIES: usize = 100;

#[test]
fn a_first_connection_has_ciphers_and_functions_while_another_thread_starts_them() {
    for _ in 0..TRIES {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "threads_that_start_at_once"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}");
    }
}

#[test]
#[ignore = "needs a process of its own: the other test starts it, again and again"]
fn threads_that_start_at_once() {
    let at_once = Barrier::new(THREADS + 1);
    let first_use = || {
        at_once.wait();
        pages::start().unwrap();
        let connection = Connection::open("").unwrap();
        let copies = "PRAGMA key = 'k'; CREATE TABLE t(a); ATTACH '' AS copy KEY ''; SELECT sqlcipher_export('copy')";
        connection.execute_batch(copies).unwrap();
    };
    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(first_use);
        }
        // The program's own, that knows nothing of Strongroom.
        at_once.wait();
        Connection::open_in_memory().unwrap();
    });
}
