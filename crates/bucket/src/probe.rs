//! Whether a store can be trusted with the order of commits.
//!
//! A store that overwrites an object although the request says "only where there is none" would let each of two writers take itself for the
//! only one. Garage 2.5 does.

use std::io;

use bytes::Bytes;

use crate::client::{Client, Created};
use crate::history::new_id;

const PROBES: &str = "probe";
/// Writers that race for one name, and how often.
const RACERS: usize = 8;
const RACES: usize = 3;

fn unsupported(what: &str) -> io::Error {
    let text = format!(
        "this object store cannot hold a room: {what}. A store is needed that honours `If-None-Match: *` (see docs/bucket.md)"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Tests the store, below the room's prefix, and removes what the test made.
pub(crate) async fn probe(client: &Client) -> io::Result<()> {
    let id = new_id()?;
    let own: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let names: Vec<String> = (0..=RACES).map(|n| format!("{PROBES}/{own}-{n}")).collect();
    let result = test(client, &names).await;
    client.delete(names).await;
    result
}

async fn test(client: &Client, names: &[String]) -> io::Result<()> {
    let content = |who: usize| vec![Bytes::from(format!("writer {who} of a test, "))];
    let conditional = |e: io::Error| match e.kind() {
        io::ErrorKind::Unsupported => unsupported("it refuses conditional writes"),
        _ => e,
    };
    let name = &names[0];
    let first = client.create(name.clone(), content(0)).await;
    if first.map_err(conditional)? != Created::Ours {
        return Err(unsupported("a new name was taken already"));
    }
    let second = client.create(name.clone(), content(1)).await;
    if second.map_err(conditional)? != Created::Taken
        || client.get(name.clone()).await? != content(0)[0]
    {
        return Err(unsupported(
            "it overwrites an object that must not be overwritten",
        ));
    }
    if client.get_range(name.clone(), 7..8).await? != "0" {
        return Err(unsupported(
            "it does not return the range of an object that was asked for",
        ));
    }
    if !client
        .list(PROBES, None)
        .await?
        .iter()
        .any(|(listed, _)| listed == name)
    {
        return Err(unsupported("a new object is not in its directory's list"));
    }
    for name in &names[1..] {
        let racers = (0..RACERS).map(|who| client.create(name.clone(), content(who)));
        let ends = futures_util::future::try_join_all(racers)
            .await
            .map_err(conditional)?;
        let winners: Vec<usize> = (0..RACERS)
            .filter(|who| ends[*who] == Created::Ours)
            .collect();
        let there = client.get(name.clone()).await?;
        if winners.len() != 1 || there != content(winners[0])[0] {
            return Err(unsupported(
                "of several writers of one name not exactly one won",
            ));
        }
    }
    Ok(())
}
