//! The native half of the Python package `strongroom`: sessions and files of `embed` as Python objects.
//!
//! 1. Python's global lock is released during every call that may wait or read or write.
//! 2. A lock of this crate is taken only while Python's is held, and never kept across giving that up: a fork finds none taken.
//! 3. One interpreter of the process has it: what is kept in statics is that one's.
//! 4. Every error becomes one exception (`error`); a panic too.
//!
//! It deliberately does not know what a file object or a path object is: the Python half (`python/strongroom`) makes those of it.

#![deny(unsafe_code)]

mod argument;
mod attributes;
mod buffer;
mod error;
mod file;
mod interpreter;
mod session;
mod snapshots;

use pyo3::prelude::*;

/// What `strongroom` is made of; use that.
#[pymodule]
fn _strongroom(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::only_one(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<attributes::Attributes>()?;
    module.add_class::<file::File>()?;
    module.add_class::<session::Session>()
}
