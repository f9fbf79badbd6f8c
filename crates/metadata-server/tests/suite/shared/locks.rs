//! Locks between clients.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata_client::SharedRoom;
use room::{Access, FileSystem, InodeNo, Lock, LockKind, LockOwner, LockTable};
use rustix::fs::{FlockOperation, flock};

use super::common::{LEASE, Shared};

#[test]
fn a_lock_keeps_other_clients_out_until_it_is_released() {
    let shared = Shared::with_long_leases();
    let (Some(a), Some(b)) = (shared.mount("a"), shared.mount("b")) else {
        return;
    };
    let one = File::create(a.path("f")).unwrap();
    let two = File::options()
        .read(true)
        .write(true)
        .open(b.path("f"))
        .unwrap();
    flock(&one, FlockOperation::LockExclusive).unwrap();
    assert!(flock(&two, FlockOperation::NonBlockingLockShared).is_err());
    // Locks of the other kind do not meet them.
    rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    let waiting = std::thread::spawn(move || {
        flock(&two, FlockOperation::LockExclusive).unwrap();
        two
    });
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!waiting.is_finished());
    drop(one);
    let two = waiting.join().unwrap();
    let one = File::open(a.path("f")).unwrap();
    assert!(flock(&one, FlockOperation::NonBlockingLockShared).is_err());
    flock(&two, FlockOperation::LockShared).unwrap();
    flock(&one, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn a_counter_raised_under_a_lock_by_two_clients_misses_nothing() {
    let shared = Shared::with_long_leases();
    let (Some(a), Some(b)) = (shared.mount("a"), shared.mount("b")) else {
        return;
    };
    std::fs::write(a.path("n"), format!("{:8}", 0)).unwrap();
    let count = |path: PathBuf| {
        std::thread::spawn(move || {
            // Open all the time: only the lock says that there is something new.
            let mut file = File::options().read(true).write(true).open(path).unwrap();
            for _ in 0..25 {
                flock(&file, FlockOperation::LockExclusive).unwrap();
                let mut text = String::new();
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_to_string(&mut text).unwrap();
                let n: u32 = text.trim().parse().unwrap();
                file.seek(SeekFrom::Start(0)).unwrap();
                write!(file, "{:8}", n + 1).unwrap();
                flock(&file, FlockOperation::Unlock).unwrap();
            }
        })
    };
    for one in [count(a.path("n")), count(b.path("n"))] {
        one.join().unwrap();
    }
    assert_eq!(std::fs::read_to_string(a.path("n")).unwrap().trim(), "50");
}

#[test]
fn who_only_reads_under_a_lock_sees_what_the_last_holder_wrote() {
    let shared = Shared::with_long_leases();
    let (Some(a), Some(b)) = (shared.mount("a"), shared.mount("b")) else {
        return;
    };
    std::fs::write(a.path("n"), "000").unwrap();
    let writer = File::options().write(true).open(a.path("n")).unwrap();
    let reader = File::open(b.path("n")).unwrap();
    for n in 0..40 {
        let text = format!("{n:3}");
        flock(&writer, FlockOperation::LockExclusive).unwrap();
        writer.write_all_at(text.as_bytes(), 0).unwrap();
        flock(&writer, FlockOperation::Unlock).unwrap();
        flock(&reader, FlockOperation::LockShared).unwrap();
        let mut found = [0; 3];
        reader.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, text.as_bytes());
        flock(&reader, FlockOperation::Unlock).unwrap();
    }
}

/// A client without a mount that has locked all of a file of the root.
fn holder_of(shared: &Shared, name: &[u8]) -> Arc<SharedRoom> {
    let client = shared.client("killed", 0);
    let no = client.lookup(InodeNo::ROOT, name).unwrap().no;
    let access = Access {
        read: true,
        write: true,
    };
    client.open(no, access).unwrap();
    let lock = Lock {
        kind: LockKind::Exclusive,
        start: 0,
        end: u64::MAX,
        pid: 1,
    };
    client
        .set_lock(no, LockTable::Flock, LockOwner(1), lock, false, &|| false)
        .unwrap();
    client
}

#[test]
fn a_killed_clients_lock_is_free_after_its_lease() {
    let shared = Shared::new();
    let Some(b) = shared.mount("b") else { return };
    std::fs::write(b.path("f"), "text").unwrap();
    let killed = holder_of(&shared, b"f");
    let file = File::open(b.path("f")).unwrap();
    assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
    // It says nothing any more, not even that it goes.
    drop(killed);
    let since = Instant::now();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    assert!(
        since.elapsed() > LEASE / 3,
        "it was its own until the lease ended"
    );
    assert!(since.elapsed() < LEASE * 20);
}

/// A file that a mounted client has locked: all of it with `flock`, its first ten bytes with `fcntl`.
fn locked(path: PathBuf) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

/// Locks were in the memory of the server, and files that had some answered `ESTALE` after its restart.
#[test]
fn locks_are_still_held_after_the_server_was_restarted_or_lost_its_storage() {
    let mut shared = Shared::with_long_leases();
    let (Some(a), Some(b)) = (shared.mount("a"), shared.mount("b")) else {
        return;
    };
    let mut one = locked(a.path("f"));
    let two = File::options()
        .read(true)
        .write(true)
        .open(b.path("f"))
        .unwrap();
    for round in 0..4 {
        if round % 2 == 0 {
            shared.stop();
            shared.start();
        } else {
            shared.server().fail_for_test();
        }
        assert!(flock(&two, FlockOperation::NonBlockingLockShared).is_err());
        assert!(rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).is_err());
        write!(one, "{round}").unwrap();
        one.sync_all().unwrap();
    }
    flock(&one, FlockOperation::Unlock).unwrap();
    rustix::fs::fcntl_lock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, FlockOperation::LockExclusive).unwrap();
    rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut text = String::new();
    (&two).read_to_string(&mut text).unwrap();
    assert_eq!(text, "0123");
    // What was released is not claimed again.
    shared.stop();
    shared.start();
    assert!(flock(&one, FlockOperation::NonBlockingLockShared).is_err());
    drop(two);
    flock(&one, FlockOperation::LockExclusive).unwrap();
}

#[test]
fn a_lock_whose_client_died_with_the_server_is_free_when_nobody_claims_it() {
    let mut shared = Shared::new();
    let Some(b) = shared.mount("b") else { return };
    std::fs::write(b.path("f"), "text").unwrap();
    let killed = holder_of(&shared, b"f");
    drop(killed);
    shared.stop();
    shared.start();
    let file = File::open(b.path("f")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
}
