//! What this machine remembers of a room: the newest generation it saw, for each place where it saw the room.
//!
//! 1. An entry is one small file in the user's state directory. It is written after a commit is durable and without a sync
//!    of its own, so it may lag behind the room but never runs ahead of it: no false alarm after a crash.
//! 2. A room must be at least as new as the entry of its place says, whatever lineage it is of. Nobody can pass a backup off
//!    as the room it was made from.
//! 3. A backup is a lineage of its own: at a place without an entry it is compared with entries of that lineage only. Using a
//!    backup never makes the original look old, nor the other way round.
//! 4. A read-only opening never lowers an entry, and writes none at all for a backup.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seal::RoomId;

use crate::{Error, OpenOptions, Result};

/// Least time between two writes.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a room that is no backup is called in an entry.
const ORIGINAL: &str = "original";
/// End of an entry's name.
const SUFFIX: &str = ".generation";

/// What is remembered of a room at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    generation: u64,
    lineage: String,
    /// The canonical directory; `None`: not of a directory, or written by a version that did not note it.
    place: Option<Vec<u8>>,
}

impl Entry {
    /// A line for each of: generation, lineage, directory in hexadecimal. Older versions wrote the first one only.
    fn parse(text: &str) -> Option<Entry> {
        let mut lines = text.lines();
        Some(Entry {
            generation: lines.next()?.trim().parse().ok()?,
            lineage: lines.next().unwrap_or(ORIGINAL).to_owned(),
            place: lines.next().map(|hex| hex.bytes().collect()),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.generation, self.lineage);
        if let Some(place) = &self.place {
            text.push_str(&String::from_utf8_lossy(place));
            text.push('\n');
        }
        text
    }
}

/// The memory of one room at one place.
#[derive(Debug)]
pub(crate) struct Memory {
    path: Option<PathBuf>,
    written: Option<Instant>,
    /// What is to be remembered.
    entry: Entry,
    /// What the file holds.
    on_disk: Option<Entry>,
    /// The newest generation that an opening must have.
    least: u64,
    is_copy: bool,
}

impl Memory {
    /// Reads what is remembered of the room in `dir` (empty: in a storage of another kind), a backup if it has a `lineage`.
    /// Without a state directory nothing is remembered; the usual one is for rooms in directories only.
    pub(crate) fn load(
        room: &RoomId,
        lineage: Option<&str>,
        dir: &Path,
        options: &OpenOptions,
    ) -> Self {
        let state = state_dir(options, dir);
        let place = place_of(dir);
        let path = state
            .as_ref()
            .map(|state| state.join(entry_name(room, place.as_deref())));
        let on_disk = path.as_deref().and_then(read_entry).filter(|entry| {
            // Two directories can have the same number; that of another one says nothing here.
            place.is_none() || entry.place == place
        });
        let name = lineage.unwrap_or(ORIGINAL);
        let least = match (&on_disk, &state) {
            (Some(entry), _) => entry.generation,
            (None, Some(state)) => newest_of(state, room, name),
            (None, None) => 0,
        };
        Self {
            path,
            written: None,
            entry: Entry {
                generation: least,
                lineage: name.to_owned(),
                place,
            },
            on_disk,
            least,
            is_copy: lineage.is_some(),
        }
    }

    /// Refuses a room older than remembered, unless that is wanted: then the older one is what is remembered from now on,
    /// if the room was not opened `read_only`.
    pub(crate) fn check(
        &mut self,
        found: u64,
        accept_rollback: bool,
        read_only: bool,
    ) -> Result<()> {
        if found < self.least {
            if !accept_rollback {
                return Err(Error::RolledBack {
                    seen: self.least,
                    found,
                });
            }
            tracing::warn!(
                "generation {found} is accepted although this machine saw {}",
                self.least
            );
        }
        self.entry.generation = found;
        if !read_only || (!self.is_copy && found >= self.least) {
            self.write();
        }
        Ok(())
    }

