//! A log through rotation, restarts, tampering and a full disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use storage::HostStorage;
use storage::testing::{Fault, FaultyStorage, Op, Times};

use super::*;

fn open(dir: &Path, file_size: u64) -> Arc<AuditLog> {
    let storage = Arc::new(HostStorage::open(dir).unwrap());
    AuditLog::open_on(storage, file_size, Full::Refuse).unwrap()
}

/// A log of several files, each some entries long, in a directory of its own; stopped in an orderly way.
fn several_files() -> (tempfile::TempDir, PathBuf, Key) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let key = AuditLog::create(&log).unwrap();
    for _ in 0..2 {
        let log = open(&log, 1000);
        for _ in 0..8 {
            log.record(&Event::Mark {});
        }
        log.stop();
    }
    (dir, log, key)
}

fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join(log::file_name(number))
}

fn report(dir: &Path, key: Option<&Key>) -> Report {
    let expected = Expected {
        key,
        ..Expected::default()
    };
    verify(&[dir.to_owned()], &expected).unwrap()
}

fn change(path: &Path, how: impl FnOnce(&mut Vec<String>)) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| format!("{line}\n")).collect();
    how(&mut lines);
    std::fs::write(path, lines.concat()).unwrap();
}

#[test]
fn the_chain_goes_on_over_files_and_restarts() {
    let (_dir, dir, key) = several_files();
    let whole = report(&dir, Some(&key));
    assert_eq!(whole.faults, Vec::<String>::new());
    assert!(whole.authenticated && whole.stopped && whole.files > 3);
    // Two starts, two stops, 16 marks, and the first line of each file.
    assert_eq!(whole.entries, 20 + whole.files as u64);
    assert_eq!(whole.next, whole.entries);
    assert_eq!(report(&dir, None).faults, Vec::<String>::new());
    let others = Key::random().unwrap();
    assert_eq!(report(&dir, Some(&others)).faults.len(), 1);
    // Older files may be elsewhere.
    std::fs::remove_file(file(&dir, 1)).unwrap();
    assert_eq!(report(&dir, Some(&key)).faults.len(), 1);
    let expected = Expected {
        key: Some(&key),
        partial: true,
        entries: 0,
    };
    let rest = verify(std::slice::from_ref(&dir), &expected).unwrap();
    assert_eq!(rest.faults, Vec::<String>::new());
    assert!(rest.entries < rest.next);
}

