//! The header's two copies on disk.
//!
//! 1. Each copy is replaced atomically, the first one before the backup: a crash leaves two good copies, one perhaps
//!    a revision behind.
//! 2. A copy is used only after its authentication held; a copy that does not parse gives way to the other one, and
//!    that is said. So does one with a feature, suite or kind of slot that this version does not know, unless the other one's key
//!    proves that a newer version wrote it.

use std::io::ErrorKind;

use seal::{Credential, Header, HeaderError, MasterKey, SealError};
use segments::Keyring;
use storage::Storage;

use crate::{Error, Result};

pub(crate) const HEADER: &str = "header.json";
pub(crate) const BACKUP: &str = "header.backup.json";
/// Bytes of the largest header that is read.
pub(crate) const HEADER_MAX: u64 = 256 << 10;

/// The header of an open room with the key that authenticates it.
#[derive(Debug)]
pub(crate) struct HeaderState {
    pub(crate) header: Header,
    pub(crate) master: MasterKey,
    /// The bytes of the copies on disk.
    pub(crate) bytes: Vec<u8>,
}

impl HeaderState {
    /// Writes both copies with what `header` says now.
    pub(crate) fn store(&mut self, storage: &dyn Storage) -> Result<()> {
        self.bytes = self.header.encode(&self.master);
        write_both(storage, &self.bytes)
    }
}

/// The keys of the header's epoch and, while a rekey is unfinished, of the one before.
pub(crate) fn keyring(header: &HeaderState, previous: Option<&(u32, MasterKey)>) -> Keyring {
    let (h, room) = (&header.header, header.header.room_id());
    let master = &header.master;
    let ring = Keyring::new(
        h.suite(),
        room,
        h.epoch(),
        master.data_key(&room),
        master.segment_header_key(&room),
    )
    .with_append_nonces(h.has_append_nonces());
    let ring = match h.position_keys_from() {
        Some(from) => ring.with_position_keys(from),
        None => ring,
    };
    match previous {
        Some((epoch, old)) => {
            ring.with_epoch(*epoch, old.data_key(&room), old.segment_header_key(&room))
        }
        None => ring,
    }
}

/// Replaces both copies.
pub(crate) fn write_both(storage: &dyn Storage, bytes: &[u8]) -> Result<()> {
    storage::replace(storage, HEADER, bytes)?;
    storage::replace(storage, BACKUP, bytes)?;
    Ok(())
}

/// A header that was read and unlocked; the key before while a rekey is unfinished; a warning where a copy was not usable.
pub(crate) type Loaded = (HeaderState, Option<(u32, MasterKey)>, Option<String>);

/// Reads the header and unlocks it.
pub(crate) fn load(storage: &dyn Storage, credential: &Credential) -> Result<Loaded> {
    load_with(storage, credential.kind().name(), |header| {
        let unlocked = header.unlock(credential)?;
        Ok((unlocked.master, unlocked.previous))
    })
}

/// The same with a key that is known already.
pub(crate) fn load_known(storage: &dyn Storage, known: &KnownKey) -> Result<Loaded> {
    load_with(storage, "known key", |header| {
        Ok((known.0.clone(), header.unlock_with(&known.0)?))
    })
}

/// What unlocking a header gives: its master key, and the key before while a rekey is unfinished.
type Keys = (MasterKey, Option<(u32, MasterKey)>);

