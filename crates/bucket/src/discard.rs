//! Removes what a creation left that failed.
//!
//! 1. Only what this very writer created is removed. Where another one has begun since, on this machine or elsewhere, nothing is.
//! 2. It begins with a commit, as every writer does, and that commit goes last: until then nobody can go on from what is half removed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::client::Client;
use crate::creation::remove_all;
use crate::elsewhere;
use crate::history;
use crate::opening::{WriterId, WriterNote, begin, local};
use crate::options::Options;
use crate::storage::BucketStorage;

impl BucketStorage {
    /// Removes everything below `prefix` that the writer `created` left there, which is closed. `dir` is its directory.
    ///
    /// # Errors
    /// `ResourceBusy` where another writer has begun since, or another process of this machine has it open: then nothing is removed.
    /// Other kinds where something could not be removed.
    pub fn discard(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        dir: &Path,
        options: Options,
        created: WriterId,
    ) -> io::Result<()> {
        let client = Client::new(store, options.log.clone(), prefix, options.timeout)?;
        let _lock = local(dir, false)?;
        let (removing, note) = (client.clone(), WriterNote::read(dir));
        client.wait(async move {
            let begun = overtake(&removing, &note, created).await?;
            remove_all(&removing, begun).await
        })?
    }
}

/// Begins behind the last commit of a writer; returns the number of that begin.
async fn overtake(client: &Client, note: &WriterNote, created: WriterId) -> io::Result<u64> {
    elsewhere::check(client).await?;
    let others = || {
        let why = "another writer has begun there since, and nothing is removed";
        io::Error::new(io::ErrorKind::ResourceBusy, why)
    };
    let history = history::load(client).await?;
    let history = history.filter(|history| WriterId::of(&history.manifest) == created);
    let mut history = history.ok_or_else(others)?;
    let is_ours = history.manifest.is_open;
    match begin(client, &mut history, note, is_ours, Vec::new()).await? {
        true => {
            note.intend_removal(&history.manifest)?;
            Ok(history.manifest.number)
        }
        false => Err(others()),
    }
}
