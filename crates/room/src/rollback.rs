//! What this machine remembers of a room: the newest generation it saw, for each place where it saw the room.
//!
//! 1. An entry is one small file in the user's state directory. It is written after a commit is durable, at most once a second and at
//!    closing, so it may lag behind the room but never runs ahead of it: no false alarm after a crash. A new entry is durable
//!    before it takes the place of the old one.
//! 2. A room must be at least as new as the entry of its place says, whatever lineage it is of. Nobody can pass a backup off
//!    as the room it was made from.
//! 3. A backup is a lineage of its own: at a place without an entry it is compared with entries of that lineage only. Using a
//!    backup never makes the original look old, nor the other way round.
//! 4. A read-only opening never lowers an entry, and writes none at all for a backup.
//! 5. An entry that cannot be read, or is no entry, refuses the room. Only what is not there says nothing.
//! 6. Several processes, also of several machines, may have one state directory: each writes whole files under names of its own,
//!    and an entry is replaced under a lock, by nothing older unless a rollback was accepted; without the lock where it is not to be
//!    had, so that a process that is stopped holds up no other.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
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
/// The most bytes of an entry: a path of 4096 bytes in hexadecimal, and the rest.
const ENTRY_MAX: u64 = 16 << 10;
/// File in the state directory that a process locks while it replaces an entry.
const LOCK: &str = "lock";
/// The longest wait for it. It is held while an entry is read and a file renamed.
const LOCK_MAX: Duration = Duration::from_secs(1);

