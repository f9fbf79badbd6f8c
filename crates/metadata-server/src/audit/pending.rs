//! What was changed of users and disks while no server ran: kept in the room until a server with a log records it.

use room::Room;
use serde::{Deserialize, Serialize};

use super::event::{Admin, Administration};

const NOTE: &str = "metadata.audit";
/// Of more the oldest are forgotten, and counted.
const KEPT_MAX: usize = 1000;
/// The same of more bytes.
const BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    entries: Vec<Administration>,
    forgotten: u64,
}

fn kept(room: &Room) -> room::Result<Kept> {
    let Some(note) = room.note(NOTE)? else {
        return Ok(Kept::default());
    };
    serde_json::from_slice(&note)
        .map_err(|e| room::Error::Unsupported(format!("note `{NOTE}` is not understood: {e}")))
}

fn set(room: &Room, kept: &Kept) -> room::Result<()> {
    let note = serde_json::to_vec(kept).map_err(|e| room::Error::Io(e.into()))?;
    room.set_note(NOTE, &note)
}

/// Keeps what is about to be changed. Durable when this returns.
pub(crate) fn keep(room: &Room, what: Admin) -> room::Result<()> {
    let mut kept = kept(room)?;
    kept.entries.push(Administration {
        what,
        by: "offline".into(),
        at: Some(super::log::now()),
    });
    let len = |entry| serde_json::to_vec(entry).map_or(BYTES_MAX, |bytes| bytes.len());
    let newest = kept.entries.iter().rev().scan(0, |bytes, entry| {
        *bytes += len(entry) + 1;
        Some(*bytes)
    });
    let kept_now = newest.take(KEPT_MAX).take_while(|bytes| *bytes < BYTES_MAX);
    let beyond = kept.entries.len() - kept_now.count();
    kept.entries.drain(..beyond);
    kept.forgotten += beyond as u64;
    set(room, &kept)
}

/// Hands over what is kept, then forgets it.
pub(crate) fn take<E: From<room::Error>>(
    room: &Room,
    record: impl FnOnce(Vec<Administration>, u64) -> Result<(), E>,
) -> Result<(), E> {
    let kept = kept(room)?;
    if kept.entries.is_empty() {
        return Ok(());
    }
    record(kept.entries, kept.forgotten)?;
    Ok(set(room, &Kept::default())?)
}

#[cfg(test)]
mod tests {
    use room::{NewCredential, NewRoom, Secret};

    use super::*;

    /// From some entries on with long lists of groups, nothing could be changed any more while no server ran.
    #[test]
    fn long_entries_displace_older_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(vec![7; 32])));
        new.open.state_dir = Some(dir.path().join("state"));
        let room = Room::create(&dir.path().join("room"), new).unwrap();
        let added = |at: u32| Admin::UserAdded {
            name: "a".into(),
            user_uid: at,
            user_gids: vec![u32::MAX - 1; 1024],
        };
        for at in 0..120 {
            keep(&room, added(at)).unwrap();
        }
        take(&room, |entries, forgotten| {
            assert!(entries.len() > 50, "{}", entries.len());
            assert_eq!(entries.len() as u64 + forgotten, 120);
            assert_eq!(entries.last().unwrap().what, added(119));
            Ok::<_, room::Error>(())
        })
        .unwrap();
    }
}
