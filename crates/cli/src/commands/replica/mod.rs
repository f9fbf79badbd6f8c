//! `strongroom send`, `receive` and `replicate`: moments of a room in another directory, brought there without its key.

pub(crate) mod receive;
pub(crate) mod replicate;
pub(crate) mod send;

use std::path::Path;

use room::Room;

use crate::access::{Access, Intent, OpenArgs};
use crate::error::{Error, Result};
use crate::exit::Exit;

/// Opens a room to send from it. One that is mounted is refused: its process is confined, and sends nothing.
fn open_source(dir: &Path, open: &OpenArgs, intent: Intent) -> Result<Box<Room>> {
    match Access::reach(dir, open, intent)? {
        Access::Library { room, .. } => Ok(room),
        Access::Mounted(_) => Err(Error::said(
            Exit::InUse,
            format!(
                "{}: the room is mounted: unmount it to send it; `strongroom backup` copies a mounted room",
                dir.display()
            ),
        )),
    }
}