/// Whether a backup's or replica's lineage can be called this: 32 hexadecimal digits.
pub(crate) fn is_of_copy(lineage: &str) -> bool {
    lineage.len() == 32 && is_hex(lineage.as_bytes())
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

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
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let entry = Entry {
            generation: lines.next()?.parse().ok()?,
            lineage: lines.next().unwrap_or(ORIGINAL).to_owned(),
            place: lines.next().map(|hex| hex.bytes().collect()),
        };
        let known = entry.lineage == ORIGINAL || is_of_copy(&entry.lineage);
        let place = entry.place.as_deref().unwrap_or_default();
        (known && is_hex(place) && lines.next().is_none()).then_some(entry)
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

/// What is to be written of a room's memory.
#[derive(Debug)]
pub(crate) struct Unwritten {
    path: PathBuf,
    entry: Entry,
    may_lower: bool,
}

impl Unwritten {
    /// Writes it down. What came of it goes to [`Memory::written`].
    pub(crate) fn write(self) -> std::io::Result<Written> {
        replace(&self.path, &self.entry, self.may_lower)?;
        Ok(Written(self.entry))
    }
}

/// What was written.
#[derive(Debug)]
pub(crate) struct Written(Entry);

/// The memory of one room at one place.
#[derive(Debug)]
pub(crate) struct Memory {
    path: Option<PathBuf>,
    written: Option<Instant>,
    /// What is to be remembered.
    entry: Entry,
    /// What was written last.
    on_disk: Option<Entry>,
    /// The newest generation that an opening must have.
    least: u64,
    is_copy: bool,
    /// An older state was accepted, or an unusable entry, and what is there is still to be replaced.
    may_lower: bool,
}

impl Memory {
    /// Reads what is remembered of the room in `dir` (empty: in a storage of another kind), a backup if it has a `lineage`.
    /// Without a state directory nothing is remembered; the usual one is for rooms in directories only.
    ///
    /// # Errors
    /// [`Error::UnusableMemory`] unless a rollback is accepted.
    pub(crate) fn load(
        room: &RoomId,
        lineage: Option<&str>,
        dir: &Path,
        options: &OpenOptions,
    ) -> Result<Self> {
        let state = state_dir(options, dir);
        if state.is_none() && !dir.as_os_str().is_empty() {
            tracing::warn!(
                "{}: a rollback of this room will not be noticed, because there is no place to remember it: set HOME, \
                 XDG_STATE_HOME, STRONGROOM_STATE_DIR or a state directory",
                dir.display()
            );
        }
        let place = place_of(dir);
        let path = state
            .as_ref()
            .map(|state| state.join(entry_name(room, place.as_deref())));
        let mut may_lower = false;
        let mut accept = |error: Error| {
            if !options.accept_rollback {
                return Err(error);
            }
            tracing::warn!("{error}; accepted");
            may_lower = true;
            Ok(())
        };
        let mut on_disk = None;
        if let Some(path) = &path {
            match read_own(path, place.as_deref()) {
                Ok(entry) => on_disk = entry,
                Err(e) => accept(e)?,
            }
        }
        let name = lineage.unwrap_or(ORIGINAL);
        let mut least = on_disk.as_ref().map_or(0, |entry| entry.generation);
        if let (None, Some(state)) = (&on_disk, &state) {
            match newest_of(state, room, name) {
                Ok(newest) => least = newest,
                Err(e) => accept(e)?,
            }
        }
        Ok(Self {
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
            may_lower,
        })
    }

    /// Whether anything is remembered.
    pub(crate) fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Refuses a room older than remembered, unless that is wanted: then the older one is what is remembered from now on,
    /// if the room was not opened `read_only`. A newer one is remembered then too, but of a backup: a replica is mostly read.
    pub(crate) fn check(
        &mut self,
        found: u64,
        accept_rollback: bool,
        read_only: bool,
        is_replica: bool,
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
            self.may_lower = true;
        }
        self.entry.generation = found;
        if !read_only || ((is_replica || !self.is_copy) && found >= self.least) {
            self.write();
        }
        Ok(())
    }

    /// Takes note of a durable commit. Whether it is time to write it down.
    pub(crate) fn note(&mut self, generation: u64) -> bool {
        self.entry.generation = generation;
        self.path.is_some() && self.written.is_none_or(|at| at.elapsed() >= INTERVAL)
    }

    /// What is to be written, if anything; it can be written without this memory.
    pub(crate) fn unwritten(&mut self) -> Option<Unwritten> {
        let path = self.path.clone()?;
        if self.on_disk.as_ref() == Some(&self.entry) {
            return None;
        }
        self.written = Some(Instant::now());
        Some(Unwritten {
            path,
            entry: self.entry.clone(),
            may_lower: self.may_lower,
        })
    }

    /// Takes note of what came of it. Failing costs the detection of a rollback, not data: it is logged.
    pub(crate) fn written(&mut self, result: std::io::Result<Written>) {
        match result {
            Ok(Written(entry)) => {
                self.on_disk = Some(entry);
                self.may_lower = false;
            }
            Err(e) => {
                let path = self.path.as_deref().unwrap_or(Path::new(""));
                tracing::warn!("{}: a rollback will not be noticed: {e}", path.display());
            }
        }
    }

    /// Writes the memory down.
    pub(crate) fn write(&mut self) {
        if let Some(unwritten) = self.unwritten() {
            self.written(unwritten.write());
        }
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
    if let Ok(None) = read_own(&path, Some(&place)) {
        return;
    }
    let entry = Entry {
        generation,
        lineage: lineage.to_owned(),
        place: Some(place),
    };
    if let Err(e) = replace(&path, &entry, true) {
        tracing::warn!("{}: {e}", path.display());
    }
}

/// Whether something is remembered of the room at `target`, or cannot be read. What is written to is remembered, and what is read is, unless
/// it is a backup.
pub(crate) fn is_remembered(room: &RoomId, target: &Path, options: &OpenOptions) -> bool {
    let (Some(state), Some(place)) = (state_dir(options, target), place_of(target)) else {
        return false;
    };
    let path = state.join(entry_name(room, Some(&place)));
    !matches!(read_own(&path, Some(&place)), Ok(None))
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

fn unusable(path: &Path, why: impl ToString) -> Error {
    Error::UnusableMemory {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// The entry in a file; `None`: there is none.
fn read_entry(path: &Path) -> Result<Option<Entry>> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(ENTRY_MAX).read_to_string(&mut text));
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unusable(path, e)),
        Ok(_) => match Entry::parse(&text) {
            Some(entry) => Ok(Some(entry)),
            None => Err(unusable(path, "not what this program writes")),
        },
    }
}

/// The entry of this place in a file. Two directories can have the same name of a file; that of another one says nothing here.
fn read_own(path: &Path, place: Option<&[u8]>) -> Result<Option<Entry>> {
    let Some(entry) = read_entry(path)? else {
        return Ok(None);
    };
    match (place, entry.place.as_deref()) {
        (None, _) => Ok(Some(entry)),
        (Some(here), Some(there)) if here == there => Ok(Some(entry)),
        (Some(here), Some(there)) if !here.starts_with(there) => Ok(None),
        // Cut short.
        (Some(_), _) => Err(unusable(path, "it ends too early")),
    }
}

/// The newest generation of this lineage at any place.
fn newest_of(state: &Path, room: &RoomId, lineage: &str) -> Result<u64> {
    let files = match fs::read_dir(state) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        files => files.map_err(|e| unusable(state, e))?,
    };
    let prefix = room.to_string();
    let mut newest = 0;
    for file in files {
        let file = file.map_err(|e| unusable(state, e))?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix)
            && name.ends_with(SUFFIX)
            && let Some(entry) = read_entry(&file.path())?
            && entry.lineage == lineage
        {
            newest = newest.max(entry.generation);
        }
    }
    Ok(newest)
}

