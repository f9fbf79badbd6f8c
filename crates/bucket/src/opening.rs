//! What an opening needs of this machine, and the names that a state of the store has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::{HostStorage, LockGuard, Storage};

use crate::client::Client;
use crate::file::{File, Place};
use crate::history::{self, History, damaged, hex};
use crate::manifest::{Entry, Manifest, Stored};
use crate::names::{self, ObjectName};
use crate::record::{Id, Op, Record};
use crate::shared::{Names, Node};

/// Held by the process that writes to the bucket.
const WRITER_LOCK: &str = "writer.lock";
/// Which writer of the bucket was the last one of this directory: [`writer_line`]. While one begins, the commit of its begin is in a second line.
const WRITER: &str = "writer";
/// Its third line, where that begin removes everything.
const REMOVAL: &str = "removal";
/// Begin of the name of the cache's directory.
const CHUNKS: &str = "chunks-";
/// Chunks that go where the disk is full: others may take some of their space at once.
const SPARE: usize = 8;

fn writer_line(manifest: &Manifest) -> String {
    format!("{} {}\n", hex(&manifest.origin), manifest.epoch)
}

/// One writer of one room: no two are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterId {
    /// The id of the room's first commit.
    origin: Id,
    /// The commit with which the writer began.
    epoch: u64,
}

impl WriterId {
    /// The last writer of a state.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            origin: manifest.origin,
            epoch: manifest.epoch,
        }
    }
}

/// What the note [`WRITER`] of a directory says.
#[derive(Debug, Default)]
pub(crate) struct WriterNote {
    path: PathBuf,
    /// The last writer that is known to have begun; a whole line.
    last: String,
    /// A begin of which that is not known: its number and id.
    begun: Option<(u64, String)>,
    /// That begin was to remove everything.
    is_removal: bool,
}

impl WriterNote {
    /// Reads it; where there is none, it says nothing.
    pub(crate) fn read(dir: &Path) -> Self {
        let path = dir.join(WRITER);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.split_inclusive('\n');
        let last = lines.next().unwrap_or_default().to_owned();
        let begun = lines.next().and_then(|line| {
            let (number, id) = line.strip_suffix('\n')?.split_once(' ')?;
            Some((number.parse().ok()?, id.to_owned()))
        });
        let is_removal = lines.next().is_some_and(|line| line.trim_end() == REMOVAL);
        Self {
            path,
            last,
            begun,
            is_removal,
        }
    }

    /// Whether the begin that it has was to remove everything.
    pub(crate) fn is_removal(&self) -> bool {
        self.is_removal
    }

    /// Whether a record is the begin that it has.
    pub(crate) fn begins_with(&self, record: &Record) -> bool {
        let is_it =
            |(number, id): &(u64, String)| *number == record.number && *id == hex(&record.id);
        self.begun.as_ref().is_some_and(is_it)
    }

    /// Notes that everything before a begin is about to be removed, and then that: a process that is killed then can be followed by another one.
    pub(crate) fn intend_removal(&self, begun: &Manifest) -> io::Result<()> {
        let id = hex(&begun.id);
        replace(&self.path, &format!("\n{} {id}\n{REMOVAL}\n", begun.number))
    }

    /// Whether the writer of a state is known to have begun here.
    pub(crate) fn is_last(&self, manifest: &Manifest) -> bool {
        self.last == writer_line(manifest)
    }

    /// The same of a begin that is the newest commit: the process may have been killed before it was known to be there.
    pub(crate) fn has_just_begun(&self, manifest: &Manifest) -> bool {
        let is_newest = |(number, id): &(u64, String)| {
            *number == manifest.number && *number == manifest.epoch && *id == hex(&manifest.id)
        };
        self.begun.as_ref().is_some_and(is_newest)
    }

    /// Whether the writer of a state was the last one of this directory. A begin counts if its commit is the one in the store: another
    /// machine may have been faster, with another commit of this number.
    pub(crate) async fn is_of(&self, client: &Client, manifest: &Manifest) -> io::Result<bool> {
        if self.is_last(manifest) {
            return Ok(true);
        }
        let Some((number, id)) = &self.begun else {
            return Ok(false);
        };
        if *number != manifest.epoch {
            return Ok(false);
        }
        let commit = client.commit(*number).await?;
        let record = Record::parse(*number, &commit);
        Ok(record.is_ok_and(|record| hex(&record.id) == *id))
    }

    /// Notes a begin that is about to be written: a process that is killed then is known again as this machine's. `ours`: the state before
    /// it, if its writer was this directory's.
    pub(crate) fn intend(&self, ours: Option<&Manifest>, begin: &Record) -> io::Result<()> {
        let last = ours.map_or_else(|| "\n".to_owned(), writer_line);
        let text = format!("{last}{} {}\n", begin.number, hex(&begin.id));
        replace(&self.path, &text)
    }
}

/// Writes a note, which is the old one or the new one if the process is killed. Where the disk is full, chunks of the cache beside it go first.
fn replace(note: &Path, text: &str) -> io::Result<()> {
    let new = note.with_extension("new");
    let write = || std::fs::write(&new, text);
    let written = match (write(), note.parent()) {
        (Err(e), Some(dir)) if storage::is_full(&e) => make_space(dir).and_then(|()| write()),
        (written, _) => written,
    };
    let done = written.and_then(|()| std::fs::rename(&new, note));
    done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", note.display())))
}

