//! What is known of a file, as Python wants it back.
//!
//! Each number becomes an object of Python's only when it is asked for: making all that `os.stat_result` has costs more than the call.

use embed::{FileKind, Inode, Timestamp};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Bytes of a block of a room.
const BLOCK: u64 = 4096;

/// What is known of a file. Use os.stat_result, which strongroom.RoomPath.stat makes of it.
#[pyclass(frozen, module = "strongroom._strongroom")]
pub(crate) struct Attributes(pub(crate) Inode);

#[pymethods]
impl Attributes {
    /// Kind and permission bits, as in st_mode.
    #[getter]
    fn mode(&self) -> u32 {
        format_bits(self.0.kind) | u32::from(self.0.mode)
    }

    /// The number of the file, as in st_ino.
    #[getter]
    fn ino(&self) -> u64 {
        self.0.no.0
    }

    /// Names that it has.
    #[getter]
    fn nlink(&self) -> u64 {
        self.0.nlink.into()
    }

    #[getter]
    fn uid(&self) -> u32 {
        self.0.uid
    }

    #[getter]
    fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Its length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    /// When it was last written, seconds since 1970.
    #[getter]
    fn mtime(&self) -> f64 {
        seconds(self.0.mtime)
    }

    /// When it was last written, in ns.
    #[getter]
    fn mtime_ns(&self) -> i64 {
        ns(self.0.mtime)
    }

    /// When it was made, in ns.
    #[getter]
    fn birth_ns(&self) -> i64 {
        ns(self.0.btime)
    }

    /// The fields of os.stat_result in their order; st_dev is 0.
    fn stat_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let inode = &self.0;
        let times = [inode.atime, inode.mtime, inode.ctime];
        let ids = (
            self.mode(),
            self.ino(),
            0,
            self.nlink(),
            inode.uid,
            inode.gid,
        );
        let places = (BLOCK, inode.blocks * (BLOCK / 512), inode.rdev);
        let mut fields = Vec::with_capacity(19);
        fields.extend(ids.into_pyobject(py)?.iter());
        fields.push(inode.size.into_pyobject(py)?.into_any());
        for time in times {
            fields.push(time.secs.into_pyobject(py)?.into_any());
        }
        for time in times {
            fields.push(seconds(time).into_pyobject(py)?.into_any());
        }
        for time in times {
            fields.push(ns(time).into_pyobject(py)?.into_any());
        }
        // st_blksize, st_blocks, st_rdev
        fields.extend(places.into_pyobject(py)?.iter());
        PyTuple::new(py, fields)
    }
}

/// The bits of st_mode that say the kind: inode(7).
fn format_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::BlockDevice => 0o060_000,
    }
}

/// Seconds since 1970, as near as a float comes.
fn seconds(time: Timestamp) -> f64 {
    time.secs as f64 + f64::from(time.nanos) * 1e-9
}

/// Nanoseconds since 1970; what is before 1677 or after 2262 is that moment.
fn ns(time: Timestamp) -> i64 {
    time.secs
        .checked_mul(1_000_000_000)
        .and_then(|ns| ns.checked_add(time.nanos.into()))
        .unwrap_or(if time.secs < 0 { i64::MIN } else { i64::MAX })
}
