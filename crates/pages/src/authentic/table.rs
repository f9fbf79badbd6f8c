//! The table of page tags beside the catalog's file: its bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | `strongroom pages` |
//! | 4 | version, 1, little-endian |
//! | 4 | bytes of a page, 4096, little-endian |
//! | 8 | number of pages, little-endian |
//! | 16 each | the tags of the pages, from page 1 |
//! | 32 | HMAC-SHA-256 of everything before, under the page digest key: the *root* |
//!
//! It does not know where the table is kept or when it is written.

use std::io;

use seal::PageDigestKey;

use super::{Mac, PAGE, Tag, bad};

const MAGIC: &[u8; 16] = b"strongroom pages";
const VERSION: u32 = 1;
const HEAD: usize = 32;
const MAC: usize = 32;
/// Bytes of the longest table that is read: that of a catalog of a tebibyte.
pub(super) const LEN_MAX: u64 = 4 << 30;

/// The table of these tags, and its root.
pub(super) fn encode(tags: &[Tag], key: &PageDigestKey) -> (Vec<u8>, Mac) {
    let mut bytes = Vec::with_capacity(HEAD + size_of_val(tags) + MAC);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((PAGE as u32).to_le_bytes());
    bytes.extend((tags.len() as u64).to_le_bytes());
    bytes.extend(tags.as_flattened());
    let root = key.mac(&bytes);
    bytes.extend(root);
    (bytes, root)
}

/// Reads a table.
///
/// # Errors
/// `InvalidData` for one that was not written with this key; `Unsupported` for one of a later version.
pub(super) fn decode(bytes: &[u8], key: &PageDigestKey) -> io::Result<(Vec<Tag>, Mac)> {
    let Some((body, root)) = bytes.split_last_chunk::<MAC>() else {
        return Err(bad("the table of the catalog's pages is cut short"));
    };
    key.verify(body, root)
        .map_err(|_| bad("the table of the catalog's pages is not the one that was written"))?;
    // From here on it is known to be a table of ours.
    let number = |at: usize| {
        body.get(at..at + 4)
            .and_then(|four| four.try_into().ok())
            .map(u32::from_le_bytes)
    };
    if body.get(..16) != Some(MAGIC) || number(16) != Some(VERSION) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the table of the catalog's pages is of a version not known here",
        ));
    }
    let (tags, rest) = body.get(HEAD..).unwrap_or_default().as_chunks();
    let count = body[24..].first_chunk().map(|n| u64::from_le_bytes(*n));
    if number(20) != Some(PAGE as u32) || !rest.is_empty() || count != Some(tags.len() as u64) {
        return Err(bad("the table of the catalog's pages is malformed"));
    }
    Ok((tags.to_vec(), *root))
}
