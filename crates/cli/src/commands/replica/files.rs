//! Where the files of a replica are: in a directory, or in the bucket that a directory represents.
//!
//! A bucket is opened once for all that a command writes there: each opening leaves a commit, which is kept for ever.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use room::{OpenOptions, Progress, ReceiveReport, ReplicaStatus, Room};
use storage::Storage;

use crate::bucket;
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::proxy::{is_proxy, room_name};

/// The files of a replica, which can be written to.
pub(super) struct Files {
    dir: PathBuf,
    /// `None`: they are in the directory, which need not be there yet.
    bucket: Option<Arc<dyn Storage>>,
}

impl Files {
    /// Opens them; a directory need not be there yet.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        Self::with(dir, bucket::storage(dir, false))
    }

    /// The same for what is to be received: a place in a bucket need not be there yet either.
    pub(super) fn open_or_create(dir: &Path) -> Result<Self> {
        let opened = match bucket::storage(dir, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => bucket::create_storage(dir).map(Some),
            other => other,
        };
        Self::with(dir, opened)
    }

    fn with(dir: &Path, opened: std::io::Result<Option<Arc<dyn Storage>>>) -> Result<Self> {
        Ok(Self {
            dir: dir.to_owned(),
            bucket: opened.map_err(|e| failed(dir, e.into()))?,
        })
    }

    /// What the user calls it.
    pub(super) fn name(&self) -> PathBuf {
        room_name(&self.dir)
    }

    /// What is there.
    pub(super) fn status(&self) -> Result<ReplicaStatus> {
        status_in(&self.dir, self.bucket.as_deref())
    }

    /// Reads a stream.
    pub(super) fn receive(
        &self,
        from: &mut dyn Read,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<ReceiveReport> {
        let received = match &self.bucket {
            Some(storage) => room::receive_for(&**storage, &self.dir, from, options, progress),
            None => room::receive(&self.dir, from, options, progress),
        };
        received.map_err(|e| failed(&self.dir, e))
    }

    /// Applies what was received for good.
    pub(super) fn apply(&self, given: &Given, options: OpenOptions) -> Result<()> {
        let with = given.credential()?;
        let applied = match &self.bucket {
            Some(storage) => Room::settle_replica_for(storage.clone(), &self.dir, &with, options),
            None => Room::settle_replica(&self.dir, &with, options),
        };
        applied.map_err(|e| failed(&self.dir, e))
    }

    /// Turns it into a room, which receives nothing more.
    pub(super) fn promote(&self, given: &Given, options: OpenOptions) -> Result<()> {
        let with = given.credential()?;
        let promoted = match &self.bucket {
            Some(storage) => Room::promote_replica_for(storage.clone(), &self.dir, &with, options),
            None => Room::promote_replica(&self.dir, &with, options),
        };
        promoted.map_err(|e| failed(&self.dir, e))
    }
}

/// What is there, for one who writes nothing.
pub(super) fn status(dir: &Path) -> Result<ReplicaStatus> {
    match bucket::storage(dir, true) {
        Ok(bucket) => status_in(dir, bucket.as_deref()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(ReplicaStatus::default()),
        Err(e) => Err(failed(dir, e.into())),
    }
}

fn status_in(dir: &Path, bucket: Option<&dyn Storage>) -> Result<ReplicaStatus> {
    let status = match bucket {
        Some(storage) => ReplicaStatus::of_storage(storage, dir),
        None => ReplicaStatus::of(dir),
    };
    status.map_err(|e| failed(dir, e))
}

fn failed(dir: &Path, error: room::Error) -> Error {
    match error {
        room::Error::NotEmptyTarget(_) if is_proxy(dir) => Error::failed(format!(
            "{}: holds something else than a replica; choose another prefix",
            room_name(dir).display()
        )),
        error => Error::room(dir, error),
    }
}
