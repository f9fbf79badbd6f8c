//! Locking a mounted room: everything durable, unmounted, and the process that had its keys ended.
//!
//! 1. Nothing is unmounted before everything that programs wrote is durable.
//! 2. A mount in use is left as it is, and its users are named; with `force` they are cut off.

use super::target::Target;
use super::users::{self, Use};
use crate::error::{Error, Result};
use crate::exit::Exit;

/// The most uses that a message lists.
const LISTED: usize = 20;

/// How locking a mount ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is locked. With `force`: these programs were cut off.
    Locked(Vec<Use>),
    /// It is not: it is in use.
    InUse(Vec<Use>),
}

/// Locks one mount.
///
/// # Errors
/// Whatever is not "in use". Where `force` is not given, the mount is left as it was.
pub(crate) fn lock(target: &Target, force: bool) -> Result<Outcome> {
    match target.sync() {
        Ok(()) => {}
        Err(e) if !force => return Err(e),
        // Closing tries again, and reports what is lost.
        Err(e) => tracing::error!("{e}"),
    }
    match target.end(Target::unmount) {
        Ok(()) => return Ok(Outcome::Locked(Vec::new())),
        Err(e) if e.exit() == Exit::Busy => {}
        Err(e) => return Err(e),
    }
    let uses = users::of(target.mountpoint(), target.mount.device);
    if !force {
        return Ok(Outcome::InUse(uses));
    }
    target.end(Target::cut_off)?;
    Ok(Outcome::Locked(uses))
}

/// The refusal of a mount in use.
pub(crate) fn in_use(target: &Target, uses: &[Use]) -> Error {
    let name = target.mountpoint().display();
    let at = crate::output::quoted(target.mountpoint());
    let list = match uses {
        [] => "\n  processes that this user cannot see; `fuser -vm` as root shows them".to_owned(),
        uses => users::lines(uses, LISTED),
    };
    Error::said(
        Exit::Busy,
        format!(
            "{name}: not locked, because it is in use:{list}\nClose them and try again, or cut them off: strongroom lock --force {at}"
        ),
    )
}

/// What is said of programs that were cut off.
pub(crate) fn cut_off(target: &Target, uses: &[Use]) -> String {
    format!(
        "{}: locked while in use; what was written before is saved, and these were cut off:{}",
        target.mountpoint().display(),
        users::lines(uses, LISTED)
    )
}
