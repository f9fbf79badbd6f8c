//! An open file: bytes read and written at a place, or at its position.

use std::sync::Arc;

use embed::{SetAttr, SetTime, Whence};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::argument::time;
use crate::attributes::Attributes;
use crate::buffer::{Source, Target};
use crate::error::{About, call};

/// More than this is looked up before it is allocated: a file may be shorter than what is asked for.
const TRUSTED: usize = 64 << 10;

/// An open file of a room, without a buffer. Any threads may use it at once.
///
/// Its own calls (read_at, readinto_at, write_at) name a place and leave the position alone. Made by Room.open_file.
#[pyclass(frozen, module = "strongroom", weakref)]
pub(crate) struct File {
    /// Locked only for as long as it takes to copy the reference, with Python's lock held.
    file: Mutex<Option<Arc<embed::File>>>,
    path: Vec<u8>,
}

impl File {
    pub(crate) fn new(file: embed::File, path: Vec<u8>) -> Self {
        Self {
            file: Mutex::new(Some(Arc::new(file))),
            path,
        }
    }

    fn get(&self) -> PyResult<Arc<embed::File>> {
        self.file
            .lock()
            .clone()
            .ok_or_else(|| PyValueError::new_err("I/O operation on closed file."))
    }

    fn about(&self) -> About<'_> {
        About::Path(&self.path)
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&embed::File) -> embed::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.get()?;
        // Dropped without Python's lock too, where another thread closed the file meanwhile.
        call(py, self.about(), move || what(&file))
    }

    /// Reads up to `size` bytes by `read`.
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: usize,
        read: impl FnOnce(&embed::File, &mut [u8]) -> embed::Result<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let size = match size {
            ..=TRUSTED => size,
            _ => {
                let rest = self.run(py, |file| file.len())?.saturating_sub(offset);
                size.min(usize::try_from(rest).unwrap_or(usize::MAX))
            }
        };
        let mut got = 0;
        let bytes = PyBytes::new_with(py, size, |buffer| {
            got = self.run(py, |file| read(file, buffer))?;
            Ok(())
        })?;
        match got == size {
            true => Ok(bytes),
            false => Ok(PyBytes::new(py, &bytes.as_bytes()[..got])),
        }
    }
}

fn place(offset: i64) -> PyResult<u64> {
    u64::try_from(offset).map_err(|_| PyValueError::new_err("negative offset"))
}

#[pymethods]
impl File {
    /// Read up to size bytes at offset; fewer only at the end of the file, none there.
    #[pyo3(signature = (offset, size, /))]
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: i64,
        size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let offset = place(offset)?;
        self.bytes(py, offset, size, |file, buffer| {
            file.read_at(offset, buffer)
        })
    }

    /// Read at offset into a bytes-like object that can be changed; returns how many bytes, 0 at the end of the file.
    #[pyo3(signature = (offset, buffer, /))]
    fn readinto_at(&self, py: Python<'_>, offset: i64, mut buffer: Target) -> PyResult<usize> {
        let offset = place(offset)?;
        let bytes = buffer.bytes();
        self.run(py, |file| file.read_at(offset, bytes))
    }

    /// Write all of a bytes-like object at offset, or at the end where the file was opened for appending; returns how many bytes.
    #[pyo3(signature = (offset, data, /))]
    fn write_at(&self, py: Python<'_>, offset: i64, data: Source) -> PyResult<usize> {
        let offset = place(offset)?;
        let bytes = data.bytes();
        self.run(py, |file| file.write_at(offset, bytes))?;
        Ok(bytes.len())
    }

    /// Read at the position into a bytes-like object that can be changed, and move the position.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, mut buffer: Target) -> PyResult<usize> {
        let bytes = buffer.bytes();
        self.run(py, |file| file.read(bytes))
    }

    /// Write all of a bytes-like object at the position, or at the end, and move the position behind it.
    #[pyo3(signature = (data, /))]
    fn write(&self, py: Python<'_>, data: Source) -> PyResult<usize> {
        let bytes = data.bytes();
        self.run(py, |file| file.write(bytes))?;
        Ok(bytes.len())
    }

    /// Move the position: whence 0 from the start, 1 from where it is, 2 from the end. Returns it.
    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let whence = match whence {
            0 => Whence::Start,
            1 => Whence::Current,
            2 => Whence::End,
            _ => return Err(PyValueError::new_err(format!("invalid whence ({whence})"))),
        };
        self.run(py, |file| file.seek(whence, offset))
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |file| file.seek(Whence::Current, 0))
    }

    /// The length in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |file| file.len())
    }

    /// Set the length: cut, or made longer with zeros that take no space.
    #[pyo3(signature = (size, /))]
    fn truncate(&self, py: Python<'_>, size: i64) -> PyResult<()> {
        let size = place(size)?;
        self.run(py, |file| file.set_len(size))
    }

    /// Make what was written durable; within a transaction its completion does.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |file| file.sync())
    }

    /// What is known of it.
    fn attributes(&self, py: Python<'_>) -> PyResult<Attributes> {
        self.run(py, |file| file.stat()).map(Attributes)
    }

    /// Set permission bits, or times in ns.
    #[pyo3(signature = (mode = None, atime_ns = None, mtime_ns = None))]
    fn change(
        &self,
        py: Python<'_>,
        mode: Option<u16>,
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
    ) -> PyResult<()> {
        let set = SetAttr {
            mode,
            atime: atime_ns.map(|ns| SetTime::At(time(ns))),
            mtime: mtime_ns.map(|ns| SetTime::At(time(ns))),
            ..SetAttr::default()
        };
        self.run(py, |file| file.set_attributes(&set))
    }

    /// Whether it was opened for reading.
    fn readable(&self) -> PyResult<bool> {
        Ok(self.get()?.mode().read)
    }

    /// Whether it was opened for writing.
    fn writable(&self) -> PyResult<bool> {
        Ok(self.get()?.mode().write)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.file.lock().is_none()
    }

    /// Where it was when it was opened.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::error::name(py, &self.path)
    }

    /// Close it; again: nothing to do. Calls of other threads that are under way end as if it were open.
    fn close(&self) {
        // Without releasing Python's lock. Destructors close files too, in any thread: one that released it while the interpreter ends would never
        // get it back, and Arrow waits for its threads then. Closing waits for nobody who needs the lock.
        let file = self.file.lock().take();
        drop(file);
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().get()?;
        let _ = py;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.closed() { " closed" } else { "" };
        Ok(format!(
            "<strongroom.File {}{state}>",
            self.name(py)?.repr()?
        ))
    }

    #[pyo3(signature = (*_protocol))]
    fn __reduce_ex__(&self, _protocol: &Bound<'_, PyTuple>) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "cannot pickle or copy an open file of a room: it lives in the process that opened it. Pass its path and open it there, \
             or pass its bytes",
        ))
    }
}
