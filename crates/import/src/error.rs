//! Why something cannot be imported.

use std::io;
use std::path::PathBuf;

/// Result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the source could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no container, whatever the key.
    #[error("{}: not a container of IOCipher or libsqlfs: {why}", path.display())]
    NotAContainer {
        /// The file.
        path: PathBuf,
        /// What was looked for and is not there.
        why: String,
    },
    /// It can be an encrypted container, and no key was given.
    #[error(
        "{}: no SQLite database: if it is an encrypted container, name its passphrase or key with --source-passphrase-file or --source-key-file",
        path.display()
    )]
    NeedsKey {
        /// The file.
        path: PathBuf,
    },
    /// No version of SQLCipher opens it with this key.
    #[error(
        "{}: decryption failed: wrong {kind}, or the first page is damaged (tried {tried})", path.display()
    )]
    WrongKey {
        /// The file.
        path: PathBuf,
        /// "passphrase" or "raw key".
        kind: &'static str,
        /// The settings that were tried.
        tried: String,
    },
    /// What is there contradicts itself or does not authenticate.
    #[error("damaged: {0}")]
    Damaged(String),
    /// More than is read.
    #[error("refused: {0}")]
    TooLarge(String),
    /// The source was written to meanwhile.
    #[error(
        "{}: changed while it was read: close the program that uses it, and run the same command again", path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(path: &std::path::Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// For queries on a container that is open: its pages do not authenticate, or its rows are not what they must be.
impl From<rusqlite::Error> for Error {
    fn from(e: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match e.sqlite_error_code() {
            Some(ErrorCode::TooBig) => {
                Self::TooLarge("a value of the container is longer than 17 MiB".into())
            }
            _ => Self::Damaged(e.to_string()),
        }
    }
}
