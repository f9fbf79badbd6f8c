//! Commits in their log and checkpoints in the store: which state is the newest, and how a writer begins.
//!
//! 1. The state is that of the newest checkpoint, with the commits behind it applied, each of which names the one before.
//! 2. Commits with which a writer began are never removed. A writer that was overtaken finds, under its next number, the begin of the one
//!    that overtook it: always, however long it slept.
//! 3. A reader follows from commit to commit, each of which names the one before: what it sees is the state after one of them, never a
//!    mixture.
//! 4. An opening may find old numbers free that were in use, because commits before a checkpoint are removed. So it looks, after its begin,
//!    whether anything is newer; if so its begin is of no consequence, and it looks again.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::client::Client;
use crate::manifest::Manifest;
use crate::names::{self, CHECKPOINTS};
use crate::record::{Id, Op, Record};

/// Objects read at once.
const TOGETHER: usize = 16;
/// Commits, and bytes in them, after which a reader that follows reads the newest checkpoint: more than a writer puts between two.
const LONG_COMMITS: u64 = 1024;
const LONG_BYTES: usize = 48 << 20;
/// How often an opening begins again because others write.
pub(crate) const TRIES: usize = 8;

/// The newest state.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) manifest: Manifest,
    /// The number of the checkpoint; zero: none.
    pub(crate) checkpoint: u64,
    /// Bytes in the commits behind it.
    pub(crate) bodies: BTreeMap<u64, Bytes>,
    /// The head of the newest commit's record in the log, where that is a begin that was just written.
    pub(crate) head: Bytes,
}

impl History {
    /// Whether so much was added since the checkpoint that a newer one is worth reading: memory for the commits' bytes is bounded so.
    fn is_long(&self) -> bool {
        let bytes: usize = self.bodies.values().map(Bytes::len).sum();
        bytes > LONG_BYTES || self.manifest.number - self.checkpoint > LONG_COMMITS
    }

    /// Applies the commit that these bytes are. `Err` says what is wrong with them.
    fn apply(&mut self, number: u64, bytes: &Bytes) -> Result<(), String> {
        let record = Record::parse(number, bytes)?;
        self.manifest.apply(&record)?;
        if !record.data.is_empty() {
            self.bodies.insert(number, record.data);
        }
        Ok(())
    }
}

/// A random id.
pub(crate) fn new_id() -> io::Result<Id> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|e| io::Error::other(format!("no random numbers: {e}")))?;
    Ok(id)
}

pub(crate) fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn damaged(name: &str, why: &str) -> io::Error {
    let text = format!("the object {name} {why}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Reads the newest state; `None` where there is no room.
pub(crate) async fn load(client: &Client) -> io::Result<Option<History>> {
    let mut tried = 0;
    loop {
        tried += 1;
        match load_once(client).await {
            // Removed while we looked, by a writer whose newer checkpoint we have not seen.
            Err(e) if e.kind() == io::ErrorKind::NotFound && tried < TRIES => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
            other => return other,
        }
    }
}

/// The number of the newest checkpoint; zero: there is none.
async fn newest_checkpoint(client: &Client) -> io::Result<u64> {
    let listed = client.list(CHECKPOINTS, None).await?;
    let numbers = listed.iter();
    let numbers = numbers.filter_map(|(name, _)| names::number_of(CHECKPOINTS, name));
    Ok(numbers.max().unwrap_or(0))
}

async fn load_once(client: &Client) -> io::Result<Option<History>> {
    let checkpoint = newest_checkpoint(client).await?;
    let mut history = History {
        checkpoint,
        ..History::default()
    };
    if checkpoint > 0 {
        let name = names::checkpoint(checkpoint);
        let bytes = client.get(name.clone()).await?;
        let is_elsewhere = client.log_address().is_some();
        history.manifest = Manifest::parse(checkpoint, &bytes, is_elsewhere)
            .map_err(|why| damaged(&name, &why))?;
    }
    let numbers = client.commits_after(checkpoint).await?;
    if numbers.is_empty() && checkpoint == 0 {
        return Ok(None);
    }
    let gets = numbers.clone().into_iter().map(|number| {
        let client = client.clone();
        async move { client.commit(number).await }
    });
    let mut read = futures_util::stream::iter(gets).buffered(TOGETHER);
    for number in &numbers {
        let expected = history.manifest.number + 1;
        if *number != expected {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the object {} is missing", names::commit(expected)),
            ));
        }
        let bytes = read.next().await.expect("one for each")?;
        history
            .apply(*number, &bytes)
            .map_err(|why| damaged(&names::commit(*number), &why))?;
    }
    Ok(Some(history))
}

/// The state after the commits that were added behind `state`; `None` where there is none yet. Asks for the next commit only, which is
/// the cheapest question; commits that were removed meanwhile are found where `look` is set.
///
/// # Errors
/// `InvalidData` where what is there does not go on from `state`: the store went back, or is damaged.
pub(crate) async fn follow(
    client: &Client,
    state: &History,
    look: bool,
) -> io::Result<Option<History>> {
    let mut next: Option<History> = None;
    loop {
        let number = next.as_ref().unwrap_or(state).manifest.number + 1;
        let bytes = match client.commit(number).await {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(e),
        };
        let later = next.get_or_insert_with(|| state.clone());
        // The begin of a writer that started from an old state may be at an old number, and lead nowhere.
        if let Err(why) = later.apply(number, &bytes) {
            let wrong = damaged(&names::commit(number), &why);
            return reload(client, state, Some(wrong)).await;
        }
        // A busy writer is as fast as its readers: there is always one more.
        if later.is_long() {
            return reload(client, state, None).await;
        }
    }
    match next {
        None if look => reload_if_newer(client, state).await,
        next => Ok(next),
    }
}