#[test]
fn edits_cuts_missing_files_and_a_missing_end_are_found() {
    type Harm = (&'static str, fn(&Path));
    let harms: [Harm; 6] = [
        ("an edit", |dir| {
            change(&file(dir, 2), |lines| {
                lines[1] = lines[1].replace("mark", "bark");
            });
        }),
        ("a line cut out", |dir| {
            change(&file(dir, 2), |lines| drop(lines.remove(1)));
        }),
        ("two lines swapped", |dir| {
            change(&file(dir, 2), |lines| lines.swap(1, 2));
        }),
        ("a file gone", |dir| {
            std::fs::remove_file(file(dir, 2)).unwrap();
        }),
        ("the last entry gone", |dir| {
            let last = (1..).find(|n| !file(dir, n + 1).exists()).unwrap();
            change(&file(dir, last), |lines| drop(lines.pop()));
        }),
        ("a half line at the end", |dir| {
            let last = (1..).find(|n| !file(dir, n + 1).exists()).unwrap();
            change(&file(dir, last), |lines| {
                let line = lines.last_mut().unwrap();
                line.truncate(40);
            });
        }),
    ];
    for (name, harm) in harms {
        let (_dir, dir, key) = several_files();
        harm(&dir);
        for key in [None, Some(&key)] {
            assert_ne!(report(&dir, key).faults, Vec::<String>::new(), "{name}");
        }
    }
    // A whole end cut off, and the state with it: what was noted elsewhere shows it.
    let (_dir, dir, key) = several_files();
    let entries = report(&dir, Some(&key)).next;
    std::fs::remove_file(dir.join("state")).unwrap();
    let last = (1..).find(|n| !file(&dir, n + 1).exists()).unwrap();
    std::fs::remove_file(file(&dir, last)).unwrap();
    assert_eq!(report(&dir, Some(&key)).faults, Vec::<String>::new());
    let expected = Expected {
        key: Some(&key),
        partial: false,
        entries,
    };
    assert_eq!(verify(&[dir], &expected).unwrap().faults.len(), 1);
}

#[test]
fn a_killed_server_goes_on_and_a_torn_end_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let key = AuditLog::create(&dir).unwrap();
    let log = open(&dir, 600);
    for _ in 0..8 {
        log.record(&Event::Mark {});
    }
    let entries = log.entries();
    // Not stopped: the state on disk is that of the start, several files ago.
    drop(log);
    let last = (1..).find(|n| !file(&dir, n + 1).exists()).unwrap();
    assert!(last > 2);
    let torn = std::fs::read(file(&dir, last)).unwrap();
    let torn = [&torn[..], b"{\"seq\":"].concat();
    std::fs::write(file(&dir, last), torn).unwrap();
    let log = open(&dir, 600);
    assert!(log.entries() > entries);
    log.stop();
    drop(log);
    let whole = report(&dir, Some(&key));
    assert_eq!(whole.faults, Vec::<String>::new());
    let all: String = (1..)
        .map(|n| file(&dir, n))
        .take_while(|file| file.exists())
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    assert!(all.contains("\"cut\":7"), "{all}");
    // What was durable is not taken for torn.
    let last = (1..).find(|n| !file(&dir, n + 1).exists()).unwrap();
    change(&file(&dir, last), |lines| drop(lines.pop()));
    let storage = Arc::new(HostStorage::open(&dir).unwrap());
    let refused = AuditLog::open_on(storage, 600, Full::Refuse).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn one_process_writes_a_log() {
    let (_dir, dir, _) = several_files();
    let _open = open(&dir, 1000);
    let storage = Arc::new(HostStorage::open(&dir).unwrap());
    let second = AuditLog::open_on(storage, 1000, Full::Refuse).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
}

/// A server that began at once with the log of the one that had just ended here was refused: the thread that tends the log still had it.
#[test]
fn a_log_that_has_ended_is_written_by_the_next_server_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("audit");
    let key = AuditLog::create(&dir).unwrap();
    let first = open(&dir, 1 << 20);
    first.stop();
    let second = open(&dir, 1 << 20);
    first.record(&Event::Mark {});
    assert!(first.record_durably(&Event::Mark {}).is_err());
    first.tick();
    first.stop();
    second.record_durably(&Event::Mark {}).unwrap();
    second.stop();
    // Two starts, a mark, two ends, and the beginning of the file.
    assert_eq!(report(&dir, Some(&key)).entries, 6);
}

#[test]
fn a_full_disk_loses_nothing_where_calls_are_refused_and_counts_where_not() {
    for full in [Full::Refuse, Full::Warn] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("log");
        let key = AuditLog::create(&dir).unwrap();
        let host = HostStorage::open(&dir).unwrap();
        let storage = Arc::new(FaultyStorage::new(host));
        let log = AuditLog::open_on(storage.clone(), 1 << 20, full).unwrap();
        // The first half of a line reaches the disk.
        storage.refuse(Op::Write, 1, Fault::Torn, Times::Always);
        log.record(&Event::Mark {});
        assert!(log.is_failing());
        assert_eq!(log.is_ready(), full == Full::Warn);
        let durable = log.record_durably(&Event::Mark {});
        assert!(durable.is_err());
        // More than a megabyte.
        for _ in 0..6000 {
            log.record(&Event::Mark {});
        }
        storage.heal();
        log.tick();
        assert!(log.is_ready() && !log.is_failing());
        log.record(&Event::Mark {});
        log.stop();
        drop(log);
        let whole = report(&dir, Some(&key));
        assert_eq!(whole.faults, Vec::<String>::new());
        let text: String = (1..)
            .map(|n| file(&dir, n))
            .take_while(|file| file.exists())
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        let (marks, lost) = (text.matches("\"mark\"").count(), text.contains("\"lost\""));
        match full {
            Full::Refuse => assert_eq!((marks, lost), (6003, false)),
            Full::Warn => assert!(marks < 6003 && lost),
        }
    }
}

#[test]
fn a_failed_sync_is_recorded_in_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let key = AuditLog::create(&dir).unwrap();
    let storage = Arc::new(FaultyStorage::new(HostStorage::open(&dir).unwrap()));
    let log = AuditLog::open_on(storage.clone(), 1 << 20, Full::Refuse).unwrap();
    storage.refuse(Op::Sync, 1, Fault::Io, Times::Once);
    assert!(log.record_durably(&Event::Mark {}).is_err());
    assert!(!log.is_ready());
    log.tick();
    assert!(log.is_ready());
    log.stop();
    drop(log);
    assert_eq!(report(&dir, Some(&key)).faults, Vec::<String>::new());
    let second = std::fs::read_to_string(file(&dir, 2)).unwrap();
    assert!(second.contains("\"unsynced\""), "{second}");
}