    /// Takes note of a durable commit.
    pub(crate) fn note(&mut self, generation: u64) {
        self.entry.generation = generation;
        if self.written.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.write();
        }
    }

    /// Writes the memory down. Failing costs the detection of a rollback, not data: it is logged.
    pub(crate) fn write(&mut self) {
        if self.on_disk.as_ref() == Some(&self.entry) {
            return;
        }
        let Some(path) = &self.path else { return };
        match write_entry(path, &self.entry) {
            Ok(()) => self.on_disk = Some(self.entry.clone()),
            Err(e) => tracing::warn!("{}: rollback will not be noticed: {e}", path.display()),
        }
        self.written = Some(Instant::now());
    }
}

/// A backup was written to `target`: what is remembered of that place, if anything, is the new backup.
pub(crate) fn note_backup(
    room: &RoomId,
    target: &Path,
    lineage: &str,
    generation: u64,
    options: &OpenOptions,
) {
    let Some(state) = state_dir(options, target) else {
        return;
    };
    let Some(place) = place_of(target) else {
        return;
    };
    let path = state.join(entry_name(room, Some(&place)));
    if read_entry(&path).is_none_or(|entry| entry.place.as_deref() != Some(&*place)) {
        return;
    }
    let entry = Entry {
        generation,
        lineage: lineage.to_owned(),
        place: Some(place),
    };
    if let Err(e) = write_entry(&path, &entry) {
        tracing::warn!("{}: {e}", path.display());
    }
}

fn state_dir(options: &OpenOptions, dir: &Path) -> Option<PathBuf> {
    let usual = || default_state_dir().filter(|_| !dir.as_os_str().is_empty());
    options.state_dir.clone().or_else(usual)
}

/// The canonical directory as an entry names it, in hexadecimal: it need not be text.
fn place_of(dir: &Path) -> Option<Vec<u8>> {
    if dir.as_os_str().is_empty() {
        return None;
    }
    let canonical = dir.canonicalize().ok()?;
    let bytes = canonical.as_os_str().as_bytes();
    Some(
        bytes
            .iter()
            .flat_map(|byte| format!("{byte:02x}").into_bytes())
            .collect(),
    )
}

fn entry_name(room: &RoomId, place: Option<&[u8]>) -> String {
    match place {
        Some(place) => format!("{room}.{:016x}{SUFFIX}", fnv1a(place)),
        None => format!("{room}{SUFFIX}"),
    }
}

/// FNV-1a, 64 bits: a short name for a path. Whether it is that path's is in the entry.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn read_entry(path: &Path) -> Option<Entry> {
    Entry::parse(&fs::read_to_string(path).ok()?)
}

/// The newest generation of this lineage at any place.
fn newest_of(state: &Path, room: &RoomId, lineage: &str) -> u64 {
    let prefix = room.to_string();
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries
        .filter(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(SUFFIX)
        })
        .filter_map(|file| read_entry(&file.path()))
        .filter(|entry| entry.lineage == lineage)
        .map(|entry| entry.generation)
        .max()
        .unwrap_or(0)
}

fn write_entry(path: &Path, entry: &Entry) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        fs::write(&new, entry.text())?;
        fs::rename(&new, path)
    };
    match write() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            write()
        }
        other => other,
    }
}

/// Where this machine remembers what it saw of rooms, unless it is set: `strongroom` in `$XDG_STATE_HOME`, else in
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_and_one_of_an_older_version_is_the_originals() {
        let entry = Entry {
            generation: 7,
            lineage: "0123".into(),
            place: Some(b"2f61".to_vec()),
        };
        assert_eq!(Entry::parse(&entry.text()), Some(entry));
        let old = Entry::parse("12\n").unwrap();
        assert_eq!(
            (old.generation, &*old.lineage, old.place),
            (12, ORIGINAL, None)
        );
        assert_eq!(Entry::parse("no number\n"), None);
    }
}
