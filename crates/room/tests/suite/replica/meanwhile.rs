//! What is done in the room while a snapshot is collected.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::HostStorage;
use storage::testing::{FaultyStorage, Op};

use super::*;
use room::{Error, MomentId};

/// Sends `to`, and calls `meanwhile` before each operation on what is collected.
fn send_while(
    room: &Arc<Room>,
    (since, to): (Option<&str>, &str),
    meanwhile: impl Fn(&Room, Op) + Send + Sync + 'static,
) -> room::Result<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let scratch = FaultyStorage::new(HostStorage::open(dir.path()).unwrap());
    let seen = room.clone();
    scratch.observe(move |call| meanwhile(&seen, call.op));
    let scratch: Arc<dyn storage::Storage> = Arc::new(scratch);
    let request = SendRequest {
        to: to.into(),
        since: since.map(Into::into),
        ..SendRequest::default()
    };
    let mut out = Vec::new();
    room.send_through(&request, &scratch, &mut out, &|_, _| true)
        .map(|_| out)
}

/// What failed: the stream led to the moment of the deleted snapshot by its name, and had nothing of it.
#[test]
fn a_snapshot_that_is_deleted_before_it_is_collected_is_not_sent() {
    for gone in ["one", "two"] {
        let pair = Pair::new();
        let (room, _, _) = two_moments(&pair);
        let room = Arc::new(room);
        let sent = send_while(&room, (Some("one"), "two"), move |room, op| {
            if op == Op::Create {
                room.delete_snapshot(gone).unwrap();
            }
        });
        assert!(matches!(sent, Err(Error::NotFound)), "{gone}");
    }
}

/// What failed: the room's own thread waited for a transfer that was being collected, to go on with the deletion of a snapshot, and
/// committed nothing until then.
#[test]
fn commits_go_on_while_a_snapshot_is_collected() {
    let pair = Pair::new();
    let (room, _, _) = two_moments(&pair);
    room.close().unwrap();
    let options = OpenOptions {
        commit_interval_ms: 20,
        ..pair.place.options()
    };
    let room = Room::open(&pair.place.room_dir(), &credential(), options).unwrap();
    snapshot(&room, "three");
    let room = Arc::new(room);
    let sent = send_while(&room, (Some("two"), "three"), |room, op| {
        if op != Op::Write || room.snapshots().unwrap().len() < 3 {
            return;
        }
        room.delete_snapshot("one").unwrap();
        for round in 0..3 {
            let before = room.info().unwrap().generation;
            file(room, &format!("while {round}"), b"written meanwhile");
            let deadline = Instant::now() + Duration::from_secs(30);
            while room.info().unwrap().generation == before {
                assert!(Instant::now() < deadline, "nothing was committed");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    sent.unwrap();
}

/// What failed: `replicate` ended with "no such file or directory" where a policy deleted a snapshot while it looked for the one that the
/// replica has.
#[test]
fn the_snapshot_of_a_moment_is_found_while_others_are_deleted() {
    let pair = Pair::new();
    let (room, _, _) = two_moments(&pair);
    let moment = room.moment("two").unwrap();
    let missing: MomentId = "00112233445566778899aabbccddeeff".parse().unwrap();
    let many: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
    for _ in 0..3 {
        many.iter().for_each(|name| snapshot(&room, name));
        std::thread::scope(|scope| {
            let deleting = scope.spawn(|| {
                for name in &many {
                    room.delete_snapshot(name).unwrap();
                }
            });
            while !deleting.is_finished() {
                assert_eq!(room.snapshot_of(&missing).unwrap(), None);
            }
        });
        assert_eq!(room.snapshot_of(&moment).unwrap().as_deref(), Some("two"));
    }
}
