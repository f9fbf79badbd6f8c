//! Replicas: a room's moments in another place, brought there by a stream that is written with the key and read without.
//!
//! 1. A replica is one whole moment of its room, with the snapshots before it. It gets another one by a single step: when the
//!    file [`DONE`] has its name, everything it needs is there and durable. What is still to be put in its place then is put
//!    there by the next one to open it or receive.
//! 2. Data is in its segments before the changes that refer to it are applied, at an opening with the key. Positions of a segment are
//!    written once: what arrives never replaces other data.
//! 3. A moment has a name that only the key gives, and that says nothing of it. A receiver knows by it what follows what.
//!
//! `difference` finds changes, `changes` is their form, `stream` that of a stream, `send` and `receive` are its ends, `complete` puts in place
//! what was received, `apply` is what an opening does.

mod apply;
mod changes;
mod complete;
mod difference;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod keep;
mod receive;
mod scratch;
mod send;
mod stream;

use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;

use catalog::{Catalog, SnapshotRow};
use seal::{ChangesKey, MomentKey, RoomId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use storage::{Storage, list_if_there, remove_if_there};

pub(crate) use crate::layout::is_replica;
use crate::layout::{APPLIED, RECEIVED as DONE, REPLICA};
use crate::lock::RoomLock;
use crate::{Error, Result};
pub use keep::Keep;
pub use receive::{ReceiveReport, receive, receive_for, receive_on};
pub use scratch::SendScratch;
pub use send::{SendReport, SendRequest};
pub(crate) use send::{moment, send, snapshot_of};

/// What was received of a transfer, and is verified and durable.
const PARTIAL: &str = "incoming.partial";
/// Changes that were received, by number: the next openings apply them.
const INCREMENTS: &str = "increments";
/// Bytes of the largest of these files.
const STATE_MAX: u64 = 64 << 10;

/// The name of a moment of a room: only the room's key gives it. 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MomentId(pub(crate) [u8; 16]);

impl MomentId {
    /// Before everything.
    pub(crate) const NONE: MomentId = MomentId([0; 16]);

    /// The name of a snapshot's moment.
    pub(crate) fn of(key: &MomentKey, row: &SnapshotRow) -> Self {
        let created = row.snapshot.created;
        let mut text = b"snapshot".to_vec();
        text.extend_from_slice(&row.no().to_le_bytes());
        text.extend_from_slice(&created.secs.to_le_bytes());
        text.extend_from_slice(&created.nanos.to_le_bytes());
        text.extend_from_slice(&row.next_inode.0.to_le_bytes());
        text.extend_from_slice(&row.next_cookie.to_le_bytes());
        let mac = key.mac(&text);
        let mut id = [0; 16];
        id.copy_from_slice(&mac[..16]);
        Self(id)
    }
}

impl fmt::Display for MomentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RoomId::from_bytes(self.0).fmt(f)
    }
}

impl FromStr for MomentId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let id: std::result::Result<RoomId, _> = text.parse();
        let id =
            id.map_err(|_| Error::InvalidArgument("a moment's name has 32 hexadecimal digits"))?;
        Ok(Self(*id.as_bytes()))
    }
}

impl Serialize for MomentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MomentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// How far a transfer came: what makes [`SendRequest::resume`] leave out what the receiver has. A word without spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken {
    /// Data frames.
    frames: u64,
    /// The digest of where their data is.
    places: [u8; 32],
}

impl fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.frames, blake3::Hash::from(self.places))
    }
}

impl FromStr for ResumeToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (frames, places) = text.split_once('-')?;
            Some(Self {
                frames: frames.parse().ok()?,
                places: blake3::Hash::from_hex(places).ok()?.into(),
            })
        };
        parse().ok_or(Error::InvalidArgument(
            "a token to resume with is a number, a hyphen and 64 hexadecimal digits",
        ))
    }
}

/// What a replica is, as far as that is known without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    room: RoomId,
    /// Of the keys that everything is sealed with.
    epoch: u32,
    /// The moment.
    moment: MomentId,
    /// Number of the last changes that were received, 0 if none.
    increments: u64,
}

/// How far a transfer came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partial {
    room: RoomId,
    since: MomentId,
    to: MomentId,
    frames: u64,
    places: String,
}

impl Partial {
    fn token(&self) -> Option<ResumeToken> {
        let places = blake3::Hash::from_hex(&self.places).ok()?.into();
        Some(ResumeToken {
            frames: self.frames,
            places,
        })
    }
}

/// What a directory holds for a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaStatus {
    /// The moment of the replica; `None`: there is none yet.
    pub moment: Option<MomentId>,
    /// The epoch of the keys that it is sealed with; a rekey of the room begins another one.
    pub epoch: Option<u32>,
    /// A transfer that was interrupted.
    pub unfinished: Option<Unfinished>,
}

