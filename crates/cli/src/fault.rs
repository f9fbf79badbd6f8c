//! Why an operation on one file failed, and the exit code of each cause.

use std::io;

use crate::exit::Exit;

/// Why an operation on one file failed.
#[derive(Debug, thiserror::Error)]
#[doc(hidden)]
pub enum Fault {
    #[error("{0}")]
    Room(room::Error),
    #[error("{}", host_words(.0))]
    Host(io::Error),
    /// The host's file is in a mounted room, whose damaged data is an input/output error.
    #[error("{}", mounted_words(.0))]
    Mounted(io::Error),
    /// What is imported could not be read.
    #[error("{0}")]
    Imported(import::Error),
    /// Refused here, for a reason that needs its own words.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Fault::Room(e) => room_exit(e),
            Fault::Mounted(e) if is_io_error(e) => Exit::Damaged,
            Fault::Host(e) | Fault::Mounted(e) => io_exit(e),
            Fault::Imported(e) => import_exit(e),
            Fault::Refused(_) => Exit::Failed,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Fault::Room(e) => matches!(e, room::Error::NotFound),
            Fault::Host(e) | Fault::Mounted(e) => e.kind() == io::ErrorKind::NotFound,
            Fault::Imported(_) | Fault::Refused(_) => false,
        }
    }

    pub(crate) fn is_exists(&self) -> bool {
        match self {
            Fault::Room(e) => matches!(e, room::Error::Exists),
            Fault::Host(e) | Fault::Mounted(e) => e.kind() == io::ErrorKind::AlreadyExists,
            Fault::Imported(_) | Fault::Refused(_) => false,
        }
    }

    /// Whether the operation is one that this user, or this file system, does not allow or have.
    pub(crate) fn is_not_allowed(&self) -> bool {
        match self {
            Fault::Room(e) => matches!(
                e,
                room::Error::NotPermitted(_) | room::Error::NotSupported(_)
            ),
            Fault::Host(e) | Fault::Mounted(e) => {
                matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                )
            }
            Fault::Imported(_) | Fault::Refused(_) => false,
        }
    }

    /// Whether what was asked will go on failing, whatever file is next: a full disk, a room that takes no more changes, a mount
    /// whose process has died.
    pub(crate) fn ends_all(&self) -> bool {
        use rustix::io::Errno;
        let ended = match self {
            Fault::Room(e) => matches!(e, room::Error::Poisoned | room::Error::ReadOnly),
            Fault::Host(e) | Fault::Mounted(e) => [Errno::NOTCONN, Errno::CONNABORTED, Errno::ROFS]
                .iter()
                .any(|errno| e.raw_os_error() == Some(errno.raw_os_error())),
            Fault::Imported(_) | Fault::Refused(_) => false,
        };
        ended || self.exit() == Exit::NoSpace
    }
}

fn is_io_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// The system's words without "(os error 2)", which means nothing to a person.
fn host_words(error: &io::Error) -> String {
    let words = error.to_string();
    let words = words.split(" (os error").next().unwrap_or(&words);
    let mut letters = words.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

fn mounted_words(error: &io::Error) -> String {
    if is_io_error(error) {
        "data damaged or the room's storage failed (the mount's log says which); restore the file from a backup".into()
    } else {
        host_words(error)
    }
}

/// The exit code of a room's error.
pub(crate) fn room_exit(error: &room::Error) -> Exit {
    use room::Error as E;
    match error {
        E::WrongCredential(_) => Exit::WrongCredential,
        E::Seal(_) => seal_exit(seal::SealError::of(error)),
        E::InUse { .. } => Exit::InUse,
        // A room in a bucket that another machine has open.
        E::Io(error) if error.kind() == io::ErrorKind::ResourceBusy => Exit::InUse,
        E::Corrupt { .. } | E::Catalog(_) | E::Damaged(_) => Exit::Damaged,
        E::HeaderDamaged(_) => Exit::HeaderDamaged,
        E::Unsupported(_) => Exit::Newer,
        E::RolledBack { .. } | E::OldHeader { .. } | E::UnusableMemory { .. } => Exit::RolledBack,
        E::NoSpace | E::QuotaExceeded => Exit::NoSpace,
        E::Io(error) => io_exit(error),
        E::NotARoom(_) => Exit::NotARoom,
        _ => Exit::Failed,
    }
}

/// The exit code of a refused key operation.
fn seal_exit(error: Option<&seal::SealError>) -> Exit {
    use seal::SealError as E;
    match error {
        Some(E::WrongCredential { .. } | E::NoSuchKind { .. }) => Exit::WrongCredential,
        Some(E::HeaderForged) => Exit::HeaderDamaged,
        _ => Exit::Failed,
    }
}

/// The exit code of what is imported.
pub(crate) fn import_exit(error: &import::Error) -> Exit {
    use import::Error as E;
    match error {
        E::WrongKey { .. } | E::NeedsKey { .. } => Exit::WrongCredential,
        E::Damaged(_) => Exit::Damaged,
        // What decompresses the stream says so.
        E::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData => Exit::Damaged,
        E::Io { source, .. } => io_exit(source),
        E::Changed { .. } => Exit::InUse,
        E::NotAContainer { .. } | E::TooLarge(_) => Exit::Failed,
    }
}

/// The exit code of a host's error.
pub fn io_exit(error: &io::Error) -> Exit {
    match error.kind() {
        // Only work that was asked to stop ends so.
        io::ErrorKind::Interrupted => Exit::Interrupted,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::NoSpace,
        _ => Exit::Failed,
    }
}
