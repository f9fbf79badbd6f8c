//! Answers of the metadata server, and requests to it, that are lost on the way while the session goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metadata_client::ClientOptions;
use parking_lot::Mutex;
use room::{
    Access, FileKind, FileSystem, InodeNo, LockKind, LockOwner, LockTable, NewFile, SetAttr,
};

use super::common::{LONG, Shared, assert_same, noise};
use super::rights::new;
use crate::common::{lock, until};

/// One direction of a way.
#[derive(Debug, Default)]
struct Direction {
    /// The number of the last connection that loses all.
    loses: AtomicUsize,
    /// What comes next is the last that is not lost.
    ends: AtomicBool,
    /// Bytes that were lost.
    lost: AtomicUsize,
}

impl Direction {
    /// Present and later connections lose all, and stay.
    fn lose_all(&self) {
        self.loses.store(usize::MAX, Ordering::SeqCst);
    }

    fn loses_all(&self) -> bool {
        self.loses.load(Ordering::SeqCst) == usize::MAX
    }

    fn carry(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 1 << 16];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if number <= self.loses.load(Ordering::SeqCst) {
                self.lost.fetch_add(len, Ordering::SeqCst);
                continue;
            }
            if self.ends.swap(false, Ordering::SeqCst) {
                self.lose_all();
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// A way to a server, for connections of clients.
#[derive(Debug)]
struct Way {
    address: String,
    requests: Arc<Direction>,
    answers: Arc<Direction>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            address: listener.local_addr().unwrap().to_string(),
            requests: Arc::default(),
            answers: Arc::default(),
            connections: Arc::default(),
        };
        let (requests, answers) = (way.requests.clone(), way.answers.clone());
        let connections = way.connections.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                let number = {
                    let mut connections = connections.lock();
                    connections.push(copy(&client));
                    connections.len()
                };
                let (from, to, requests) = (copy(&client), copy(&server), requests.clone());
                std::thread::spawn(move || requests.carry(number, from, to));
                let answers = answers.clone();
                std::thread::spawn(move || answers.carry(number, server, client));
            }
        });
        way
    }

    /// Present connections lose what goes in a direction, and break when something has happened. Later ones do not.
    fn lose(&self, direction: &Direction, happens: impl FnOnce()) {
        let present = self.connections.lock().len();
        direction.loses.store(present, Ordering::SeqCst);
        happens();
        for connection in &self.connections.lock()[..present] {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// The server counted an open for each time it was asked, and a close that did not reach it was forgotten: files without a name kept
/// their space for as long as the client was there.
#[test]
fn a_file_is_closed_although_answers_to_its_open_and_requests_of_its_close_were_lost() {
    let shared = Shared::new();
    let way = Way::to(shared.address());
    let client = shared.client_by(&way.address, "a", 0);
    let done = |call| {
        let calls = shared.server().metrics().calls;
        calls.get(call).map_or(0, |count| count.done)
    };
    let make = |name: &[u8]| client.make(InodeNo::ROOT, name, &new(0, 0o644)).unwrap().no;
    let session = shared.server().sessions().unwrap();

    let file = make(b"opened twice");
    std::thread::scope(|scope| {
        let before = done("open");
        way.lose(&way.answers, || {
            scope.spawn(|| client.open(file, Access::READ).unwrap());
            until("the open", || done("open") > before);
        });
    });
    assert_eq!(shared.server().metrics().opens, 1);
    client.close(file, Access::READ);
    until("the close", || shared.server().metrics().opens == 0);

    let file = make(b"closed");
    client.open(file, Access::READ).unwrap();
    // Its close is not put off.
    client.unlink(InodeNo::ROOT, b"closed").unwrap();
    std::thread::scope(|scope| {
        way.lose(&way.requests, || {
            scope.spawn(|| client.close(file, Access::READ));
            until("a request", || way.requests.lost.load(Ordering::SeqCst) > 0);
            // That may have been a heartbeat.
            std::thread::sleep(Duration::from_millis(500));
        });
    });
    until("the close", || shared.server().metrics().opens == 0);
    assert_eq!(shared.server().sessions().unwrap(), session);
}

/// A close forgot the file while another open of it waited for its answer: that open was never closed at the server, and had no locks.
#[test]
fn a_file_that_is_opened_while_its_last_open_is_closed_can_be_locked_and_is_closed_in_the_end() {
    let shared = Shared::with_long_leases();
    let way = Way::to(shared.address());
    let client = shared.client_by(&way.address, "a", 0);
    let opened = || {
        let calls = shared.server().metrics().calls;
        calls.get("open").map_or(0, |count| count.done)
    };
    let file = client.make(InodeNo::ROOT, b"f", &new(0, 0o644)).unwrap().no;
    client.open(file, Access::READ).unwrap();
    std::thread::scope(|scope| {
        let before = opened();
        way.lose(&way.answers, || {
            scope.spawn(|| client.open(file, Access::READ).unwrap());
            until("the second open", || opened() > before);
            client.close(file, Access::READ);
        });
    });
    let lock = lock(LockKind::Exclusive, 0, u64::MAX);
    client
        .set_lock(file, LockTable::Flock, LockOwner(1), lock, false, &|| false)
        .unwrap();
    client.close(file, Access::READ);
    until("the last close", || shared.server().metrics().opens == 0);
}

/// A client that was cut off for longer than its lease opened its files again by their numbers. To a server that had been started two minutes before,
/// and had not seen their names, these were not enough: the files were taken for removed, and what was written to them was lost.
#[test]
fn a_file_stays_open_over_a_lost_session_although_the_server_has_seen_no_name_of_it() {
    let shared = Shared::new();
    let way = Way::to(shared.address());
    let (root, alice) = (
        shared.client("root", 0),
        shared.client_by(&way.address, "alice", 1000),
    );
    root.make(InodeNo::ROOT, b"f", &new(0, 0o666)).unwrap();
    let file = alice.lookup(InodeNo::ROOT, b"f").unwrap().no;
    alice.open(file, Access::READ_WRITE).unwrap();
    // A server that has not seen the name takes the number at first.
    let before = shared.server().metrics().reopened;
    shared.server().fail_for_test();
    until("the room is opened again", || {
        shared.server().metrics().reopened > before && shared.server().is_serving()
    });
    alice.write(file, 0, b"before").unwrap();
    alice.fsync(file).unwrap();
    shared.server().forget_names_for_test();
    alice.write(file, 0, b"after!").unwrap();
    let has_session = || {
        let sessions = shared.server().sessions().unwrap();
        sessions.iter().any(|(_, name)| name == "alice")
    };
    way.lose(&way.requests, || {
        until("the end of a lease", || !has_session());
    });
    alice.fsync(file).unwrap();
    let mut text = [0; 6];
    root.read(file, 0, &mut text).unwrap();
    assert_eq!(&text, b"after!");
    alice.close(file, Access::READ_WRITE);
}

/// A client that does not know yet that its closed data is durable commits it again when the server was restarted. It wrote so over what another client
/// had written and synced since, however long ago that was.
#[test]
fn data_that_is_committed_again_does_not_replace_what_another_client_wrote_since() {
    let shared = Shared::with_long_leases();
    let way = Way::to(shared.address());
    let (a, b) = (
        shared.client_by(&way.address, "a", 0),
        shared.client("b", 0),
    );
    let fail = || {
        let before = shared.server().metrics().reopened;
        shared.server().fail_for_test();
        until("the room is opened again", || {
            shared.server().metrics().reopened > before && shared.server().is_serving()
        });
    };
    let (old, newer) = (noise(1, 100_000), noise(2, 1000));
    let read = |client: &dyn FileSystem, no| {
        let mut bytes = vec![0; 200_000];
        let len = client.read(no, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    // One writes, the other one writes or changes the mode; before the server is restarted, or after.
    for (name, writes, before) in [
        ("written before", true, true),
        ("written after", true, false),
        ("changed before", false, true),
        ("changed after", false, false),
    ] {
        let name = name.as_bytes();
        let no = a
            .create(
                InodeNo::ROOT,
                name,
                &NewFile::of_kind(FileKind::Regular),
                Access::READ_WRITE,
            )
            .unwrap()
            .no;
        a.write(no, 0, &old).unwrap();
        a.flush(no).unwrap();
        a.close(no, Access::READ_WRITE);
        way.lose(&way.requests, || {
            if !before {
                fail();
            }
            b.open(no, Access::READ_WRITE).unwrap();
            let set = match writes {
                true => SetAttr::size(0),
                false => SetAttr::mode(0o600),
            };
            b.set_attributes(no, &set).unwrap();
            if writes {
                b.write(no, 0, &newer).unwrap();
            }
            b.fsync(no).unwrap();
            b.close(no, Access::READ_WRITE);
            if before {
                fail();
            }
        });
        a.open(no, Access::READ_WRITE).unwrap();
        let expected = if writes { &newer } else { &old };
        // Also before it is decided in the background.
        assert_eq!(a.attributes(no).unwrap().size, expected.len() as u64);
        assert_same(&read(&*a, no), expected);
        a.sync().unwrap();
        b.open(no, Access::READ_WRITE).unwrap();
        assert_same(&read(&*b, no), expected);
        let reported = a.fsync(no);
        assert_eq!(reported.is_err(), writes, "{reported:?}");
        a.close(no, Access::READ_WRITE);
        b.close(no, Access::READ_WRITE);
    }
}

#[test]
fn a_server_that_hangs_is_found_out_while_grants_are_released() {
    let shared = Shared::with_long_leases();
    let [way, other] = [(); 2].map(|()| Way::to(shared.address()));
    other.answers.lose_all();
    let options = ClientOptions {
        // What a lost call takes that nobody notices.
        timeout: 3 * LONG,
        address: format!("{},{}", way.address, other.address),
        ..shared.options()
    };
    let client = shared.client_with(options, "a", 0);
    let made = client.make(InodeNo::ROOT, b"f", &new(0, 0o644)).unwrap();
    client.open(made.no, Access::READ_WRITE).unwrap();
    // More than the first grants have, so some are over as soon as it is committed.
    client.write(made.no, 0, &noise(1, 4 << 20)).unwrap();
    client.fsync(made.no).unwrap();
    way.answers.ends.store(true, Ordering::SeqCst);
    until("a heartbeat or a release", || way.answers.loses_all());
    other.answers.loses.store(0, Ordering::SeqCst);
    let start = Instant::now();
    let found = client.lookup(InodeNo::ROOT, b"f").unwrap();
    assert_eq!(found.no, made.no);
    let took = start.elapsed();
    assert!(took < LONG, "the call waited for {took:?}");
    client.end().unwrap();
}
