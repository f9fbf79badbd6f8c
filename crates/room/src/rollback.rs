//! What this machine remembers of a room: the newest generation it saw.
//!
//! The memory is one small file per room in the user's state directory. It is written after a commit is durable and
//! without a sync of its own, so it may lag behind the room but never runs ahead of it: no false alarm after a crash.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use seal::RoomId;

use crate::{Error, OpenOptions, Result};

/// Least time between two writes.
const INTERVAL: Duration = Duration::from_secs(1);

/// The memory of one room.
#[derive(Debug)]
pub(crate) struct Memory {
    path: Option<PathBuf>,
    written: Option<Instant>,
    latest: u64,
    on_disk: u64,
}

impl Memory {
    /// Reads what is remembered. Without a state directory nothing is; the usual one is for rooms `on_host` only.
    pub(crate) fn load(room: &RoomId, options: &OpenOptions, on_host: bool) -> Self {
        let usual = || default_state_dir().filter(|_| on_host);
        let dir = options.state_dir.clone().or_else(usual);
        let path = dir.map(|dir| dir.join(format!("{room}.generation")));
        let on_disk = path
            .as_ref()
            .and_then(|p| fs::read_to_string(p).ok())
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(0);
        Self {
            path,
            written: None,
            latest: on_disk,
            on_disk,
        }
    }

    /// Refuses a room older than remembered, unless that is wanted: then the older one is what is remembered.
    pub(crate) fn check(&mut self, found: u64, accept_rollback: bool) -> Result<()> {
        if found < self.latest {
            if !accept_rollback {
                return Err(Error::RolledBack {
                    seen: self.latest,
                    found,
                });
            }
            tracing::warn!(
                "generation {found} is accepted although this machine saw {}",
                self.latest
            );
        }
        self.latest = found;
        self.write();
        Ok(())
    }

    /// Takes note of a durable commit.
    pub(crate) fn note(&mut self, generation: u64) {
        self.latest = generation;
        if self.written.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.write();
        }
    }

    /// Writes the memory down. Failing costs the detection of a rollback, not data: it is logged.
    pub(crate) fn write(&mut self) {
        if self.on_disk == self.latest {
            return;
        }
        let Some(path) = &self.path else { return };
        let write = || -> std::io::Result<()> {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            let new = path.with_extension("new");
            fs::write(&new, format!("{}\n", self.latest))?;
            fs::rename(&new, path)
        };
        match write() {
            Ok(()) => self.on_disk = self.latest,
            Err(e) => tracing::warn!("{}: rollback will not be noticed: {e}", path.display()),
        }
        self.written = Some(Instant::now());
    }
}

/// Where this machine remembers what it saw of rooms, if it is not told: `strongroom` in `$XDG_STATE_HOME`, else in
/// `~/.local/state`; `None` where neither is an absolute path.
pub fn default_state_dir() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|dir| dir.join("strongroom"))
}
