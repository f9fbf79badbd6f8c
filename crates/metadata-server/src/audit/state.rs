//! From where a log goes on after a restart: the key of its next entry is the only one on the machine.
//!
//! The state that is replaced is overwritten, because its key makes those of what was logged since.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use storage::{HostStorage, OpenMode, Storage};
use zeroize::{Zeroize, Zeroizing};

use super::log::damaged;

const STATE: &str = "state";
const STATE_MAX: u64 = 4096;

/// What survives a restart.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    pub(super) version: u32,
    pub(super) seq: u64,
    pub(super) key: String,
    pub(super) prev: String,
    /// The file's number, and its bytes so far; 0: there is none yet.
    pub(super) file: u64,
    pub(super) len: u64,
}

impl Drop for State {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Replaces the state, and overwrites the one before, whose key makes what was logged since.
pub(super) fn write_state(storage: &dyn Storage, state: &State) -> io::Result<()> {
    let text = Zeroizing::new(serde_json::to_vec(state)?);
    let before = match storage.open(STATE, OpenMode::ReadWrite) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    storage::replace(storage, STATE, &text)?;
    if let Some(before) = before {
        let len = before.len()?.min(STATE_MAX) as usize;
        before.write_at(&vec![0; len], 0)?;
        before.sync()?;
    }
    Ok(())
}

pub(super) fn read_state(storage: &dyn Storage) -> io::Result<State> {
    let text = Zeroizing::new(storage::read_limited(storage, STATE, STATE_MAX)?);
    let state: State = serde_json::from_slice(&text).map_err(|_| damaged("`state` is damaged"))?;
    match state.version {
        1 => Ok(state),
        other => Err(damaged(format!(
            "the log has version {other}, of a newer program"
        ))),
    }
}

/// How many entries the log has for certain, as its own state says.
pub(super) fn entries_of_state(dir: &Path) -> Option<u64> {
    let storage = HostStorage::open(dir).ok()?;
    read_state(&storage).ok().map(|state| state.seq)
}
