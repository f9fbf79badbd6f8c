//! A commit as bytes: what changed since the one before, and the bytes themselves where they are few.
//!
//! The whole is under a BLAKE3 hash, so that an object that was cut short or garbled on its way is refused by name. The hash has no key: it
//! shows accidents. What an attacker changes is found by the room, which authenticates everything that the files hold.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::names::ObjectName;

/// What distinguishes two commits of one number: random.
pub(crate) type Id = [u8; 16];

const COMMIT_MAGIC: &[u8; 8] = b"SRCOMMIT";
const CHECKPOINT_MAGIC: &[u8; 8] = b"SRCHECKP";
const VERSION: u32 = 1;
/// Of checkpoints of a room whose commits are in a log elsewhere: a program that knows of no such logs must not read it as the newest state.
const VERSION_OF_LOG: u32 = 2;
/// Magic, version, length of the changes, number, id, id of the commit before, hash.
pub(crate) const HEADER: usize = 8 + 4 + 4 + 8 + 16 + 16 + 32;

/// A change of the room's files. Offsets and lengths are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// A writer begins; its epoch is the commit's number.
    Begin,
    /// The writer has closed the room.
    End,
    Directory {
        path: String,
    },
    /// A new, empty file gets a name.
    File {
        path: String,
        file: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Length {
        file: u64,
        len: u64,
    },
    Hole {
        file: u64,
        offset: u64,
        len: u64,
    },
    Data {
        file: u64,
        offset: u64,
        len: u64,
        object: ObjectName,
        at: u64,
    },
    /// An object that later changes refer to.
    Object {
        name: ObjectName,
        size: u64,
    },
    /// An object that nothing referred to was removed.
    Deleted {
        name: ObjectName,
    },
    /// The writer lives, and commits again within this time, in milliseconds.
    Lease {
        ms: u32,
    },
}

/// A commit.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) id: Id,
    pub(crate) previous: Id,
    pub(crate) ops: Vec<Op>,
    /// The object [`ObjectName::Commit`] of this number.
    pub(crate) data: Bytes,
}

fn header(
    magic: &[u8; 8],
    version: u32,
    body: usize,
    number: u64,
    id: &Id,
    previous: &Id,
    hash: &[u8; 32],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body);
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(id);
    bytes.extend_from_slice(previous);
    bytes.extend_from_slice(hash);
    bytes
}

fn encode(
    magic: &[u8; 8],
    version: u32,
    number: u64,
    id: &Id,
    previous: &Id,
    body: &[u8],
    data: &[Bytes],
) -> Vec<Bytes> {
    assert!(
        u32::try_from(body.len()).is_ok(),
        "a commit or checkpoint of more than 4 GiB"
    );
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header(
        magic,
        version,
        body.len(),
        number,
        id,
        previous,
        &[0; 32],
    ));
    hasher.update(body);
    for part in data {
        hasher.update(part);
    }
    let hash = hasher.finalize();
    let mut first = header(
        magic,
        version,
        body.len(),
        number,
        id,
        previous,
        hash.as_bytes(),
    );
    first.extend_from_slice(body);
    std::iter::once(Bytes::from(first))
        .chain(data.iter().cloned())
        .collect()
}

struct Parsed<T> {
    id: Id,
    previous: Id,
    body: T,
    data: Bytes,
}

