//! What an opening needs of this machine, and the names that a state of the store has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::{HostStorage, LockGuard, Storage};

use crate::file::{File, Place};
use crate::history::{History, damaged, hex};
use crate::manifest::{Entry, Manifest, Stored};
use crate::names::{self, ObjectName};
use crate::shared::{Names, Node};

/// Held by the process that writes to the bucket.
const WRITER_LOCK: &str = "writer.lock";
/// Which writer of the bucket was the last one of this directory.
pub(crate) const WRITER: &str = "writer";
/// Begin of the name of the cache's directory.
const CHUNKS: &str = "chunks-";

pub(crate) fn writer_line(manifest: &Manifest) -> String {
    format!("{} {}\n", hex(&manifest.origin), manifest.epoch)
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
    match local.lock(WRITER_LOCK, &format!("{}\n", std::process::id())) {
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
