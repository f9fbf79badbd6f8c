//! What a cluster of etcd does to a writer.

use std::net::TcpListener;
use std::sync::Mutex;

use crate::both::{goes_on, knows_certificates};
use crate::engines::Etcd;

#[test]
fn a_writer_goes_on_after_a_crash_of_the_server() {
    let mut etcd = Etcd::new(1);
    goes_on(etcd.place(), || {
        etcd.kill(0);
        etcd.start(0);
    });
}

#[test]
fn a_writer_goes_on_when_the_leader_dies() {
    let mut etcd = Etcd::new(3);
    goes_on(etcd.place(), || {
        let leader = etcd.leader();
        etcd.kill(leader);
    });
}

/// The leader hangs: it neither answers nor refuses. When it wakes it is no leader any more.
#[test]
fn a_writer_goes_on_when_the_leader_hangs_and_wakes() {
    let etcd = Etcd::new(3);
    goes_on(etcd.place(), || {
        let leader = etcd.leader();
        etcd.pause(leader);
        std::thread::sleep(std::time::Duration::from_secs(3));
        etcd.go_on(leader);
    });
}

/// The first member accepts connections and never says a word.
#[test]
fn a_member_that_never_answers_is_left() {
    let etcd = Etcd::new(1);
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap();
    let asked = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for connection in mute.incoming() {
                let connection = connection.unwrap();
                let mut bytes = [0; 4];
                // The end of the test says so.
                if connection.peek(&mut bytes).is_ok() && &bytes == b"over" {
                    break;
                }
                asked.lock().unwrap().push(connection);
            }
        });
        let place = etcd.place();
        let place = place.replace("etcd://", &format!("etcd://{address},"));
        let done = std::panic::catch_unwind(|| goes_on(place, || ()));
        let mut last = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut last, b"over").unwrap();
        done.unwrap();
    });
    // One request finds out, for the writer that made the room and for the one that opened it; not each of 40 and more.
    let asked = asked.lock().unwrap().len();
    assert!((1..20).contains(&asked), "asked {asked} times");
}

/// Asks for users from now on: root is one.
fn enable_users(etcd: &Etcd) {
    for command in [
        &["user", "add", "root:s3cret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "root"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        // The role of root may be there already.
        let _ = std::panic::catch_unwind(|| etcd.run(command));
    }
}

/// Each user that was added made all tokens useless that had been given before. That was taken for a malformed commit, and ended the writer.
#[test]
fn a_writer_goes_on_when_users_are_added() {
    let etcd = Etcd::with_signed_tokens();
    enable_users(&etcd);
    let place = etcd.place().replace("etcd://", "etcd://root:s3cret@");
    goes_on(place, || {
        etcd.run(&["--user", "root:s3cret", "user", "add", "eve:s3cret"]);
    });
}

#[test]
fn users_and_their_passwords_are_known() {
    let etcd = Etcd::new(1);
    enable_users(&etcd);
    let place = |user: &str| Some(etcd.place().replace("etcd://", &format!("etcd://{user}@")));
    for wrong in ["root:wr0ng", "root"] {
        let store = crate::store::Store::with_log(place(wrong));
        let dir = tempfile::tempdir().unwrap();
        let refused = crate::made::create(&store, dir.path(), crate::made::options()).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("authentication failed"), "{refused}");
        assert!(!refused.contains("wr0ng"), "{refused}");
    }
    let store = crate::store::Store::with_log(place("root:s3cret"));
    let dir = tempfile::tempdir().unwrap();
    let storage = crate::made::create(&store, dir.path(), crate::made::options()).unwrap();
    crate::made::write(&storage, "f", b"x").unwrap();
}

#[test]
fn members_and_writers_know_each_other_by_certificates() {
    let (etcd, dir) = Etcd::with_certificates();
    knows_certificates(&etcd.place(), ["cacert", "cert", "key"], &dir);
}
