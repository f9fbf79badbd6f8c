//! Bytes as hexadecimal text, for JSON: names and paths need not be text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes that need not be text, for a JSON string. Not for secrets.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same for a path.
pub(crate) fn path_to_hex(path: &Path) -> String {
    hex(path.as_os_str().as_bytes())
}

/// The bytes again.
pub(crate) fn unhex(text: &str) -> Result<Vec<u8>> {
    decode(text.as_bytes())
        .ok_or_else(|| Error::failed("the message holds no hexadecimal digits where it must"))
}

/// The path again; it must be absolute, since the two processes have different working directories.
pub(crate) fn path_from_hex(text: &str) -> Result<PathBuf> {
    let path = name_from_hex(text)?;
    if !path.is_absolute() {
        return Err(Error::failed("the path in the message is not absolute"));
    }
    Ok(path)
}

/// The same where it may be a name that is no path.
pub(crate) fn name_from_hex(text: &str) -> Result<PathBuf> {
    Ok(PathBuf::from(OsString::from_vec(unhex(text)?)))
}

/// The bytes of hexadecimal text of either case; `None` for anything else.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => {
                zeroize::Zeroize::zeroize(&mut bytes);
                return None;
            }
        }
    }
    Some(bytes)
}
