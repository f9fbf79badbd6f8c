//! Why a measurement could not be made. What makes a finished one invalid is no error: that is an
//! [`Issue`](crate::model::Issue).
//!
//! Invariant: a message names the thing it is about, what happened, and what to do next where that is known.

use std::io;
use std::path::{Path, PathBuf};

/// Result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a file or directory failed.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What was being done, as in "reading 4096 bytes at 0".
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store may not be used for that: what was asked would change something that is not the benchmark's own.
    #[error("{0}")]
    Refused(String),
    /// A store that could not be made, mounted, opened or ended.
    #[error("{store}: {why}")]
    Store {
        /// Its label or kind.
        store: String,
        /// What happened and what to do.
        why: String,
    },
    /// An encrypted volume that cannot be opened.
    #[error("{}: {source}", image.display())]
    Volume {
        /// Its image.
        image: PathBuf,
        /// Why not.
        source: volume::VolumeError,
    },
    /// The command line asks for what does not exist.
    #[error("{0}")]
    Usage(String),
    /// The person asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// A failed call on `path`.
    pub fn io(path: impl AsRef<Path>, doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            doing: doing.into(),
            source,
        }
    }

    /// A store that failed.
    pub fn store(store: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Store {
            store: store.into(),
            why: why.into(),
        }
    }
}
