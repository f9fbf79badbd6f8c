//! The bytes of a record.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `SRLOG` and the version of the form, 1 |
//! | 8 | number |
//! | 16 | tag of the record before; of the first one: the anchor of the commit it follows |
//! | 32 | salt of the record's key |
//! | 8 | length of the body |
//! | 16 | tag, over the body and all of the above |
//! | … | body, encrypted |
//!
//! Numbers are little-endian. The body: the next inode number (8), the length of the changes (4), the changes (see
//! [`entry`](super::entry)), then for each run of sealed units: segment (8), position in it in blocks (4), length in bytes
//! (4), the sealed bytes as they are in the segment.

use seal::{LogKey, SALT_LEN, TAG_LEN};

use super::{Link, Record};
use crate::{CatalogError, Result};

const MAGIC: [u8; 8] = *b"SRLOG\0\0\x01";
/// Bytes that are authenticated and not encrypted.
const CLEAR_LEN: usize = 72;
/// Bytes before a record's body.
pub(crate) const HEADER_LEN: usize = CLEAR_LEN + TAG_LEN;

/// What is known of a record without its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) before: Link,
    salt: [u8; SALT_LEN],
    pub(crate) body_len: u64,
    pub(crate) tag: Link,
}

impl Header {
    /// The header at the beginning of some bytes, if it is one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut bytes: &[u8] = bytes.first_chunk::<HEADER_LEN>()?;
        if *bytes.split_off(..8)?.first_chunk()? != MAGIC {
            return None;
        }
        Some(Self {
            number: u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?),
            before: *bytes.split_off(..16)?.first_chunk()?,
            salt: *bytes.split_off(..SALT_LEN)?.first_chunk()?,
            body_len: u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?),
            tag: *bytes.first_chunk()?,
        })
    }
}

/// Seals a record whose first [`HEADER_LEN`] bytes are free for its header. Returns its tag.
pub(crate) fn seal(key: &LogKey, number: u64, before: Link, record: &mut [u8]) -> Result<Link> {
    let mut salt = [0; SALT_LEN];
    getrandom::fill(&mut salt)
        .map_err(|error| CatalogError::Io(format!("no random numbers: {error}")))?;
    let (header, body) = record.split_at_mut(HEADER_LEN);
    let parts: [&[u8]; 5] = [
        &MAGIC,
        &number.to_le_bytes(),
        &before,
        &salt,
        &(body.len() as u64).to_le_bytes(),
    ];
    header[..CLEAR_LEN].copy_from_slice(&parts.concat());
    let tag = key.seal(&salt, &header[..CLEAR_LEN], body);
    header[CLEAR_LEN..].copy_from_slice(&tag);
    Ok(tag)
}

/// Opens a record; `None` where it fails authentication. `bytes` may go on behind it.
pub(crate) fn open(key: &LogKey, bytes: &[u8]) -> Option<Record> {
    let header = Header::parse(bytes)?;
    let end = usize::try_from(header.body_len)
        .ok()?
        .checked_add(HEADER_LEN)?;
    let mut body = bytes.get(HEADER_LEN..end)?.to_vec();
    let clear = &bytes[..CLEAR_LEN];
    key.open(&header.salt, clear, &header.tag, &mut body).ok()?;
    Record::parse(header.number, body)
}