/// Puts an entry durably in the place of the one that is there, unless that is newer.
fn replace(path: &Path, entry: &Entry, may_lower: bool) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    // What rooms a user has, and where, is for nobody else to see.
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let is_newer = |there: Entry| there.place == entry.place && there.generation > entry.generation;
    let is_late = || !may_lower && read_entry(path).ok().flatten().is_some_and(is_newer);
    if is_late() {
        return Ok(());
    }
    // No other process has this name, on any machine.
    let number = RandomState::new().build_hasher().finish();
    let new = path.with_extension(format!("{}-{number:016x}.new", std::process::id()));
    let write = || {
        let mut file = File::create_new(&new)?;
        file.write_all(entry.text().as_bytes())?;
        file.sync_all()?;
        let lock = lock(dir)?;
        if is_late() {
            return fs::remove_file(&new);
        }
        fs::rename(&new, path)?;
        drop(lock);
        File::open(dir)?.sync_all()
    };
    write().inspect_err(|_| {
        // What is left of it is no entry.
        let _ = fs::remove_file(&new);
    })
}

/// Keeps other processes from replacing entries, for as long as it is there. Goes on without, where a file system has no locks, and where
/// another process does not end: one that is stopped in the middle would hold up every room of its user.
fn lock(dir: &Path) -> std::io::Result<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(LOCK))?;
    let deadline = Instant::now() + LOCK_MAX;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => {
                tracing::debug!("{}: no lock: {e}", dir.display());
                break;
            }
        }
    }
    Ok(lock)
}

/// Where this machine remembers what it saw of rooms, unless it is set: `$STRONGROOM_STATE_DIR`, which machines may share; else
/// `strongroom` in `$XDG_STATE_HOME`, else in `~/.local/state`; `None` where neither of these is an absolute path.
pub fn default_state_dir() -> Option<PathBuf> {
    let given = std::env::var_os("STRONGROOM_STATE_DIR").filter(|dir| !dir.is_empty());
    if let Some(given) = given {
        return Some(std::path::absolute(&given).unwrap_or(given.into()));
    }
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_entry_is_read_back_and_one_of_an_older_version_is_the_originals() {
        let entry = Entry {
            generation: 7,
            lineage: "0123456789abcdef".repeat(2),
            place: Some(b"2f61".to_vec()),
        };
        assert_eq!(Entry::parse(&entry.text()), Some(entry));
        let old = Entry::parse("12\n").unwrap();
        assert_eq!(
            (old.generation, &*old.lineage, old.place),
            (12, ORIGINAL, None)
        );
        for garbled in [
            "no number\n",
            "",
            "12",
            "12\norig\n",
            "12\noriginal\nzz\n",
            "12\noriginal\n2f\nmore\n",
            "\0\0\0\n",
        ] {
            assert_eq!(Entry::parse(garbled), None, "{garbled:?}");
        }
    }

    #[test]
    fn a_process_that_is_stopped_while_it_replaces_an_entry_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let stopped = File::create(dir.path().join(LOCK)).unwrap();
        stopped.lock().unwrap();
        let path = dir.path().join(format!("room{SUFFIX}"));
        let entry = Entry {
            generation: 7,
            lineage: ORIGINAL.into(),
            place: None,
        };
        replace(&path, &entry, false).unwrap();
        assert_eq!(read_entry(&path).unwrap(), Some(entry));
        drop(stopped);
    }

    #[test]
    fn many_writers_of_one_entry_leave_the_newest_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state").join(format!("room{SUFFIX}"));
        let entry = |generation| Entry {
            generation,
            lineage: ORIGINAL.into(),
            place: Some(b"2f61".to_vec()),
        };
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for turn in 0..10 {
                        replace(path, &entry(1 + writer + 8 * turn), false).unwrap();
                        assert!(read_entry(path).unwrap().is_some());
                    }
                });
            }
        });
        assert_eq!(read_entry(&path).unwrap(), Some(entry(80)));
        let state = dir.path().join("state");
        let files = fs::read_dir(&state).unwrap();
        assert_eq!(files.count(), 2, "the entry and the lock");
        let mode = fs::metadata(&state).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "of this user alone");
        replace(&path, &entry(3), false).unwrap();
        assert_eq!(read_entry(&path).unwrap(), Some(entry(80)));
        replace(&path, &entry(3), true).unwrap();
        assert_eq!(read_entry(&path).unwrap(), Some(entry(3)));
    }
}
