//! Locks between clients.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metadata_client::SharedRoom;
use metadata_server::locks::LOCKS_MAX;
use room::{
    Access, Error, FileKind, FileSystem, InodeNo, Lock, LockKind, LockOwner, LockTable, NewFile,
};
use rustix::fs::{FlockOperation, flock};

use super::common::{LEASE, Shared, assert_same};
use crate::common::{lock, until};

#[test]
fn a_lock_keeps_other_clients_out_until_it_is_released() {
    let shared = Shared::with_long_leases();
    let Some([a, b]) = shared.two() else { return };
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

/// Both waited for ever, also two programs of one client.
#[test]
fn two_that_share_a_lock_and_both_want_it_alone_get_it_one_after_the_other() {
    let shared = Shared::with_long_leases();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("f"), "").unwrap();
    for other in [&a, &b] {
        let files = [a.path("f"), other.path("f")].map(|path| File::open(path).unwrap());
        for file in &files {
            flock(file, FlockOperation::LockShared).unwrap();
        }
        let alone = files.map(|file| {
            std::thread::spawn(move || {
                flock(&file, FlockOperation::LockExclusive).unwrap();
                flock(&file, FlockOperation::Unlock).unwrap();
            })
        });
        until("both", || alone.iter().all(|thread| thread.is_finished()));
    }
    // What was released so is not claimed again.
    let files = [a.path("f"), b.path("f")].map(|path| File::open(path).unwrap());
    for file in &files {
        flock(file, FlockOperation::LockShared).unwrap();
    }
    assert!(flock(&files[0], FlockOperation::NonBlockingLockExclusive).is_err());
    shared.server().fail_for_test();
    flock(&files[1], FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(flock(&files[0], FlockOperation::NonBlockingLockShared).is_err());
}

/// A client whose program waits for a lock until it is interrupted.
fn interrupted(client: &SharedRoom, no: InodeNo, lock: Lock) {
    let asked = AtomicBool::new(false);
    let cancelled = || asked.swap(true, Ordering::SeqCst);
    let table = LockTable::Posix;
    let taken = client.set_lock(no, table, LockOwner(1), lock, true, &cancelled);
    assert!(matches!(taken, Err(Error::Interrupted)), "{taken:?}");
}

/// It was taken to wait for some seconds more: who then waited for what it held was refused with `EDEADLK`.
#[test]
fn an_interrupted_wait_is_no_part_of_a_deadlock() {
    let shared = Shared::with_long_leases();
    let (a, b) = (shared.client("a", 0), shared.client("b", 0));
    let no = opened(&a, "f");
    b.open(no, Access::READ_WRITE).unwrap();
    let set = |client: &SharedRoom, at, waits| {
        let (table, lock) = (LockTable::Posix, lock(LockKind::Exclusive, at, at));
        client.set_lock(no, table, LockOwner(1), lock, waits, &|| false)
    };
    set(&a, 0, false).unwrap();
    set(&b, 1, false).unwrap();
    interrupted(&a, no, lock(LockKind::Exclusive, 1, 1));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| set(&b, 0, true));
        // Long enough for an answer, and shorter than it would have been taken for waiting.
        std::thread::sleep(Duration::from_millis(300));
        let unlock = lock(LockKind::Unlock, 0, 0);
        let table = LockTable::Posix;
        a.set_lock(no, table, LockOwner(1), unlock, false, &|| false)
            .unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_counter_raised_under_a_lock_by_two_clients_misses_nothing() {
    let shared = Shared::with_long_leases();
    let Some([a, b]) = shared.two() else { return };
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
    let Some([a, b]) = shared.two() else { return };
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

/// A client that had the file open took it to be as long as before: it wrote zeros over what the other one had written in the same block.
#[test]
fn two_that_write_parts_of_a_block_under_a_lock_keep_each_others() {
    let shared = Shared::with_long_leases();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("f"), "").unwrap();
    let open = |path| File::options().write(true).open(path).unwrap();
    let (one, two) = (open(a.path("f")), open(b.path("f")));
    for (file, at) in [(&two, 100), (&one, 0), (&two, 5000), (&one, 4096)] {
        flock(file, FlockOperation::LockExclusive).unwrap();
        file.write_all_at(b"record", at).unwrap();
        flock(file, FlockOperation::Unlock).unwrap();
    }
    let found = std::fs::read(a.path("f")).unwrap();
    assert_eq!(found.len(), 5006);
    for at in [0, 100, 4096, 5000] {
        assert_eq!(&found[at..at + 6], b"record", "at {at}");
    }
}

/// Its kernel added to the end of before: over what the other one had added.
#[test]
fn what_is_added_to_a_file_under_a_lock_comes_after_what_others_added() {
    let shared = Shared::with_long_leases();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("log"), "").unwrap();
    let open = |path| File::options().append(true).open(path).unwrap();
    let mut files = [open(a.path("log")), open(b.path("log"))];
    let mut expected = String::new();
    for n in 0..20 {
        let file = &mut files[n / 3 % 2];
        let line = format!("{n:>width$}\n", width = n * 300);
        flock(&*file, FlockOperation::LockExclusive).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        flock(&*file, FlockOperation::Unlock).unwrap();
        expected += &line;
    }
    // In the mount that added last too.
    for mount in [&a, &b] {
        let found = std::fs::read(mount.path("log")).unwrap();
        assert_same(&found, expected.as_bytes());
    }
}