/// A transfer that was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The moment that it follows; `None`: it is a whole one.
    pub since: Option<MomentId>,
    /// The moment that it leads to.
    pub to: MomentId,
    /// What goes on with it.
    pub token: ResumeToken,
}

fn read_json<T: for<'de> Deserialize<'de>>(storage: &dyn Storage, name: &str) -> Result<Option<T>> {
    let bytes = match storage::read_limited(storage, name, STATE_MAX) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed
        .map(Some)
        .map_err(|e| Error::Damaged(format!("{name} of the replica cannot be read: {e}")))
}

fn write_json(storage: &dyn Storage, name: &str, value: &impl Serialize) -> Result<()> {
    // Only a map with keys that are no text fails.
    let text = serde_json::to_vec(value).expect("a state can be written as JSON");
    Ok(storage::replace(storage, name, &text)?)
}

fn increment(number: u64) -> String {
    format!("{INCREMENTS}/{number:08}")
}

/// Whether a directory was a replica before the transfer that is complete.
pub(crate) fn was_replica(storage: &dyn Storage) -> Result<bool> {
    Ok(storage.list("")?.iter().any(|name| name == REPLICA))
}

/// Puts in its place what was received completely. Before an opening; the room is locked.
pub(crate) fn complete(storage: &dyn Storage) -> Result<()> {
    complete::complete(storage)
}

/// Whether there are changes that the replica's catalog does not have.
pub(crate) fn has_more(storage: &dyn Storage, catalog: &Catalog) -> Result<bool> {
    let state: Option<State> = read_json(storage, REPLICA)?;
    Ok(state.map_or(0, |state| state.increments) > applied(catalog)?.0)
}

/// Applies changes that were received to the replica's catalog, in order.
pub(crate) fn apply_all(storage: &dyn Storage, catalog: &Catalog, key: &ChangesKey) -> Result<()> {
    let Some(state) = read_json::<State>(storage, REPLICA)? else {
        return Ok(());
    };
    let (applied, mut moment) = applied(catalog)?;
    for number in applied + 1..=state.increments {
        let name = increment(number);
        let file = storage.open(&name, storage::OpenMode::Read).map_err(|e| {
            Error::Damaged(format!(
                "{name}, which the replica received, cannot be read: {e}"
            ))
        })?;
        let changes = changes::Reader::new(key, &*file)?;
        if changes.span.since != moment {
            return Err(Error::Damaged(format!(
                "{name}, which the replica received, follows moment {}, and the catalog is moment {moment}",
                changes.span.since
            )));
        }
        moment = changes.span.to;
        apply::apply(catalog, &changes, number)?;
    }
    Ok(())
}

fn applied(catalog: &Catalog) -> Result<(u64, MomentId)> {
    let value = catalog.meta(APPLIED)?.unwrap_or_default();
    let parse = || {
        let text = String::from_utf8(value).ok()?;
        let (number, moment) = text.split_once(' ')?;
        Some((number.parse().ok()?, moment.parse().ok()?))
    };
    parse().ok_or_else(|| Error::Damaged("the catalog is not a replica's".into()))
}

/// Removes changes that the catalog has, durably.
pub(crate) fn remove_applied(storage: &dyn Storage, catalog: &Catalog) -> Result<()> {
    let (applied, _) = applied(catalog)?;
    for name in list_if_there(storage, INCREMENTS)? {
        if name.parse::<u64>().is_ok_and(|number| number <= applied) {
            remove_if_there(storage, &format!("{INCREMENTS}/{name}"))?;
        }
    }
    Ok(())
}

/// The directory is a room of its own from now on; everything it received was applied.
pub(crate) fn promote(storage: &dyn Storage) -> Result<()> {
    let _lock = RoomLock::take(storage, false)?;
    complete(storage)?;
    let is_increment = |name: &String| name.parse::<u64>().is_ok();
    if list_if_there(storage, INCREMENTS)?.iter().any(is_increment) {
        return Err(Error::WouldBlock);
    }
    complete::clear(storage)?;
    remove_if_there(storage, REPLICA)?;
    Ok(storage.sync_dir("")?)
}

#[cfg(test)]
mod tests {
    use storage::testing::{Fault, FaultyStorage, MemoryStorage, Op, Times};

    use super::*;

    #[test]
    fn a_replica_whose_increments_cannot_be_listed_stays_one() {
        let memory = MemoryStorage::new();
        memory.create_dir(INCREMENTS).unwrap();
        storage::write_new(&memory, "increments/1", b"not applied").unwrap();
        storage::write_new(&memory, REPLICA, b"{}").unwrap();
        let faulty = FaultyStorage::new(memory.clone());
        faulty.refuse(Op::List, 1, Fault::Io, Times::Once);
        assert!(matches!(promote(&faulty), Err(Error::Io(_))));
        assert!(matches!(promote(&memory), Err(Error::WouldBlock)));
        assert_eq!(storage::read_limited(&memory, REPLICA, 9).unwrap(), b"{}");
    }
}
