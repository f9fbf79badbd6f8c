//! Requests about commits: to the log, with trying again, and with records that are too large for it in objects of the store.
//!
//! 1. A record that is too large is in the store before the log has the commit that names it, under its hash.
//! 2. It is removed after its commit.
//! 3. A commit is created behind the one that its writer knows, by the head of that one's record: a log that lost it may have another one of
//!    that number.

use std::io;

use bytes::Bytes;

use crate::client::{Client, ENDLESS, Request};
use crate::log::{Created, HEAD, lost};
use crate::names::{self, RECORDS};
use crate::record::{Id, Record};
use crate::trying::Fails;

/// How the place of a record in an object begins; its BLAKE3 hash follows.
const MAGIC: &[u8; 8] = b"SRRECORD";
/// Commits that one request removes.
const TOGETHER: usize = 256;

/// What a record of the log is known by, without keeping the rest in memory.
fn head(record: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&record[..record.len().min(HEAD)])
}

/// The hash of a record that is in an object, where that is what the log has.
fn reference(found: &Bytes) -> Option<blake3::Hash> {
    let hash = found.strip_prefix(MAGIC)?;
    Some(blake3::Hash::from_bytes(hash.try_into().ok()?))
}

impl Client {
    /// Creates a commit whose number others may be creating: one of all wins. The record must be like no other. `previous`: the head of the
    /// record before it in the log; empty for the first one. Returns the head of this one; `None`: another one has the number.
    pub(crate) async fn create_commit(
        &self,
        number: u64,
        parts: Vec<Bytes>,
        previous: &Bytes,
    ) -> io::Result<Option<Bytes>> {
        let record = match self.is_too_long(&parts) {
            true => self.put_record(number, parts).await?,
            false if parts.len() == 1 => parts.into_iter().next().expect("one"),
            false => Bytes::from(parts.concat()),
        };
        let what = format!("creating {}", names::commit(number));
        let create = || {
            let log = self.log();
            log.create(self.room(), number, record.clone(), previous)
        };
        let created = self
            .ask_log(&what, Request::Put, record.len() as u64, create)
            .await?;
        Ok(match created {
            Created::Ours => Some(head(&record)),
            Created::Taken => None,
        })
    }

    /// The same, for a thread that may wait. Where the log allows it that thread carries it out: nothing is handed from one to another.
    pub(crate) fn create_commit_now(
        &self,
        number: u64,
        parts: Vec<Bytes>,
        previous: Bytes,
    ) -> io::Result<Option<Bytes>> {
        if let Some(runtime) = self.waiting().filter(|_| !self.is_too_long(&parts)) {
            return runtime.block_on(self.create_commit(number, parts, &previous));
        }
        let client = self.clone();
        self.wait(async move { client.create_commit(number, parts, &previous).await })?
    }

    /// The head of a commit's record in the log, for the next one to be created behind it; empty for the number zero, and where the log is in
    /// the store, which does not look.
    ///
    /// # Errors
    /// `InvalidData` where the commit with this id is not in the log.
    pub(crate) async fn head_of(&self, number: u64, id: &Id) -> io::Result<Bytes> {
        let Some(address) = self.log_address().filter(|_| number > 0) else {
            return Ok(Bytes::new());
        };
        if let Some(found) = self.found(number).await? {
            let record = self.record_of(number, found.clone()).await?;
            if Record::parse(number, &record).is_ok_and(|record| record.id == *id) {
                return Ok(head(&found));
            }
        }
        let why = lost(number + 1).words();
        let text = format!("the log {address}: {why}");
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
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
        let found = self.found(number).await?.ok_or_else(|| {
            let name = names::commit(number);
            io::Error::new(io::ErrorKind::NotFound, format!("{name} is not there"))
        })?;
        self.record_of(number, found).await
    }

    /// What the log has under a number.
    async fn found(&self, number: u64) -> io::Result<Option<Bytes>> {
        let what = format!("reading {}", names::commit(number));
        let once = || self.log().get(self.room(), number);
        // In the store the size does not matter; elsewhere few are larger, and two tries must fit into the usual time.
        let bytes = match self.log_address() {
            Some(_) => 4 << 20,
            None => 16 << 20,
        };
        self.ask_log(&what, Request::Get, bytes, once).await
    }

    /// The record that the log has, or names.
    async fn record_of(&self, number: u64, found: Bytes) -> io::Result<Bytes> {
        let Some(hash) = reference(&found) else {
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
        // A store answers page by page.
        let bytes = match self.log_address() {
            Some(_) => 0,
            None => ENDLESS,
        };
        self.ask_log(&what, Request::List, bytes, once).await
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
