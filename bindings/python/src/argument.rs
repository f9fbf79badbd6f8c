//! What Python passes in: paths, secrets, times.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use embed::{Argon2Cost, Key, Secret, Timestamp};
use pyo3::exceptions::{PyFileNotFoundError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use zeroize::Zeroizing;

/// The largest key file in bytes, as for the command line.
const KEY_FILE_MAX: u64 = 1 << 20;

/// A path inside the room: a `str`, `bytes`, or something that gives one of them as `os.fspath` does.
pub(crate) struct RoomPath(pub(crate) Vec<u8>);

impl RoomPath {
    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl<'py> FromPyObject<'_, 'py> for RoomPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let bytes = bytes_of(&object)?.ok_or_else(|| {
            PyTypeError::new_err("a path inside a room is a str, bytes or strongroom.RoomPath")
        })?;
        if bytes.is_empty() {
            return Err(PyFileNotFoundError::new_err((
                2,
                "an empty path names nothing",
                "",
            )));
        }
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte in a path"));
        }
        Ok(Self(bytes))
    }
}

/// A name that is no path: of an extended attribute.
pub(crate) struct Name(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        bytes_of(&object)?
            .map(Self)
            .ok_or_else(|| PyTypeError::new_err("a name is a str or bytes"))
    }
}

/// The bytes of a `str` or `bytes`.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(text) = object.cast::<PyString>() {
        if let Ok(text) = text.to_str() {
            return Ok(Some(text.as_bytes().to_vec()));
        }
        let bytes = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
        return Ok(Some(bytes.cast::<PyBytes>()?.as_bytes().to_vec()));
    }
    Ok(object
        .cast::<PyBytes>()
        .ok()
        .map(|bytes| bytes.as_bytes().to_vec()))
}

/// Bytes that are wiped when they are not used any more: of a `str` (as UTF-8) or of any bytes-like object.
pub(crate) struct SecretBytes(Secret);

impl<'py> FromPyObject<'_, 'py> for SecretBytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self(Secret::from(text.to_str()?)));
        }
        let source = object.extract::<crate::buffer::Source>().map_err(|_| {
            PyTypeError::new_err("a passphrase is a str or bytes, and a key is 32 bytes")
        })?;
        Ok(Self(Secret::new(source.bytes().to_vec())))
    }
}

/// A passphrase, a key file, both, or a raw key, as Python gives them.
pub(crate) struct Opener {
    passphrase: Option<Secret>,
    key_file: Option<PathBuf>,
    key: Option<Secret>,
}

impl Opener {
    pub(crate) fn new(
        passphrase: Option<SecretBytes>,
        key_file: Option<PathBuf>,
        key: Option<SecretBytes>,
    ) -> PyResult<Self> {
        // A passphrase and a key file open a slot that needs both.
        let given = [passphrase.is_some() || key_file.is_some(), key.is_some()];
        if given.into_iter().filter(|one| *one).count() != 1 {
            return Err(PyTypeError::new_err(
                "give one of passphrase= or key_file= (or both, for a slot that needs both), and key=",
            ));
        }
        Ok(Self {
            passphrase: passphrase.map(|secret| secret.0),
            key_file,
            key: key.map(|secret| secret.0),
        })
    }

    /// Reads the key file. Fails as reading a file does.
    pub(crate) fn key(self) -> PyResult<Key> {
        let file = self.key_file.as_deref().map(read_key_file).transpose()?;
        Key::one_of(self.passphrase, file, self.key)
            .map_err(|e| PyValueError::new_err(e.to_string()))
    }
}

fn read_key_file(path: &Path) -> PyResult<Secret> {
    // Room for one byte more than allowed: the buffer never moves, so no copy of the secret is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_MAX as usize + 1));
    let read =
        File::open(path).and_then(|file| file.take(KEY_FILE_MAX + 1).read_to_end(&mut bytes));
    if let Err(e) = read {
        return Err(pyo3::exceptions::PyOSError::new_err((
            e.raw_os_error(),
            e.to_string(),
            path.as_os_str().to_owned(),
        )));
    }
    if bytes.is_empty() || bytes.len() as u64 > KEY_FILE_MAX {
        return Err(PyValueError::new_err(format!(
            "{}: a key file has 1 byte to 1 MiB",
            path.display()
        )));
    }
    Ok(Secret::new(bytes.to_vec()))
}

/// Memory in KiB, passes, lanes.
pub(crate) type Cost = (u32, u32, u32);

pub(crate) fn cost(cost: Option<Cost>) -> Option<Argon2Cost> {
    cost.map(|(memory_kib, passes, lanes)| Argon2Cost {
        memory_kib,
        passes,
        lanes,
    })
}

/// A time from nanoseconds since 1970.
pub(crate) fn time(ns: i64) -> Timestamp {
    Timestamp::new(
        ns.div_euclid(1_000_000_000),
        ns.rem_euclid(1_000_000_000) as u32,
    )
}
