//! As many users as a room may have, with keys that are renewed.

use std::time::Duration;

use crate::common::credential;
use metadata_proto::admin::Quota;
use metadata_server::enrol::{self, EnrolError, USERS_MAX, User};
use room::{NewCredential, NewRoom, Room, Secret, Suite};

fn room(dir: &std::path::Path) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(vec![7; 32])));
    new.open.state_dir = Some(dir.join("state"));
    new.suite = Some(Suite::Aes256Gcm);
    Room::create(&dir.join("room"), new).unwrap()
}

/// A user with three keys, long names and some groups.
fn user(at: usize) -> User {
    let serial = |key: u8| {
        let mut serial = [255; 16];
        serial[..8].copy_from_slice(&at.to_le_bytes());
        serial[8] = key;
        serial
    };
    let serials: Vec<_> = (0..3).map(serial).collect();
    User {
        name: format!("a-name-of-a-user-that-is-as-long-as-those-of-directories-{at:04}"),
        uid: 1_000_000_000 + at as u32,
        gids: (0..32).map(|n| 1_000_000_000 + n).collect(),
        ends: serials.iter().map(|serial| (*serial, u64::MAX)).collect(),
        serials,
        quota: Quota::default(),
    }
}

/// The list was longer than a note could be from about 3,200 users with two keys each on; then no key could be renewed.
#[test]
fn the_most_users_of_a_room_can_renew_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let made = room(dir.path());
    let all: Vec<User> = (1..USERS_MAX).map(user).collect();
    let list = serde_json::to_vec(&all).unwrap();
    made.set_note("metadata.users", &list).unwrap();
    enrol::add_user(&made, "zoe", 1, &[1]).unwrap();
    let renewed = enrol::renew_user(&made, &all[0].name, Some(all[0].serials[0]), Duration::ZERO);
    assert_eq!(renewed.unwrap().0.serials.len(), 4);
    let more = enrol::add_user(&made, "zulu", 2, &[2]);
    assert!(matches!(more, Err(EnrolError::Invalid(_))));
    made.close().unwrap();
    let options = room::OpenOptions {
        state_dir: Some(dir.path().join("state")),
        ..Default::default()
    };
    let again = Room::open(&dir.path().join("room"), &credential(), options).unwrap();
    assert_eq!(enrol::users(&again).unwrap().len(), USERS_MAX);
}
