//! Which of a process's interpreters has the module: the first that asks.

#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::{PyResult, Python, ffi};

/// Refuses every interpreter but the first: their objects must not meet, and statics would let them.
pub(crate) fn only_one(_attached: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<i64> = OnceLock::new();
    // SAFETY: the thread is attached to an interpreter, as the argument proves: there is a present one, and it has a number.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match *FIRST.get_or_init(|| this) == this {
        true => Ok(()),
        false => Err(PyImportError::new_err(
            "strongroom does not support subinterpreters: import it in one interpreter of a process",
        )),
    }
}
