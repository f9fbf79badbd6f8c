//! What the bucket says of a log that is not in it, and whether that is the log that was named.
//!
//! 1. The object `log` is written by the writer of the first commit, which only one can be.
//! 2. A room is opened with the log that has its first commit, never without one, never with another.
//! 3. The address in the bucket is for people. Nobody connects to what a bucket says, nor sends it a password.
//! 4. The object `last` has the number of a commit after which its writer made no other, or had not yet. It is written behind that
//!    commit, so when it was written is not before.

use std::io;

use crate::client::Client;
use crate::history::hex;
use crate::names::{CHECKPOINTS, COMMITS, LAST, LOG};
use crate::record::{Id, Record};

const FIRST_LINE: &str = "strongroom log 1";
/// The longest object `log`, in bytes.
const LEN_MAX: usize = 4096;

/// What the object says.
#[derive(Debug)]
struct Noted {
    /// The id of the room's first commit.
    origin: String,
    address: String,
}

fn parse(text: &str) -> Option<Noted> {
    let mut lines = text.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let origin = lines.next()?.strip_prefix("origin ")?.to_owned();
    let address = lines.next()?.strip_prefix("address ")?;
    // Other programs write to the bucket too, and this goes to a terminal.
    let address = address.chars().filter(|c| c.is_ascii_graphic()).collect();
    Some(Noted { origin, address })
}

async fn noted(client: &Client) -> io::Result<Option<Noted>> {
    let bytes = match client.get(LOG.into()).await {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let text = std::str::from_utf8(&bytes[..bytes.len().min(LEN_MAX)]).ok();
    let noted = text.and_then(parse);
    noted.map(Some).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the object {LOG} is malformed"),
        )
    })
}

/// Says in the bucket that the room's commits are in the client's log.
pub(crate) async fn note(client: &Client, origin: &Id) -> io::Result<()> {
    let Some(address) = client.log_address() else {
        return Ok(());
    };
    let text = format!("{FIRST_LINE}\norigin {}\naddress {address}\n", hex(origin));
    client.put(LOG.into(), vec![text.into()]).await
}

/// Says in the bucket that a commit is the last one so far.
pub(crate) async fn note_last(client: &Client, number: u64) -> io::Result<()> {
    if client.log_address().is_none() {
        return Ok(());
    }
    client
        .put(LAST.into(), vec![number.to_string().into()])
        .await
}

/// When the commit before a writer's begin was there, and when that writer had begun, by the store's clock in milliseconds. `NotFound`
/// where the bucket does not say it of that commit.
pub(crate) async fn times_around(client: &Client, begin: u64) -> io::Result<(i64, i64)> {
    let before = async {
        let noted = client.get(LAST.into()).await?;
        match *noted == *(begin - 1).to_string().as_bytes() {
            true => client.written_ms(LAST.into()).await,
            false => Err(io::ErrorKind::NotFound.into()),
        }
    };
    let before = before.await;
    note_last(client, begin).await?;
    Ok((before?, client.written_ms(LAST.into()).await?))
}

/// Whether the bucket says anything of a log.
pub(crate) async fn is_noted(client: &Client) -> io::Result<bool> {
    Ok(noted(client).await?.is_some())
}

/// Whether there is nothing of a room, here or there.
async fn is_nothing(client: &Client) -> io::Result<bool> {
    Ok(client.list(CHECKPOINTS, None).await?.is_empty()
        && client.list(COMMITS, None).await?.is_empty()
        && client.commits_after(0).await?.is_empty())
}

/// Fails where the room's commits are not in the client's log.
pub(crate) async fn check(client: &Client) -> io::Result<()> {
    let wrong = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let (noted, here) = (noted(client).await?, client.log_address());
    let (noted, here) = match (noted, here) {
        (None, None) => return Ok(()),
        (Some(noted), None) => {
            return wrong(format!(
                "the room's commits are in a log elsewhere, and without it only an older state could be seen: name it with --log {}, \
                 if you know that log",
                noted.address
            ));
        }
        // What that means is the caller's.
        (None, Some(_)) if is_nothing(client).await? => return Ok(()),
        (None, Some(here)) => {
            return wrong(format!(
                "the bucket does not say that the room's commits are in a log, and {here} was named as one: the room has none, or the \
                 object {LOG} was removed"
            ));
        }
        (Some(noted), Some(here)) => (noted, here),
    };
    let first = match client.commit(1).await {
        Ok(first) => first,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return wrong(format!(
                "the log {here} has no commits of this room; when it was created they were in {}",
                noted.address
            ));
        }
        Err(e) => return Err(e),
    };
    match Record::parse(1, &first) {
        Ok(first) if hex(&first.id) == noted.origin => Ok(()),
        Ok(_) => wrong(format!(
            "the log {here} has the commits of another room of this name; when this one was created they were in {}",
            noted.address
        )),
        Err(why) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("in the log {here}, commit 1 {why}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_and_anything_else_is_not() {
        let noted =
            parse("strongroom log 1\norigin 0102\naddress etcd://h:1/\u{1b}[2Jp\n").unwrap();
        assert_eq!(noted.origin, "0102");
        assert_eq!(noted.address, "etcd://h:1/[2Jp");
        for bad in [
            "",
            "strongroom log 2\norigin 01\naddress x\n",
            "strongroom log 1\norigin 01\n",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
