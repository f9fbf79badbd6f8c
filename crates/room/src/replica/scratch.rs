//! A directory for what is collected before it is sent: the changes, or a catalog. All of it is sealed.
//!
//! It goes when it is dropped. One whose process was killed goes with the next that is created beside it: a directory belongs to
//! the process that has it locked.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use seal::RoomId;

const PREFIX: &str = "strongroom-send-";

/// A private directory for [`send_through`](crate::Room::send_through).
#[derive(Debug)]
pub struct SendScratch {
    dir: PathBuf,
    /// Keeps it locked.
    _lock: File,
}

impl SendScratch {
    /// Creates it in `within`; `None`: where temporary files are.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new(within: Option<&Path>) -> io::Result<Self> {
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        remove_dead(&within);
        loop {
            let dir = within.join(format!("{PREFIX}{}", RoomId::random()));
            DirBuilder::new().mode(0o700).create(&dir)?;
            // Another process may take it for a dead one before it is locked.
            if let Some(lock) = locked(&dir)? {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for SendScratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("{}: {e}", self.dir.display());
        }
    }
}

/// Locks a directory, unless another process has it or it is gone. One on a file system without locks counts as locked.
fn locked(dir: &Path) -> io::Result<Option<File>> {
    let file = match File::open(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(e) if io::Error::from(e).kind() == ErrorKind::WouldBlock => return Ok(None),
        _ => {}
    }
    let is_there = fs::symlink_metadata(dir).is_ok_and(|there| {
        let ours = file.metadata();
        ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    });
    Ok(is_there.then_some(file))
}

/// Removes directories of this user whose processes are gone.
fn remove_dead(within: &Path) {
    let Ok(entries) = fs::read_dir(within) else {
        return;
    };
    let own = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|meta| meta.is_dir() && meta.uid() == own);
        if !is_ours {
            continue;
        }
        let dir = entry.path();
        let Ok(file) = File::open(&dir) else { continue };
        let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if free && let Err(e) = fs::remove_dir_all(&dir) {
            tracing::debug!("{}: {e}", dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_another_uses_stays() {
        let within = tempfile::tempdir().unwrap();
        let dead = within.path().join("strongroom-send-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("changes"), "sealed").unwrap();
        fs::create_dir(within.path().join("of another program")).unwrap();
        let first = SendScratch::new(Some(within.path())).unwrap();
        fs::write(first.dir().join("changes"), "sealed").unwrap();
        let second = SendScratch::new(Some(within.path())).unwrap();
        assert!(!dead.exists());
        assert!(first.dir().join("changes").exists());
        drop((first, second));
        let left: Vec<_> = fs::read_dir(within.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
