//! The directory of this machine that represents a room or a disk in a bucket, and the name of that.
//!
//! It deliberately does not know what is in it but the file that names the place.

use std::path::{Path, PathBuf};

/// The file in a proxy that names its place, in the first line.
pub const MARKER: &str = "bucket";
/// How the name of a place begins.
pub const SCHEME: &str = "s3://";

/// Whether a directory represents a room or a disk in a bucket.
pub(crate) fn is_proxy(dir: &Path) -> bool {
    dir.join(MARKER).is_file()
}

/// A room or a disk as its user names it: the place of one in a bucket, else its path.
pub(crate) fn room_name(dir: &Path) -> PathBuf {
    let marker = std::fs::read_to_string(dir.join(MARKER)).unwrap_or_default();
    match marker.lines().next() {
        Some(place) if place.starts_with(SCHEME) => place.into(),
        _ => dir.to_owned(),
    }
}
