//! Requests about commits: to the log, with trying again, and with records that are too large for it in objects of the store.
//!
//! 1. A record that is too large is in the store before the log has the commit that names it, under its hash.
//! 2. It is removed after its commit.

use std::io;

use bytes::Bytes;

use crate::client::{Client, Request};
use crate::log::Created;
use crate::names::{self, RECORDS};

/// How the place of a record in an object begins.
const MAGIC: &[u8; 8] = b"SRRECORD";
/// Magic, BLAKE3 hash.
const REFERENCE: usize = 8 + 32;
/// Commits that one request removes.
const TOGETHER: usize = 256;

impl Client {
    /// Creates a commit whose number others may be creating: one of all wins. The record must be like no other.
    pub(crate) async fn create_commit(
        &self,
        number: u64,
        parts: Vec<Bytes>,
    ) -> io::Result<Created> {
        let record = match self.is_too_long(&parts) {
            true => self.put_record(number, parts).await?,
            false if parts.len() == 1 => parts.into_iter().next().expect("one"),
            false => Bytes::from(parts.concat()),
        };
        let what = format!("creating {}", names::commit(number));
        let once = || self.log().create(self.room(), number, record.clone());
        self.ask_log(&what, Request::Put, record.len() as u64, once)
            .await
    }

    /// The same, for a thread that may wait. Where the log allows it that thread carries it out: nothing is handed from one to another.
    pub(crate) fn create_commit_now(&self, number: u64, parts: Vec<Bytes>) -> io::Result<Created> {
        if let Some(runtime) = self.waiting().filter(|_| !self.is_too_long(&parts)) {
            return runtime.block_on(self.create_commit(number, parts));
        }
        let client = self.clone();
        self.wait(async move { client.create_commit(number, parts).await })?
    }

    fn is_too_long(&self, parts: &[Bytes]) -> bool {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        len > self.log().record_max()
    }

    /// Creates what the log needs before its first room.
    pub(crate) async fn prepare_log(&self) -> io::Result<()> {
        if self.log_address().is_none() {
            return Ok(());
        }
        let once = || self.log().prepare();
        self.ask_log("preparing it", Request::Put, 0, once).await
    }

    async fn put_record(&self, number: u64, parts: Vec<Bytes>) -> io::Result<Bytes> {
        let mut hasher = blake3::Hasher::new();
        for part in &parts {
            hasher.update(part);
        }
        let hash = hasher.finalize();
        self.put(names::record(number, &hash), parts).await?;
        Ok(Bytes::from([&MAGIC[..], hash.as_bytes()].concat()))
    }

    /// The record of a commit. `NotFound` where it is not there.
    pub(crate) async fn commit(&self, number: u64) -> io::Result<Bytes> {
        let name = names::commit(number);
        let what = format!("reading {name}");
        let once = || self.log().get(self.room(), number);
        let found = self.ask_log(&what, Request::Get, 16 << 20, once).await?;
        let found = found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{name} is not there"))
        })?;
        let hash: Option<[u8; 32]> = match found.strip_prefix(MAGIC) {
            Some(hash) if found.len() == REFERENCE => hash.try_into().ok(),
            _ => None,
        };
        let Some(hash) = hash.map(blake3::Hash::from_bytes) else {
            self.count_got(&found);
            return Ok(found);
        };
        let name = names::record(number, &hash);
        let record = self.get(name.clone()).await?;
        match blake3::hash(&record) == hash {
            true => Ok(record),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the object {name} is damaged: its hash is wrong"),
            )),
        }
    }

    /// The numbers of all commits after one, ascending.
    pub(crate) async fn commits_after(&self, number: u64) -> io::Result<Vec<u64>> {
        let what = format!("listing commits after {number}");
        let once = || self.log().list(self.room(), number);
        self.ask_log(&what, Request::List, 0, once).await
    }

    /// Removes commits, which need not be there, and the records of theirs that are in the store. What fails is logged.
    pub(crate) async fn delete_commits(&self, numbers: Vec<u64>) {
        let Some(last) = numbers.iter().max().copied() else {
            return;
        };
        self.delete_from_log(&numbers).await;
        if self.log_address().is_none() {
            return;
        }
        // All commits up to the last of them are in a checkpoint, those of writers that lost the number included.
        match self.list(RECORDS, None).await {
            Ok(listed) => {
                let names = listed.into_iter().map(|(name, _)| name);
                let is_past =
                    |name: &String| names::number_of_record(name).is_some_and(|n| n <= last);
                self.delete(names.filter(is_past).collect()).await;
            }
            Err(e) => tracing::warn!("{e}"),
        }
    }

    /// Removes commits from the log only: all that a test of the log has. What fails is logged.
    pub(crate) async fn delete_from_log(&self, numbers: &[u64]) {
        for numbers in numbers.chunks(TOGETHER) {
            let (from, to) = (numbers[0], numbers[numbers.len() - 1]);
            let what = format!("removing commits between {from} and {to}");
            let once = || self.log().delete(self.room(), numbers);
            if let Err(e) = self.ask_log(&what, Request::Delete, 0, once).await {
                tracing::warn!("{e}");
            }
        }
    }
}