/// A client without a mount that has locked all of a file of the root.
fn holder_of(shared: &Shared, name: &[u8]) -> Arc<SharedRoom> {
    let client = shared.client("killed", 0);
    let no = client.lookup(InodeNo::ROOT, name).unwrap().no;
    client.open(no, Access::READ_WRITE).unwrap();
    let lock = lock(LockKind::Exclusive, 0, u64::MAX);
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
    let Some([a, b]) = shared.two() else { return };
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

/// A new file of the root that a client has open.
fn opened(client: &SharedRoom, name: &str) -> InodeNo {
    let new = NewFile::of_kind(FileKind::Regular);
    let made = client.create(InodeNo::ROOT, name.as_bytes(), &new, Access::READ_WRITE);
    made.unwrap().no
}

/// The server counted no ranges that unlocks made, and refused to take that many up after a restart: every call of the client failed from then on.
#[test]
fn as_many_locks_as_there_may_be_are_taken_up_by_a_restarted_server() {
    let shared = Shared::with_long_leases();
    let (client, other) = (shared.client("a", 0), shared.client("b", 0));
    let set = |no, lock| {
        let (table, owner) = (LockTable::Posix, LockOwner(1));
        client.set_lock(no, table, owner, lock, false, &|| false)
    };
    let (files, each) = (16, LOCKS_MAX as u64 / 16);
    let files: Vec<_> = (0..files)
        .map(|n| opened(&client, &format!("f{n}")))
        .collect();
    let unlocked = |at| lock(LockKind::Unlock, 2 * at + 1, 2 * at + 1);
    for no in &files {
        set(*no, lock(LockKind::Exclusive, 0, u64::MAX)).unwrap();
        (1..each).for_each(|at| set(*no, unlocked(at)).unwrap());
    }
    let refused = set(files[0], unlocked(each));
    other.open(files[0], Access::READ).unwrap();
    shared.server().fail_for_test();
    client.attributes(files[0]).unwrap();
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let in_the_way = |at| {
        let wanted = lock(LockKind::Shared, at, at);
        let held = other.test_lock(files[0], LockTable::Posix, LockOwner(7), wanted);
        held.unwrap().is_some()
    };
    // What was released is free, and what the refused call was to release is held.
    assert!(!in_the_way(2 * each - 1));
    assert!(in_the_way(2 * each + 1));
    assert_eq!(shared.server().metrics().locks, LOCKS_MAX as u64);
}

/// Somebody on the way between a client and its server, who keeps the answers back on request.
struct Relay {
    address: SocketAddr,
    keeps: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            keeps: Arc::default(),
            connections: Arc::default(),
        };
        let (keeps, connections) = (relay.keeps.clone(), relay.connections.clone());
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                pass(&client, &server, Arc::default());
                pass(&server, &client, keeps.clone());
                connections.lock().unwrap().extend([client, server]);
            }
        });
        relay
    }

    /// Ends the connections, with what was kept back.
    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn pass(from: &TcpStream, to: &TcpStream, keeps: Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if !keeps.load(Ordering::SeqCst) && to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// The client did not know that it had the lock, and asked for no release: it was held until the file was closed there.
#[test]
fn a_lock_whose_grant_was_lost_on_the_way_is_released_with_the_next_unlock() {
    let shared = Shared::with_long_leases();
    let relay = Relay::before(shared.address());
    let client = shared.client_by(relay.address, "a", 0);
    let no = opened(&client, "f");
    let set = |kind, cancelled: &dyn Fn() -> bool| {
        let (table, owner) = (LockTable::Flock, LockOwner(1));
        client.set_lock(no, table, owner, lock(kind, 0, u64::MAX), false, cancelled)
    };
    relay.keeps.store(true, Ordering::SeqCst);
    let interrupted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cancelled = || interrupted.load(Ordering::SeqCst);
        let taking = scope.spawn(move || set(LockKind::Exclusive, &cancelled));
        until("the server's grant", || {
            shared.server().metrics().locks == 1
        });
        interrupted.store(true, Ordering::SeqCst);
        relay.keeps.store(false, Ordering::SeqCst);
        relay.cut();
        let taken = taking.join().unwrap();
        assert!(matches!(taken, Err(Error::Interrupted)), "{taken:?}");
    });
    set(LockKind::Unlock, &|| false).unwrap();
    assert_eq!(shared.server().metrics().locks, 0);
}
