//! `strongroom send`, `receive` and `replicate`: moments of a room in another place, brought there without its key.

mod files;
pub(crate) mod receive;
pub(crate) mod replicate;
pub(crate) mod send;
mod target;

use std::path::Path;

use crate::error::{Error, Result};
use crate::mounting::remote;

/// Refuses a shared room that is named by its server: what is sent is all of its data.
fn must_not_be_remote(room: &Path) -> Result<()> {
    match remote::address(room)? {
        None => Ok(()),
        Some(_) => Err(Error::usage_at(
            room,
            "an administrator reaches no data; do this on the server's machine",
        )),
    }
}
