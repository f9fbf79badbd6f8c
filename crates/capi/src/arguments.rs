//! What callers pass, as Rust has it: handles, keys, options, paths.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use embed::{Argon2Cost, Error, Key, OpenOptions, Result, Secret, Session, Suite};

use crate::types::{strongroom_key, strongroom_options, strongroom_room};

/// Longest secret: no passphrase or key file is longer.
const SECRET_MAX: usize = 16 << 20;

pub(crate) fn session(room: strongroom_room) -> Result<Arc<Session>> {
    foreign::get(room, "room handle")
}

/// What options come to; NULL: what is usual.
///
/// # Safety
/// `options` is NULL or as [`crate::strongroom_options_init`] left it, with `state_dir` NULL or a text.
pub(crate) unsafe fn options(
    options: *const strongroom_options,
) -> Result<(OpenOptions, Option<Argon2Cost>, Option<Suite>)> {
    let mut open = OpenOptions::default();
    if options.is_null() {
        return Ok((open, None, None));
    }
    // SAFETY: the size comes first in every version of the structure.
    let size = unsafe { foreign::value(options.cast::<usize>(), "options") }?;
    if size != size_of::<strongroom_options>() {
        return Err(Error::Argument(format!(
            "the options say they are {size} bytes long, and have {}: fill them by strongroom_options_init",
            size_of::<strongroom_options>()
        )));
    }
    // SAFETY: the caller's promise, of this version of the structure.
    let given = unsafe { foreign::value(options, "options") }?;
    open.read_only = given.read_only != 0;
    open.accept_rollback = given.accept_rollback != 0;
    open.commit_interval_ms = given.commit_interval_ms;
    if !given.state_dir.is_null() {
        // SAFETY: the caller's promise.
        open.state_dir = Some(unsafe { directory(given.state_dir, "state_dir") }?);
    }
    let numbers = (
        given.argon2_memory_kib,
        given.argon2_passes,
        given.argon2_lanes,
    );
    let cost = match numbers {
        (0, 0, 0) => None,
        (memory_kib, passes, lanes) => Some(Argon2Cost {
            memory_kib,
            passes,
            lanes,
        }),
    };
    let suite = match given.suite {
        0 => None,
        1 => Some(Suite::Aes256Gcm),
        2 => Some(Suite::ChaCha20Poly1305),
        _ => return Err(Error::Argument("suite is none of 0, 1 and 2".into())),
    };
    Ok((open, cost, suite))
}

/// # Safety
/// `text` is NULL or a text that ends with NUL, and stays for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { foreign::text(text, what) }?;
    str::from_utf8(bytes).map_err(|_| Error::Argument(format!("{what} is not UTF-8")))
}

/// # Safety
/// `path` is NULL or a text.
pub(crate) unsafe fn directory(path: *const c_char, what: &str) -> Result<PathBuf> {
    // SAFETY: the caller's promise.
    let path = unsafe { foreign::text(path, what) }?;
    match path.is_empty() {
        true => Err(Error::Argument(format!("{what} is empty"))),
        false => Ok(OsStr::from_bytes(path).into()),
    }
}

/// # Safety
/// `key` is NULL or points to one whose `data` is NULL or points to `len` bytes.
pub(crate) unsafe fn key(key: *const strongroom_key) -> Result<Key> {
    // SAFETY: the caller's promise.
    let key = unsafe { foreign::value(key, "key") }?;
    if key.len > SECRET_MAX {
        return Err(Error::Argument(format!(
            "the key is said to have {} bytes; {SECRET_MAX} are the most",
            key.len
        )));
    }
    // SAFETY: the same.
    let data = unsafe { foreign::bytes(key.data, key.len, "the key's data") }?;
    let secret = Secret::from(data);
    match key.kind {
        1 => Ok(Key::Passphrase(secret)),
        2 => Ok(Key::File(secret)),
        3 => Ok(Key::Raw(secret)),
        _ => Err(Error::Argument(
            "the key's kind is none of strongroom_key_kind".into(),
        )),
    }
}
