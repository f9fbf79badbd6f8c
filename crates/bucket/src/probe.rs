//! Whether a store and a log can be trusted with a room.
//!
//! A log that overwrites a commit although the request says "only where there is none" would let each of two writers take itself for the
//! only one. Garage 2.5 does; a room there needs a log elsewhere.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::client::Client;
use crate::history::{hex, new_id};

const PROBES: &str = "probe";
/// What the name of a test's object ends with.
const OBJECT: &str = "-object";
/// What another machine tests may be under way for so long.
const OLD: Duration = Duration::from_secs(3600);
/// Writers that race for one name, and how often.
const RACERS: usize = 8;
const RACES: u64 = 3;

fn unsupported(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("this object store cannot hold a room: {what} (see docs/bucket.md)"),
    )
}

/// What keeps the order does not.
fn disordered(client: &Client, what: &str) -> io::Error {
    match client.log_address() {
        Some(address) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the log {address} cannot keep the order of commits: {what}"),
        ),
        None => unsupported(&format!(
            "{what}. A store is needed that honours `If-None-Match: *`, or a log elsewhere: --log"
        )),
    }
}

fn content(who: usize) -> Vec<Bytes> {
    vec![Bytes::from(format!("writer {who} of a test, "))]
}

/// Tests the store, below the room's prefix, and the log, under a name like the room's; removes what the test made, and what tests left that were
/// killed.
pub(crate) async fn probe(client: &Client) -> io::Result<()> {
    let own = format!("{PROBES}/{}", hex(&new_id()?));
    let tested = async {
        test_objects(client, &object_of(&own)).await?;
        test_log(&client.named(&own)).await?;
        if let Err(e) = remove_old(client, &own, OLD).await {
            tracing::info!("what earlier tests left is removed another time: {e}");
        }
        Ok(())
    };
    let tested = tested.await;
    remove(client, &own).await;
    tested
}

/// The object of a test. It goes last: its name says where in the log the test was.
fn object_of(test: &str) -> String {
    format!("{test}{OBJECT}")
}

async fn remove(client: &Client, test: &str) {
    // Only there: records in the store are those of the room that another machine may just have created.
    let numbers: Vec<u64> = (1..=1 + RACES).collect();
    client.named(test).delete_from_log(&numbers).await;
    client.delete(vec![object_of(test)]).await;
}

/// Removes what tests left that began so long before this one, by the store's clock.
async fn remove_old(client: &Client, own: &str, age: Duration) -> io::Result<()> {
    let now = client.written_ms(object_of(own)).await?;
    let mut old = BTreeSet::new();
    for (name, _) in client.list(PROBES, None).await? {
        let commit = || name.split_once("/commits/").map(|(test, _)| test);
        let Some(test) = name.strip_suffix(OBJECT).or_else(commit) else {
            continue;
        };
        let since = now - client.written_ms(name.clone()).await?;
        if test != own && u128::try_from(since).is_ok_and(|since| since >= age.as_millis()) {
            old.insert(test.to_owned());
        }
    }
    for test in old {
        remove(client, &test).await;
    }
    Ok(())
}

async fn test_objects(client: &Client, name: &str) -> io::Result<()> {
    client.put(name.to_owned(), content(0)).await?;
    if client.get_range(name.to_owned(), 7..8).await? != "0" {
        return Err(unsupported(
            "it does not return the range of an object that was asked for",
        ));
    }
    let listed = client.list(PROBES, None).await?;
    match listed.iter().any(|(listed, _)| listed == name) {
        true => Ok(()),
        false => Err(unsupported("a new object is not in its directory's list")),
    }
}

