//! What tests inside this crate share.

use std::path::Path;

use seal::{Argon2Cost, Credential, NewCredential, Secret};

use crate::{NewRoom, OpenOptions, Room};

fn secret() -> Secret {
    Secret::from(b"correct horse".to_vec())
}

pub(crate) fn credential() -> Credential {
    Credential::Passphrase(secret())
}

/// Options that remember generations below `dir` and commit only when asked.
pub(crate) fn options(dir: &Path) -> OpenOptions {
    OpenOptions {
        state_dir: Some(dir.join("state")),
        commit_interval_ms: 0,
        ..OpenOptions::default()
    }
}

/// A new room in `dir/room`.
pub(crate) fn room_in(dir: &Path) -> Room {
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret: secret(),
        cost: Argon2Cost::LEAST,
    });
    new.open = options(dir);
    Room::create(&dir.join("room"), new).unwrap()
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// The room's structure and every unit of its files are as they should be.
pub(crate) fn sound(room: &Room) {
    let report = room.check(true, false, &|_, _| true).unwrap();
    assert!(
        report.findings.is_empty() && report.lost.is_empty(),
        "{report:?}"
    );
}