/// The newest state, read as an opening does. `wrong`: what is wrong unless that is newer.
async fn reload(
    client: &Client,
    state: &History,
    wrong: Option<io::Error>,
) -> io::Result<Option<History>> {
    let (ours, newest) = (state.manifest.number, load(client).await?);
    match (newest, wrong) {
        (Some(newest), _) if newest.manifest.number > ours => Ok(Some(newest)),
        (_, Some(wrong)) => Err(wrong),
        (Some(newest), None) if newest.manifest.number == ours => Ok(None),
        (newest, None) => {
            let number = newest.map_or(0, |newest| newest.manifest.number);
            Err(went_back(number, ours))
        }
    }
}

/// The same, after a look at the lists only where they have nothing newer.
async fn reload_if_newer(client: &Client, state: &History) -> io::Result<Option<History>> {
    let ours = state.manifest.number;
    let commits = client.commits_after(ours - 1).await?;
    let newest_commit = commits.into_iter().max().unwrap_or(0);
    match newest_commit.max(newest_checkpoint(client).await?) {
        newest if newest > ours => reload(client, state, None).await,
        newest if newest < ours => Err(went_back(newest, ours)),
        _ => Ok(None),
    }
}

fn went_back(found: u64, ours: u64) -> io::Error {
    let text = format!(
        "the newest commit in the store is {found}, and {ours} was there: the store went back"
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether anything in the store is newer than a commit.
async fn is_overtaken(client: &Client, number: u64) -> io::Result<bool> {
    let later = client.commits_after(number).await?;
    Ok(!later.is_empty() || newest_checkpoint(client).await? > number)
}

/// The record with which a writer begins behind a state.
pub(crate) fn begin_of(manifest: &Manifest, lease: Vec<Op>) -> io::Result<Record> {
    let mut ops = vec![Op::Begin];
    ops.extend(lease);
    Ok(Record {
        number: manifest.number + 1,
        id: new_id()?,
        previous: manifest.id,
        ops,
        data: Bytes::new(),
    })
}

/// Writes a begin behind its state. False: another writer was faster.
pub(crate) async fn begin(
    client: &Client,
    history: &mut History,
    record: &Record,
) -> io::Result<bool> {
    let manifest = &history.manifest;
    let previous = client.head_of(manifest.number, &manifest.id).await?;
    let created = client.create_commit(record.number, record.encode(), &previous);
    let Some(head) = created.await? else {
        return Ok(false);
    };
    if is_overtaken(client, record.number).await? {
        return Ok(false);
    }
    history.head = head;
    history
        .manifest
        .apply(record)
        .map_err(|why| damaged(&names::commit(record.number), &why))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use object_store::memory::InMemory;

    use super::*;
    use crate::log::{CommitLog, Created, LogError};

    /// The log of a writer that is as fast as its readers: behind each commit that is read there is another one.
    #[derive(Debug)]
    struct Endless(AtomicU64);

    fn id(number: u64) -> Id {
        (u128::from(number)).to_le_bytes()
    }

    #[async_trait::async_trait]
    impl CommitLog for Endless {
        fn address(&self) -> Option<String> {
            Some("endless".into())
        }

        async fn create(
            &self,
            _room: &str,
            _number: u64,
            _record: Bytes,
            _previous: &[u8],
        ) -> Result<Created, LogError> {
            unreachable!("it is only read")
        }

        async fn get(&self, _room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
            assert!(number < 100_000, "it is read without an end");
            self.0.fetch_max(number + 1, Ordering::Relaxed);
            let record = Record {
                number,
                id: id(number),
                previous: id(number - 1),
                ops: Vec::new(),
                data: Bytes::new(),
            };
            Ok(Some(record.encode().concat().into()))
        }

        async fn list(&self, _room: &str, after: u64) -> Result<Vec<u64>, LogError> {
            Ok((after + 1..=self.0.load(Ordering::Relaxed)).collect())
        }

        async fn delete(&self, _room: &str, _numbers: &[u64]) -> Result<(), LogError> {
            unreachable!("it is only read")
        }
    }

    /// It read commit after commit, kept them all in memory, and never showed one.
    #[test]
    fn a_reader_of_a_writer_that_never_pauses_moves_all_the_same() {
        let log = Arc::new(Endless(AtomicU64::new(1)));
        let store = Arc::new(InMemory::new());
        let client = Client::new(store, Some(log), "rooms/a", Duration::from_secs(5)).unwrap();
        let reading = client.clone();
        let numbers = client.wait(async move {
            let first = load(&reading).await?.expect("a commit");
            let later = follow(&reading, &first, false).await?;
            let number = later.map(|later| later.manifest.number);
            io::Result::Ok((first.manifest.number, number))
        });
        let (first, later) = numbers.unwrap().unwrap();
        assert!(later > Some(first), "{later:?} after {first}");
    }
}
