//! The memory of Python's bytes-like objects as slices, for as long as an exported buffer keeps it where it is.
//!
//! It and [`crate::interpreter`] are the only modules with unsafe code.

#![allow(unsafe_code)]

use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Bytes to be written: those of any contiguous object.
pub(crate) struct Source(PyUntypedBuffer);

/// Bytes to be read into: those of any contiguous object that can be changed.
pub(crate) struct Target(PyUntypedBuffer);

impl Source {
    /// The bytes. Another thread of the program may change them meanwhile, as it may under any file of Python's own: what is
    /// written then is any mixture.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            // A view without length may have no address.
            0 => &[],
            // SAFETY: contiguous, and alive and in its place as long as the exported buffer that `self` holds.
            len => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), len) },
        }
    }
}

impl Target {
    /// The bytes, with the same remark.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            // SAFETY: as above; writable, as was looked at when it was made, and borrowed once through `self`.
            len => unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) },
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(contiguous(object)?))
    }
}

impl<'py> FromPyObject<'_, 'py> for Target {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        match buffer.readonly() {
            true => Err(PyBufferError::new_err(
                "a read-write bytes-like object is needed",
            )),
            false => Ok(Self(buffer)),
        }
    }
}

fn contiguous(object: Borrowed<'_, '_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(&object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err(
            "a contiguous bytes-like object is needed",
        )),
    }
}