/// The sync that failed was forgotten, and the next one of the same file called everything durable.
#[test]
fn a_sync_that_fails_at_the_end_of_a_file_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let key = AuditLog::create(&dir).unwrap();
    let storage = Arc::new(FaultyStorage::new(HostStorage::open(&dir).unwrap()));
    let log = AuditLog::open_on(storage.clone(), 600, Full::Refuse).unwrap();
    storage.refuse(Op::Sync, 1, Fault::Io, Times::Once);
    while storage.refused() == 0 {
        log.record(&Event::Mark {});
    }
    log.record_durably(&Event::Mark {}).unwrap();
    log.stop();
    drop(log);
    assert_eq!(report(&dir, Some(&key)).faults, Vec::<String>::new());
    let files = (1..).map(|n| file(&dir, n)).take_while(|f| f.exists());
    let all: String = files.map(|f| std::fs::read_to_string(f).unwrap()).collect();
    assert_eq!(all.matches("\"unsynced\"").count(), 1, "{all}");
}

/// The kernel reports it once: to the sync of every second, beside which the entry was called durable.
#[test]
fn a_sync_that_fails_beside_another_one_makes_nothing_durable() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    AuditLog::create(&dir).unwrap();
    let storage = Arc::new(FaultyStorage::new(HostStorage::open(&dir).unwrap()));
    let log = AuditLog::open_on(storage.clone(), 1 << 30, Full::Refuse).unwrap();
    log.record(&Event::Mark {});
    let (under_way, begun) = channel();
    let (go_on, may_go_on) = channel();
    let first = Mutex::new(Some((under_way, may_go_on)));
    let refuses = storage.clone();
    storage.observe(move |call| {
        if call.op == Op::Sync
            && let Some((under_way, may_go_on)) = first.lock().take()
        {
            under_way.send(()).unwrap();
            may_go_on.recv().unwrap();
            refuses.refuse(Op::Sync, 1, Fault::Io, Times::Once);
        }
    });
    let last = "durable";
    std::thread::scope(|scope| {
        scope.spawn(|| log.tick());
        begun.recv().unwrap();
        let (done, recorded) = channel();
        let log = &log;
        scope.spawn(move || {
            let entry = Event::File {
                file: 0,
                log: last.into(),
            };
            done.send(log.record_durably(&entry)).unwrap();
        });
        // It has to wait for the other one; before, it did not.
        let early = recorded.recv_timeout(Duration::from_secs(1));
        go_on.send(()).unwrap();
        early.unwrap_or_else(|_| recorded.recv().unwrap()).unwrap();
    });
    log.stop();
    let files = (1..).map(|n| file(&dir, n)).take_while(|f| f.exists());
    let all: String = files.map(|f| std::fs::read_to_string(f).unwrap()).collect();
    assert!(
        all.find("\"unsynced\"").unwrap() < all.find(last).unwrap(),
        "{all}"
    );
}

/// It was dropped, and called durable.
#[test]
fn an_entry_is_written_where_all_that_waits_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    AuditLog::create(&dir).unwrap();
    let storage = Arc::new(FaultyStorage::new(HostStorage::open(&dir).unwrap()));
    let log = AuditLog::open_on(storage.clone(), 1 << 30, Full::Warn).unwrap();
    storage.refuse(Op::Write, 1, Fault::Torn, Times::Always);
    // More than a megabyte.
    for _ in 0..6000 {
        log.record(&Event::Mark {});
    }
    storage.heal();
    let last = "written after all";
    log.record_durably(&Event::File {
        file: 0,
        log: last.into(),
    })
    .unwrap();
    let text = std::fs::read_to_string(file(&dir, 1)).unwrap();
    assert!(text.contains(last));
    assert!(text.contains("\"lost\""));
    log.stop();
}

#[test]
fn connections_that_show_no_key_do_not_fill_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    AuditLog::create(&dir).unwrap();
    let log = open(&dir, 1 << 20);
    for _ in 0..1000 {
        log.connection_refused("192.0.2.1".into(), "no key".into());
    }
    log.stop();
    let text = std::fs::read_to_string(file(&dir, 1)).unwrap();
    assert_eq!(text.matches("connections-refused").count(), 1);
    assert!(text.contains("\"count\":1000"), "{text}");
}

#[test]
fn the_key_of_what_was_logged_is_not_on_the_disk_any_more() {
    let (_dir, dir, key) = several_files();
    let first = key.to_hex();
    for entry in dir.read_dir().unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&**first));
    }
}