async fn test_log(log: &Client) -> io::Result<()> {
    let disordered = |what: &str| disordered(log, what);
    let conditional = |e: io::Error| match e.kind() {
        io::ErrorKind::Unsupported => disordered("it refuses conditional writes"),
        _ => e,
    };
    let create = |number, who, previous: Bytes| async move {
        let created = log.create_commit(number, content(who), &previous);
        Ok::<_, io::Error>(created.await?.is_some())
    };
    let none = Bytes::new;
    if !create(1, 0, none()).await.map_err(conditional)? {
        return Err(disordered("a new name was taken already"));
    }
    if create(1, 1, none()).await.map_err(conditional)? || log.commit(1).await? != content(0)[0] {
        return Err(disordered(
            "it overwrites a commit that must not be overwritten",
        ));
    }
    if !create(1, 0, none()).await.map_err(conditional)? {
        return Err(disordered("it does not know a commit again"));
    }
    if log.commits_after(0).await? != [1] || !log.commits_after(1).await?.is_empty() {
        return Err(disordered("a new commit is not in its list"));
    }
    let mut before = content(0)[0].clone();
    for number in 2..=1 + RACES {
        let racers = (0..RACERS).map(|who| create(number, who, before.clone()));
        let ends = futures_util::future::try_join_all(racers)
            .await
            .map_err(conditional)?;
        let winners: Vec<usize> = (0..RACERS).filter(|who| ends[*who]).collect();
        let there = log.commit(number).await?;
        if winners.len() != 1 || there != content(winners[0])[0] {
            return Err(disordered(
                "of several writers of one number not exactly one won",
            ));
        }
        before = there;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::in_store::InStore;
    use crate::log::{CommitLog, Created, LogError};
    use crate::names;

    /// A log that is not in the room's store.
    #[derive(Debug)]
    struct Elsewhere(InStore);

    #[async_trait::async_trait]
    impl CommitLog for Elsewhere {
        fn address(&self) -> Option<String> {
            Some("elsewhere".into())
        }

        async fn create(
            &self,
            room: &str,
            number: u64,
            record: Bytes,
            previous: &[u8],
        ) -> Result<Created, LogError> {
            self.0.create(room, number, record, previous).await
        }

        async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
            self.0.get(room, number).await
        }

        async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError> {
            self.0.list(room, after).await
        }

        async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError> {
            self.0.delete(room, numbers).await
        }
    }

    /// Two machines create a room at once. One is done and has written a commit that is too large for the log; the other is still testing.
    #[test]
    fn a_test_leaves_the_records_of_another_creation_alone() {
        let log = Arc::new(Elsewhere(InStore(Arc::new(InMemory::new()))));
        let store = Arc::new(InMemory::new());
        let client = Client::new(store, Some(log), "rooms/a", Duration::from_secs(5)).unwrap();
        let testing = client.clone();
        let there = client.wait(async move {
            let record = names::record(2, &blake3::hash(b"large"));
            testing.put(record.clone(), vec!["large".into()]).await?;
            probe(&testing).await?;
            assert!(testing.list(PROBES, None).await?.is_empty());
            testing.get(record).await
        });
        assert_eq!(there.unwrap().unwrap(), "large");
    }

    /// They were in nobody's way, and there for good.
    #[test]
    fn what_a_killed_test_left_is_removed_by_a_later_one() {
        let log = Arc::new(InMemory::new());
        let logs: [Option<Arc<dyn CommitLog>>; 2] =
            [None, Some(Arc::new(Elsewhere(InStore(log.clone()))))];
        for log_elsewhere in logs {
            let store = Arc::new(InMemory::new());
            let client = Client::new(store, log_elsewhere, "rooms/a", Duration::from_secs(5));
            let client = client.unwrap();
            let testing = client.clone();
            let left = client.wait(async move {
                for test in ["probe/a", "probe/b"] {
                    testing.put(object_of(test), content(0)).await?;
                    let log = testing.named(test);
                    let created = log.create_commit(1, content(1), &Bytes::new()).await?;
                    assert!(created.is_some());
                }
                remove_old(&testing, "probe/b", OLD).await?;
                let before = testing.list(PROBES, None).await?.len();
                remove_old(&testing, "probe/b", Duration::ZERO).await?;
                let gone = testing.named("probe/a").commits_after(0).await?;
                let own = testing.named("probe/b").commits_after(0).await?;
                let objects = testing.list(PROBES, None).await?.len();
                io::Result::Ok((before, gone, own, objects))
            });
            let (before, gone, own, objects) = left.unwrap().unwrap();
            assert_eq!((gone, own), (vec![], vec![1]));
            assert_eq!(before, objects * 2);
        }
    }
}
