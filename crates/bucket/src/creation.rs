//! Where a creation may begin: where nothing is, and behind or in the place of what an earlier creation left.
//!
//! 1. A room or a disk is never in its way removed: what is removed has nothing but names that a creation makes before its end.
//! 2. What another machine may be creating is left alone, unless it is to be taken over.
//! 3. What is removed is overtaken first: its writer, should it live, acknowledges nothing more.

use std::io::{self, ErrorKind};

use crate::client::Client;
use crate::elsewhere;
use crate::history::{self, History};
use crate::names::{CHECKPOINTS, DATA, DIRECTORIES, LAST, LOG, RECORDS};
use crate::opening::{WriterNote, begin};
use crate::options::Options;
use crate::probe;
use crate::record::Record;

/// What a creation finds.
enum Found {
    /// It begins behind this state. Whether its writer was this machine's.
    State(History, bool),
    /// The same, and what it has has to go first.
    Remains(History, bool),
    /// A removal that has not ended: the commit with which it began is the newest.
    Rest(u64),
}

/// What a creation begins behind, and whether its writer was this machine's: nothing, in a store that was tested; or what an earlier
/// creation left that ended before it synced anything, here or in good order. Where it left more, that is removed. `AlreadyExists` where there is
/// anything else.
pub(crate) async fn found_by_creation(
    client: &Client,
    note: &WriterNote,
    options: &Options,
) -> io::Result<(History, bool)> {
    client.prepare_log().await?;
    let rest = match look(client, note, options).await? {
        Found::State(history, is_ours) => return Ok((history, is_ours)),
        Found::Rest(number) => number,
        Found::Remains(mut history, is_ours) => {
            tracing::info!("what an earlier creation left is removed");
            match begin(client, &mut history, note, is_ours, Vec::new()).await? {
                true => {
                    note.intend_removal(&history.manifest)?;
                    history.manifest.number
                }
                false => return Err(others()),
            }
        }
    };
    remove_all(client, rest).await?;
    match look(client, &WriterNote::default(), options).await? {
        Found::State(history, is_ours) => Ok((history, is_ours)),
        _ => Err(others()),
    }
}

/// The error where another creation was faster.
pub(crate) fn others() -> io::Error {
    io::Error::new(
        ErrorKind::AlreadyExists,
        "somebody else is just creating a room there",
    )
}

fn refused(client: &Client, place: &str, way_out: &str) -> io::Error {
    let tools = match client.log_address() {
        Some(_) => "the tools of the store and the log (see docs/bucket.md)",
        None => "the store's own tool",
    };
    let why = format!(
        "there is a room or a disk in {place} already, or what is left of one: choose another prefix{way_out}, or, after a creation that was \
         killed, remove what is left with {tools}"
    );
    io::Error::new(ErrorKind::AlreadyExists, why)
}

async fn look(client: &Client, note: &WriterNote, options: &Options) -> io::Result<Found> {
    if let Some(number) = rest_of_removal(client, note).await? {
        return Ok(Found::Rest(number));
    }
    let mut is_empty = !elsewhere::is_noted(client).await?;
    for directory in DIRECTORIES {
        is_empty &= client.list(directory, None).await?.is_empty();
    }
    if is_empty {
        if let Some(address) = client.log_address()
            && !client.commits_after(0).await?.is_empty()
        {
            let begun = begun_before(client, note, options.take_over).await?;
            let place = format!("the log {address}, of the same bucket and prefix,");
            return begun.ok_or_else(|| refused(client, &place, ""));
        }
        probe::probe(client).await?;
        return Ok(Found::State(History::default(), false));
    }
    let in_bucket = |way_out| Err(refused(client, "the bucket", way_out));
    let loaded = async {
        elsewhere::check(client).await?;
        history::load(client).await
    };
    let history = match loaded.await {
        Ok(Some(history)) => history,
        Ok(None) => return in_bucket(""),
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            return in_bucket("");
        }
        Err(e) => return Err(e),
    };
    let manifest = &history.manifest;
    if !manifest.names.keys().all(|name| (options.remains)(name)) {
        return in_bucket("");
    }
    let is_ours = manifest.is_open && note.is_of(client, manifest).await?;
    if manifest.is_open && !is_ours && !options.take_over {
        return in_bucket(
            ", or, where the creation on another machine has ended for certain, --take-over",
        );
    }
    Ok(match manifest.names.is_empty() {
        true => Found::State(history, is_ours),
        false => Found::Remains(history, is_ours),
    })
}

/// What the log has where the bucket has nothing, if that is no more than a creation of this directory that has not ended: it was killed, or
/// failed, before the bucket said anything of the log. `take_over`: of any other, too.
async fn begun_before(
    client: &Client,
    note: &WriterNote,
    take_over: bool,
) -> io::Result<Option<Found>> {
    let history = match history::load(client).await {
        Ok(history) => history,
        Err(e) if e.kind() == ErrorKind::InvalidData => None,
        Err(e) => return Err(e),
    };
    let Some(history) = history else {
        return Ok(None);
    };
    let manifest = &history.manifest;
    if !manifest.names.is_empty() || !manifest.is_open {
        return Ok(None);
    }
    let is_ours = note.is_of(client, manifest).await?;
    let may_begin = is_ours || take_over;
    Ok(may_begin.then_some(Found::State(history, is_ours)))
}

/// The commit with which a removal of this machine began that has not ended.
async fn rest_of_removal(client: &Client, note: &WriterNote) -> io::Result<Option<u64>> {
    if !note.is_removal() {
        return Ok(None);
    }
    let Some(number) = client.commits_after(0).await?.pop() else {
        return Ok(None);
    };
    let record = Record::parse(number, &client.commit(number).await?);
    let is_begin = record.is_ok_and(|record| note.begins_with(&record));
    Ok(is_begin.then_some(number))
}

/// Removes everything below the prefix of a room, and the begin of this number last: the caller's, which is the newest commit.
pub(crate) async fn remove_all(client: &Client, begun: u64) -> io::Result<()> {
    let failed = || io::Error::other("not everything could be removed");
    for directory in [DATA, CHECKPOINTS, RECORDS] {
        let listed = client.list(directory, None).await?;
        let names: Vec<String> = listed.into_iter().map(|(name, _)| name).collect();
        let count = names.len();
        if client.delete(names).await.len() < count {
            return Err(failed());
        }
    }
    let mut before = client.commits_after(0).await?;
    before.retain(|number| *number < begun);
    client.delete_from_log(&before).await;
    if client.commits_after(0).await? != [begun] {
        return Err(failed());
    }
    if client.log_address().is_some() {
        client.delete(vec![LOG.into(), LAST.into()]).await;
    }
    client.delete_from_log(&[begun]).await;
    Ok(())
}

/// Whether what a creation has just begun behind is still there: the creation before it may have been removing it, and the number was free
/// again. The begin is removed then.
pub(crate) async fn is_founded(client: &Client, number: u64) -> io::Result<bool> {
    if number == 1 {
        return Ok(true);
    }
    match client.commit(number - 1).await {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            client.delete_from_log(&[number]).await;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}