fn load_with(
    storage: &dyn Storage,
    kind: &'static str,
    unlock: impl Fn(&Header) -> std::result::Result<Keys, SealError>,
) -> Result<Loaded> {
    let first = read(storage, HEADER);
    let second = read(storage, BACKUP);
    // One that this version does not know, which damage can make of any.
    let mut unknown = None;
    let mut problems = Vec::new();
    // A copy that could not be read may be the one that counts.
    let mut unread = None;
    let mut copies = Vec::new();
    for (name, copy) in [(HEADER, first), (BACKUP, second)] {
        match copy {
            Ok((header, bytes)) => copies.push((name, header, bytes)),
            Err(Error::HeaderDamaged(why)) => problems.push(format!("{name}: {why}")),
            Err(Error::Unsupported(what)) => {
                problems.push(format!("{name}: damaged ({what})"));
                unknown.get_or_insert((name, what));
            }
            Err(e) => {
                problems.push(format!("{name}: {e}"));
                if !matches!(&e, Error::Io(e) if e.kind() == ErrorKind::NotFound) {
                    unread.get_or_insert(e);
                }
            }
        }
    }
    // Copies that are the same fail the same way: deriving the key once more would only cost time.
    copies.dedup_by(|second, first| second.2 == first.2);
    let differ = copies.len() > 1;
    let mut refused = None;
    for (name, header, bytes) in copies {
        match unlock(&header) {
            Ok((master, previous)) => {
                if let Some((name, what)) = unknown {
                    let bytes = storage::read_limited(storage, name, HEADER_MAX)?;
                    if header.is_newer_copy(&bytes, &master) {
                        return Err(Error::Unsupported(what));
                    }
                }
                // A crash between the two, or an older one put back: it would keep removed slots alive.
                if differ && problems.is_empty() {
                    problems.push("the two copies of the header differ".into());
                }
                let warning = (!problems.is_empty())
                    .then(|| format!("{}; {name} is used", problems.join("; ")));
                return Ok((
                    HeaderState {
                        header,
                        master,
                        bytes,
                    },
                    previous,
                    warning,
                ));
            }
            Err(e @ SealError::HeaderForged) => problems.push(format!("{name}: {e}")),
            Err(e) => {
                if differ {
                    problems.push(format!("{name}: {e}"));
                }
                refused.get_or_insert(e);
            }
        }
    }
    if let Some(e) = unread {
        return Err(e);
    }
    match refused {
        Some(SealError::WrongCredential { .. } | SealError::NoSuchKind { .. }) => {
            Err(Error::WrongCredential(kind))
        }
        Some(e) => Err(e.into()),
        None => Err(match unknown {
            Some((_, what)) => Error::Unsupported(what),
            None => Error::HeaderDamaged(problems.join("; ")),
        }),
    }
}

/// Reads the header of a later moment of a room that is open with this master key. Returns it, and the key before while a rekey is
/// unfinished.
pub(crate) fn load_later(
    storage: &dyn Storage,
    master: &MasterKey,
) -> Result<(HeaderState, Option<(u32, MasterKey)>)> {
    let (header, bytes) = read(storage, HEADER).or_else(|_| read(storage, BACKUP))?;
    let previous = header.unlock_with(master)?;
    let master = master.clone();
    let state = HeaderState {
        header,
        master,
        bytes,
    };
    Ok((state, previous))
}

/// What a credential opened: the room's master key.
#[derive(Debug, Clone)]
pub struct KnownKey(pub(crate) MasterKey);

impl KnownKey {
    /// Opens the header of the room in a storage, and nothing else.
    ///
    /// # Errors
    /// As for opening the room, up to its header.
    pub fn of(storage: &dyn Storage, credential: &Credential) -> Result<Self> {
        let (header, _, warning) = load(storage, credential)?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        Ok(Self(header.master))
    }
}

fn read(storage: &dyn Storage, name: &str) -> Result<(Header, Vec<u8>)> {
    let bytes = storage::read_limited(storage, name, HEADER_MAX)?;
    match Header::parse(&bytes) {
        Ok(header) => Ok((header, bytes)),
        Err(
            e @ (HeaderError::NewerFormat { .. }
            | HeaderError::UnknownFeature(_)
            | HeaderError::UnknownSuite(_)
            | HeaderError::UnknownKind { .. }),
        ) => Err(Error::Unsupported(e.to_string())),
        Err(e) => Err(Error::HeaderDamaged(e.to_string())),
    }
}
