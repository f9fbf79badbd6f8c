//! SQLite from several processes at once, with a rollback journal and with a write-ahead log: every row whose commit was
//! acknowledged is there after the mount was killed, and `PRAGMA integrity_check` finds nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::common::process::until;
use super::{moments, room_for, rounds, succeeded, whole_lines};

const PROCESSES: u64 = 4;
/// More than a process commits before it is killed.
const ROWS: u64 = 20_000;

/// One query and its answer, with a timeout for locks.
fn ask(database: &Path, sql: &str) -> String {
    succeeded(
        Command::new("sqlite3")
            .args(["-batch", "-bail", "-cmd", ".timeout 20000"])
            .arg(database)
            .arg(sql),
    )
}

/// A process that commits rows one by one, and the number of each when SQLite has acknowledged it.
///
/// SQLite acknowledges a commit also where it could not open the directory to make a rollback journal's removal durable
/// (`unixDelete`), so a row counts if the mount still answers after its commit.
fn writer(database: &Path, process: u64, round: u64, acknowledged: &Path) -> Child {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(File::create(acknowledged).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let answers = format!("stat --file-system '{}' > /dev/null", database.display());
    std::thread::spawn(move || {
        // With FULL, a rollback journal's removal, which is the commit, is not made durable.
        let _ = writeln!(input, ".timeout 60000\nPRAGMA synchronous=EXTRA;");
        for row in 0..ROWS {
            let number = round * ROWS + row;
            let sql = format!(
                "BEGIN IMMEDIATE; INSERT INTO rows VALUES ({process}, {number}, randomblob({})); \
                 UPDATE sums SET total = total + {number}, rows = rows + 1 WHERE process = {process}; COMMIT;\n.shell {answers} && echo {number}",
                100 + row * 37 % 6000
            );
            // SQLite's waiting for a lock is not fair: without a pause one process has it all the time.
            std::thread::sleep(Duration::from_millis(60));
            // The process is gone when the mount is.
            if writeln!(input, "{sql}").is_err() {
                break;
            }
        }
    });
    child
}

fn several_processes_and_a_kill(mode: &str) {
    let Some(s) = room_for(&["sqlite3"]) else {
        return;
    };
    let database = s.path("mnt/data.db");
    let schema = format!(
        "PRAGMA journal_mode={mode}; CREATE TABLE rows(process INT, number INT, filling BLOB, PRIMARY KEY(process, number)); \
         CREATE TABLE sums(process INT PRIMARY KEY, total INT, rows INT); CREATE INDEX by_number ON rows(number, process);"
    );
    assert_eq!(ask(&database, &schema).trim(), mode);
    for process in 0..PROCESSES {
        ask(
            &database,
            &format!("INSERT INTO sums VALUES ({process}, 0, 0)"),
        );
    }
    let mut acknowledged = vec![BTreeSet::new(); PROCESSES as usize];
    for (round, moment) in (0..rounds(3)).zip(moments(2000)) {
        let printed = |process: u64| s.path(format!("acknowledged-{process}"));
        let mut writers: Vec<_> = (0..PROCESSES)
            .map(|process| writer(&database, process, round, &printed(process)))
            .collect();
        // The moment counts from the first row that is acknowledged, however slow the machine.
        until("somebody commits", || {
            (0..PROCESSES).any(|process| printed(process).metadata().unwrap().len() > 0)
        });
        s.kill_after(moment).join().unwrap();
        for writer in &mut writers {
            writer.wait().unwrap();
        }
        s.mount_after_kill();
        assert_eq!(
            ask(&database, "PRAGMA integrity_check").trim(),
            "ok",
            "round {round}"
        );
        assert_eq!(ask(&database, "PRAGMA journal_mode").trim(), mode);
        for process in 0..PROCESSES {
            let before = acknowledged[process as usize].len();
            let lines = whole_lines(&printed(process));
            acknowledged[process as usize]
                .extend(lines.iter().filter_map(|line| line.parse::<u64>().ok()));
            let found: BTreeSet<u64> = ask(
                &database,
                &format!("SELECT number FROM rows WHERE process = {process}"),
            )
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
            let lost: Vec<_> = acknowledged[process as usize].difference(&found).collect();
            assert!(
                lost.is_empty(),
                "round {round}, process {process}: acknowledged and lost: {lost:?}"
            );
            let more = found.len() - acknowledged[process as usize].len();
            assert!(
                more <= 1,
                "round {round}, process {process}: {more} rows that were not acknowledged"
            );
            let sums = ask(
                &database,
                &format!("SELECT total, rows FROM sums WHERE process = {process}"),
            );
            assert_eq!(
                sums.trim(),
                format!("{}|{}", found.iter().sum::<u64>(), found.len()),
                "a transaction by halves"
            );
            eprintln!(
                "{mode}, round {round}, process {process}: {} rows more",
                found.len() - before
            );
            // One that was committed and not acknowledged counts from here on.
            acknowledged[process as usize] = found;
        }
    }
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_what_it_acknowledged() {
    several_processes_and_a_kill("delete");
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_what_it_acknowledged() {
    several_processes_and_a_kill("wal");
}