fn parse<T: DeserializeOwned>(
    magic: &[u8; 8],
    version: u32,
    number: u64,
    bytes: &Bytes,
) -> Result<Parsed<T>, String> {
    let Some(head) = bytes.get(..HEADER) else {
        return Err(format!("has {} bytes, fewer than its header", bytes.len()));
    };
    let field = |from: usize, len: usize| &head[from..from + len];
    let word = |from: usize| u32::from_le_bytes(field(from, 4).try_into().expect("four bytes"));
    if field(0, 8) != magic {
        return Err("is not an object of a room".into());
    }
    match (word(8), version) {
        (found, expected) if found == expected => {}
        (VERSION_OF_LOG, VERSION) => {
            return Err(
                "is of a room whose commits are in a log elsewhere: name it with --log".into(),
            );
        }
        (VERSION, VERSION_OF_LOG) => {
            return Err("is of a room whose commits are in the bucket, not in a log".into());
        }
        (found, _) => {
            return Err(format!(
                "has format {found}; this program knows {VERSION} and {VERSION_OF_LOG}"
            ));
        }
    }
    let named = u64::from_le_bytes(field(16, 8).try_into().expect("eight bytes"));
    let id: Id = field(24, 16).try_into().expect("sixteen bytes");
    let previous: Id = field(40, 16).try_into().expect("sixteen bytes");
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head[..HEADER - 32]);
    hasher.update(&[0; 32]);
    hasher.update(&bytes[HEADER..]);
    if hasher.finalize() != *field(56, 32) {
        return Err("is damaged: its hash is wrong".into());
    }
    if named != number {
        return Err(format!("is number {named}"));
    }
    let end = HEADER + word(12) as usize;
    let body = bytes.get(HEADER..end).ok_or("is cut short")?;
    let body = postcard::from_bytes(body).map_err(|e| format!("is malformed: {e}"))?;
    Ok(Parsed {
        id,
        previous,
        body,
        data: bytes.slice(end..),
    })
}

impl Record {
    /// The bytes of the object.
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let body = postcard::to_allocvec(&self.ops).expect("changes can be written");
        let data = std::slice::from_ref(&self.data);
        encode(
            COMMIT_MAGIC,
            VERSION,
            self.number,
            &self.id,
            &self.previous,
            &body,
            data,
        )
    }

    /// The commit in an object. `Err` says what is wrong with the object, after its name.
    pub(crate) fn parse(number: u64, bytes: &Bytes) -> Result<Record, String> {
        let Parsed {
            id,
            previous,
            body: ops,
            data,
        } = parse(COMMIT_MAGIC, VERSION, number, bytes)?;
        Ok(Record {
            number,
            id,
            previous,
            ops,
            data,
        })
    }
}

fn version_of(has_log: bool) -> u32 {
    match has_log {
        true => VERSION_OF_LOG,
        false => VERSION,
    }
}

/// The bytes of a checkpoint after the commit `number`; `has_log`: of a room whose commits are in a log elsewhere.
pub(crate) fn encode_checkpoint<T: Serialize>(
    number: u64,
    id: &Id,
    state: &T,
    has_log: bool,
) -> Vec<Bytes> {
    let body = postcard::to_allocvec(state).expect("a state can be written");
    let version = version_of(has_log);
    encode(CHECKPOINT_MAGIC, version, number, id, &[0; 16], &body, &[])
}

/// The state in a checkpoint, and the id of its commit.
pub(crate) fn parse_checkpoint<T: DeserializeOwned>(
    number: u64,
    bytes: &Bytes,
    has_log: bool,
) -> Result<(Id, T), String> {
    let parsed = parse(CHECKPOINT_MAGIC, version_of(has_log), number, bytes)?;
    Ok((parsed.id, parsed.body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(parts: &[Bytes]) -> Bytes {
        Bytes::from(parts.concat())
    }

    fn record(ops: &[Op], data: &'static [u8]) -> Record {
        Record {
            number: 9,
            id: [1; 16],
            previous: [2; 16],
            ops: ops.to_vec(),
            data: Bytes::from_static(data),
        }
    }

    #[test]
    fn a_commit_is_read_back() {
        let ops = [
            Op::Begin,
            Op::Length {
                file: 3,
                len: 1 << 40,
            },
        ];
        let bytes = whole(&record(&ops, b"abc").encode());
        let read = Record::parse(9, &bytes).unwrap();
        assert_eq!((read.id, read.previous), ([1; 16], [2; 16]));
        assert_eq!(read.ops, ops);
        assert_eq!(&read.data[..], b"abc");
    }

    #[test]
    fn what_is_garbled_is_refused() {
        let bytes = whole(&record(&[Op::Begin], b"").encode());
        assert!(Record::parse(10, &bytes).unwrap_err().contains("number 9"));
        for at in 0..bytes.len() {
            let mut other = bytes.to_vec();
            other[at] ^= 1;
            assert!(Record::parse(9, &other.into()).is_err(), "byte {at}");
            assert!(Record::parse(9, &bytes.slice(..at)).is_err(), "{at} bytes");
        }
    }
}
