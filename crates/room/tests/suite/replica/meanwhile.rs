//! What is done in the room while a snapshot is collected.

use std::sync::Arc;

use storage::HostStorage;
use storage::testing::{FaultyStorage, Op};

use super::*;
use room::Error;

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