/// Removes some chunks from the caches in a directory of this machine.
fn make_space(dir: &Path) -> io::Result<()> {
    let mut left = SPARE;
    for cache in std::fs::read_dir(dir)? {
        let cache = cache?;
        if !cache.file_name().to_string_lossy().starts_with(CHUNKS) {
            continue;
        }
        for chunk in std::fs::read_dir(cache.path())?.take(left) {
            let _ = std::fs::remove_file(chunk?.path());
            left -= 1;
        }
    }
    Ok(())
}

/// Notes which writer of the bucket a directory has.
pub(crate) fn note_writer(dir: &Path, manifest: &Manifest) -> io::Result<()> {
    replace(&dir.join(WRITER), &writer_line(manifest))
}

/// Reads the newest state and begins to write; `None` where there is no room. `take_over`: also where another machine does, or died.
pub(crate) async fn load_and_begin(
    client: &Client,
    lease: Vec<Op>,
    note: &WriterNote,
    take_over: bool,
) -> io::Result<Option<History>> {
    for _ in 0..history::TRIES {
        let Some(mut history) = history::load(client).await? else {
            return Ok(None);
        };
        let manifest = &history.manifest;
        let is_ours = manifest.is_open && note.is_of(client, manifest).await?;
        if manifest.is_open && !is_ours && !take_over {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "open for writing elsewhere, or its writer (which began with commit {}) died there; if it did, --take-over goes on \
                     here, and what that writer still tries to write is refused",
                    manifest.epoch
                ),
            ));
        }
        if begin(client, &mut history, note, is_ours, lease.clone()).await? {
            return Ok(Some(history));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "others are writing to this room: an opening was overtaken again and again",
    ))
}

/// Begins to write behind a state. `is_ours`: a writer of this directory has it open. False: another writer was faster.
pub(crate) async fn begin(
    client: &Client,
    history: &mut History,
    note: &WriterNote,
    is_ours: bool,
    lease: Vec<Op>,
) -> io::Result<bool> {
    let record = history::begin_of(&history.manifest, lease)?;
    note.intend(is_ours.then_some(&history.manifest), &record)?;
    history::begin(client, history, &record).await
}

/// The error where a place of the store has no commit.
pub(crate) fn nothing_there() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "there is no room or disk in the bucket",
    )
}

/// The directory of this machine, and the lock of its only writer.
pub(crate) fn local(
    dir: &Path,
    read_only: bool,
) -> io::Result<(HostStorage, Option<Box<dyn LockGuard>>)> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    let local = HostStorage::open(dir)?;
    if read_only {
        return Ok((local, None));
    }
    let lock = || local.lock(WRITER_LOCK, &format!("{}\n", std::process::id()));
    let locked = match lock() {
        Err(e) if storage::is_full(&e) => make_space(dir).and_then(|()| lock()),
        locked => locked,
    };
    match locked {
        Ok(lock) => Ok((local, Some(lock))),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let process = storage::read_limited(&local, WRITER_LOCK, 64).unwrap_or_default();
            Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "in use on this machine by process {}",
                    String::from_utf8_lossy(&process).trim()
                ),
            ))
        }
        Err(e) => Err(e),
    }
}

/// Where a room's chunks are kept. Those of another room that was at the same place go.
pub(crate) fn cache_dir(dir: &Path, manifest: &Manifest) -> io::Result<PathBuf> {
    let own = format!("{CHUNKS}{}", hex(&manifest.origin));
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(CHUNKS) && name != own {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(dir.join(own))
}

/// The names and files of a state.
pub(crate) fn names_of(history: &History) -> io::Result<Names> {
    let manifest = &history.manifest;
    let place = |stored: &Stored, len: u64| match stored.object {
        ObjectName::Commit(number) => {
            let body = history.bodies.get(&number);
            let end = stored.at + len;
            let bytes = body.filter(|body| end <= body.len() as u64);
            let bytes = bytes.ok_or_else(|| {
                let name = names::commit(number);
                damaged(&name, "is missing, and a file has bytes of it")
            })?;
            Ok(Place::Inline {
                stored: *stored,
                bytes: bytes.slice(stored.at as usize..end as usize),
            })
        }
        name => Ok(Place::Stored {
            stored: *stored,
            size: manifest.objects.get(&name).map_or(0, |object| object.size),
        }),
    };
    let mut names = Names {
        next_file: manifest.next_file,
        ..Names::default()
    };
    for (path, entry) in &manifest.names {
        let node = match entry {
            Entry::Directory => Node::Directory,
            Entry::File(number) => {
                let map = manifest.files.get(number);
                let map = map.ok_or_else(|| io::Error::other("a name without a file"))?;
                Node::File(Arc::new(File::of(*number, map, place)?))
            }
        };
        names.entries.insert(path.clone(), node);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that was full, of the cache too, kept its room from being opened for writing.
    #[test]
    fn a_full_disk_gets_space_from_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join(format!("{CHUNKS}a"));
        std::fs::create_dir(&cache).unwrap();
        for chunk in 0..=SPARE {
            std::fs::write(cache.join(format!("1-{chunk:x}-0")), "chunk").unwrap();
        }
        std::fs::write(dir.path().join(WRITER), "kept").unwrap();
        make_space(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
        assert!(dir.path().join(WRITER).exists());
    }
}
