//! What was changed of users and disks while no server ran: kept in the room until a server with a log records it.

use room::Room;
use serde::{Deserialize, Serialize};

use super::event::{Admin, Administration};

const NOTE: &str = "metadata.audit";
/// Of more the oldest are forgotten, and counted.
const KEPT_MAX: usize = 1000;

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
    let beyond = kept.entries.len().saturating_sub(KEPT_MAX);
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
