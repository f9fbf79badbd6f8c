//! Sending the moments of an open room, and what only the key does to a replica.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use seal::Credential;
use storage::{HostStorage, Storage};

use super::Room;
use crate::Result;
use crate::options::OpenOptions;
use crate::replica::{self, MomentId, SendReport, SendRequest, SendScratch};
use crate::reports::Progress;

impl Room {
    /// Writes a stream that makes a replica, or brings one up to date: see [`receive`](crate::receive). The room can be used
    /// meanwhile; space that is freed comes back when it is done.
    ///
    /// A replica has the snapshots that the room has up to `to`. Space that was reserved for holes of files is not reserved there.
    ///
    /// # Errors
    /// `NotFound` where there is no such snapshot, or it is deleted before its changes are collected, `InvalidArgument` where `to` is not younger than `since` or the token is of
    /// something else, `NotSupported` for a room in the middle of a rekey.
    pub fn send(
        &self,
        request: &SendRequest,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<SendReport> {
        let scratch = SendScratch::new(request.scratch.as_deref())?;
        let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(scratch.dir())?);
        self.send_through(request, &storage, out, progress)
    }

    /// The same with a storage for what is collected before it is sent: empty, and private. Its files are sealed, and stay.
    pub fn send_through(
        &self,
        request: &SendRequest,
        scratch: &Arc<dyn Storage>,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<SendReport> {
        replica::send(self.parts()?, request, scratch, out, progress)
    }

    /// The name by which a receiver knows a snapshot's moment. `NotFound`.
    pub fn moment(&self, snapshot: &str) -> Result<MomentId> {
        replica::moment(self.parts()?, snapshot)
    }

    /// The snapshot whose moment has this name, if there still is one.
    pub fn snapshot_of(&self, moment: &MomentId) -> Result<Option<String>> {
        replica::snapshot_of(self.parts()?, moment)
    }

    /// Applies what a replica received for good, and frees what it does not need any more. Without it every opening applies it
    /// in memory. `InvalidArgument` where `dir` is no replica, and as [`open`](Self::open).
    pub fn settle_replica(dir: &Path, credential: &Credential, options: OpenOptions) -> Result<()> {
        Self::settle_replica_for(crate::open::host(dir)?, dir, credential, options)
    }

    /// The same with a storage. It remembers no generations.
    pub fn settle_replica_on(
        storage: Arc<dyn Storage>,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<()> {
        Self::settle_replica_for(storage, Path::new(""), credential, options)
    }

    /// The same with a storage, which `dir` represents on this machine.
    pub fn settle_replica_for(
        storage: Arc<dyn Storage>,
        dir: &Path,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<()> {
        let options = OpenOptions {
            read_only: false,
            background: false,
            // It may get a name later, at the source.
            keep_unnamed: true,
            ..options
        };
        let room = Self::start(crate::open::settle(storage, dir, credential, options)?)?;
        room.tend()?;
        room.close()
    }

    /// Makes a replica a room of its own, which can be changed and receives nothing more. As
    /// [`settle_replica`](Self::settle_replica).
    pub fn promote_replica(
        dir: &Path,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<()> {
        Self::promote_replica_for(crate::open::host(dir)?, dir, credential, options)
    }

    /// The same with a storage, which `dir` represents on this machine.
    pub fn promote_replica_for(
        storage: Arc<dyn Storage>,
        dir: &Path,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<()> {
        Self::settle_replica_for(storage.clone(), dir, credential, options)?;
        replica::promote(&*storage)
    }
}
