//! Errors of `embed` as Python's exceptions: what POSIX names is the built-in subclass of `OSError`, what only a room knows is one of
//! `strongroom._errors`.
//!
//! An exception has errno, text and the path as `filename`, and for a call with two paths the second as `filename2`.

use embed::{Error, Kind};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What an error is about. Owned by the caller: only an error costs a text.
#[derive(Clone, Copy)]
pub(crate) enum About<'a> {
    /// Nothing that has a name.
    Nothing,
    /// A path of the room, or the room's own.
    Path(&'a [u8]),
    /// A call with two.
    Paths(&'a [u8], &'a [u8]),
}

/// Runs a call without Python's global lock; its error, or panic, becomes an exception.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    about: About<'_>,
    what: impl FnOnce() -> embed::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| embed::guard(what))
        .map_err(|error| exception(py, about, &error))
}

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, about: About<'_>, error: &Error) -> PyErr {
    match error {
        // Of a file's position it is the operating system's kind of error, with its number.
        Error::Argument(text) if matches!(about, About::Nothing) => {
            return PyValueError::new_err(text.clone());
        }
        Error::NotOpenedFor(what) => return unsupported(py, what),
        _ => {}
    }
    let class = match error.kind() {
        Kind::Corrupt => "CorruptError",
        Kind::WrongKey => "WrongKeyError",
        Kind::NotARoom => "NotARoomError",
        Kind::Busy => "BusyError",
        Kind::RolledBack => "RolledBackError",
        Kind::Closed => "ClosedError",
        Kind::Internal => "InternalError",
        // The constructor of OSError chooses the subclass by the number.
        _ => return os_error(py, py.get_type::<PyOSError>(), about, error),
    };
    match ours(py, class) {
        Ok(class) => os_error(py, class, about, error),
        Err(e) => e,
    }
}

fn os_error(py: Python<'_>, class: Bound<'_, PyType>, about: About<'_>, error: &Error) -> PyErr {
    let (number, text) = (error.errno(), error.to_string());
    let made = match about {
        About::Nothing => class.call1((number, text)),
        About::Path(path) => name(py, path).and_then(|path| class.call1((number, text, path))),
        About::Paths(from, to) => name(py, from).and_then(|from| {
            // The fourth is Windows' own number.
            class.call1((number, text, from, py.None(), name(py, to)?))
        }),
    };
    made.map_or_else(|e| e, PyErr::from_value)
}

/// As a file of Python's own refuses what it was not opened for.
fn unsupported(py: Python<'_>, what: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match CLASS.import(py, "io", "UnsupportedOperation") {
        Ok(class) => PyErr::from_type(class.clone(), format!("the file was not opened for {what}")),
        Err(e) => e,
    }
}

/// An exception class of the Python half.
fn ours<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py
        .import("strongroom._errors")?
        .getattr(name)?
        .cast_into::<PyType>()?)
}

/// The text of a name of the room; bytes that are no UTF-8 as Python keeps them in names of files.
pub(crate) fn name<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    use pyo3::types::{PyBytes, PyString};
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}
