//! Why a command failed, in words a person reads, with the exit code that goes with it.
//!
//! Invariant: a message names the thing it is about (a room, a path) and never a secret.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use seal::SealError;

use crate::exit::Exit;
pub use crate::fault::io_exit;
use crate::fault::{Fault, import_exit, room_exit};
use crate::proxy::room_name;
use crate::words::shown_path;

/// Result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Everything that is said in one sentence.
    #[error("{message}")]
    Said {
        /// How the program ends.
        exit: Exit,
        /// The sentence.
        message: String,
    },
    /// A room as a whole could not be opened or worked on.
    #[error("{}: {}", room.display(), room_words(room, source))]
    Room {
        /// Its directory.
        room: PathBuf,
        /// What failed.
        source: room::Error,
    },
    /// One file, in a room or on the host.
    #[error("{what}: {fault}")]
    At {
        /// Its path.
        what: String,
        /// What failed.
        fault: Fault,
    },
    /// Failures that were already reported, one a line.
    #[error("{} failed; see above", crate::words::count(*.count, "file"))]
    Several {
        /// How the program ends.
        exit: Exit,
        /// How many files failed.
        count: u64,
    },
}

impl Error {
    /// An error of one sentence.
    pub fn said(exit: Exit, message: impl Into<String>) -> Error {
        Error::Said {
            exit,
            message: message.into(),
        }
    }

    /// An error of one sentence that has no exit code of its own.
    pub fn failed(message: impl Into<String>) -> Error {
        Error::said(Exit::Failed, message)
    }

    /// A command line that contradicts itself.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::said(Exit::Usage, message)
    }

    /// An error of one sentence about a path.
    pub fn said_at(exit: Exit, path: &Path, words: &str) -> Error {
        Error::said(exit, format!("{}: {words}", path.display()))
    }

    /// The same without an exit code of its own.
    pub fn failed_at(path: &Path, words: &str) -> Error {
        Error::said_at(Exit::Failed, path, words)
    }

    /// The same about a path that the command line should not name.
    pub fn usage_at(path: &Path, words: &str) -> Error {
        Error::said_at(Exit::Usage, path, words)
    }

    /// A failure of one file, or of what else has a name.
    pub(crate) fn at(what: impl Into<String>, fault: Fault) -> Error {
        let what = what.into();
        Error::At { what, fault }
    }

    pub(crate) fn room(room: &Path, source: room::Error) -> Error {
        Error::Room {
            room: room_name(room),
            source,
        }
    }

    /// An operation on a host file.
    pub fn host(path: &Path, source: io::Error) -> Error {
        Error::At {
            what: shown_path(path),
            fault: Fault::Host(source),
        }
    }

    /// Opening or locking an image or block device failed: another process, or the system, may have it in use.
    pub(crate) fn device(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::ResourceBusy => {
                Error::said(Exit::InUse, format!("{}: {source}", path.display()))
            }
            _ => Error::host(path, source),
        }
    }

    pub(crate) fn import(source: import::Error) -> Error {
        Error::said(import_exit(&source), source.to_string())
    }

    /// Whether everything there is to say was reported already.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Error::Several { count: 1, .. })
    }

    /// How the program ends.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Said { exit, .. } | Error::Several { exit, .. } => *exit,
            Error::Room { source, .. } => room_exit(source),
            Error::At { fault, .. } => fault.exit(),
        }
    }
}

/// The room's own words, with the next step where the room cannot know it.
fn room_words(room: &Path, error: &room::Error) -> String {
    match error {
        room::Error::Catalog(_) => {
            let words = error.to_string();
            if words.contains("strongroom check") {
                words
            } else {
                format!("{words}; run `strongroom check` on the room")
            }
        }
        // The path is said already.
        room::Error::NotARoom(_) => {
            "not a room (no header.json); make one with `strongroom create`".into()
        }
        room::Error::NotEmptyTarget(_) => "exists and is not empty; choose a new directory".into(),
        // It has not written its number yet.
        room::Error::InUse { pid: 0 } => "the room is in use by another process".into(),
        room::Error::InUse { pid } => format!("the room is in use by process {pid}"),
        room::Error::Seal(_) if matches!(SealError::of(error), Some(SealError::SlotsLost(_))) => {
            format!("{error}; nothing was changed. Go on without them with --drop-slots, and add them again with `strongroom key add`")
        }
        room::Error::Io(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            "the room is stored on a read-only file system: it can be read, not changed; mount it with -r".into()
        }
        room::Error::Io(e) if e.kind() == io::ErrorKind::PermissionDenied && room.is_dir() => {
            let next = match may_be_read(room) {
                true => "it can be read, not changed; mount it with -r",
                false => "become the user to whom the room belongs",
            };
            format!("this user may not do that with the room's files ({e}): {next}")
        }
        other => other.to_string(),
    }
}

/// Whether this user may read all that a room is read from.
fn may_be_read(room: &Path) -> bool {
    let may = |path: &Path| access(path, Access::READ_OK).is_ok();
    // Only a writer needs these.
    let needless = |name: &OsStr| name == "lock" || name == "control";
    // With the dot, it must be allowed to enter the directory too.
    may(&room.join("segments/."))
        && std::fs::read_dir(room).is_ok_and(|mut files| {
            files
                .all(|file| file.is_ok_and(|file| needless(&file.file_name()) || may(&file.path())))
        })
}
