//! Whether a store and a log can be trusted with a room.
//!
//! A log that overwrites a commit although the request says "only where there is none" would let each of two writers take itself for the
//! only one. Garage 2.5 does; a room there needs a log elsewhere.

use std::io;

use bytes::Bytes;

use crate::client::Client;
use crate::history::{hex, new_id};
use crate::log::Created;

const PROBES: &str = "probe";
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

/// Tests the store, below the room's prefix, and the log, under a name like the room's; removes what the test made.
pub(crate) async fn probe(client: &Client) -> io::Result<()> {
    let own = format!("{PROBES}/{}", hex(&new_id()?));
    let object = format!("{own}-object");
    let result = test_objects(client, &object).await;
    client.delete(vec![object]).await;
    result?;
    let log = client.named(&own);
    let result = test_log(&log).await;
    log.delete_commits((1..=1 + RACES).collect()).await;
    result
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
    let create = |number, who| log.create_commit(number, content(who));
    if create(1, 0).await.map_err(conditional)? != Created::Ours {
        return Err(disordered("a new name was taken already"));
    }
    if create(1, 1).await.map_err(conditional)? != Created::Taken
        || log.commit(1).await? != content(0)[0]
    {
        return Err(disordered(
            "it overwrites a commit that must not be overwritten",
        ));
    }
    if create(1, 0).await.map_err(conditional)? != Created::Ours {
        return Err(disordered("it does not know a commit again"));
    }
    if log.commits_after(0).await? != [1] || !log.commits_after(1).await?.is_empty() {
        return Err(disordered("a new commit is not in its list"));
    }
    for number in 2..=1 + RACES {
        let racers = (0..RACERS).map(|who| create(number, who));
        let ends = futures_util::future::try_join_all(racers)
            .await
            .map_err(conditional)?;
        let winners: Vec<usize> = (0..RACERS)
            .filter(|who| ends[*who] == Created::Ours)
            .collect();
        let there = log.commit(number).await?;
        if winners.len() != 1 || there != content(winners[0])[0] {
            return Err(disordered(
                "of several writers of one number not exactly one won",
            ));
        }
    }
    Ok(())
}
