//! Why a room cannot be served.

use crate::enrol::EnrolError;

/// Why a room cannot be served, or what was asked of its server not be done.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The room.
    #[error("{0}")]
    Room(#[from] room::Error),
    /// Users, disks, certificates.
    #[error("{0}")]
    Enrol(#[from] EnrolError),
    /// The network, threads.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is being opened again after a failure of its storage, or stops.
    #[error("the room is not open just now: try again")]
    NotNow,
    /// It has no other server that would serve the room.
    #[error("the server was started without --standby: no other one can take its place")]
    NoStandby,
    /// The audit log cannot be opened or written.
    #[error("the audit log: {0}")]
    Audit(std::io::Error),
    /// A disk does not answer, and all are needed.
    #[error("disk {0} does not answer: a rekey needs all disks of the room")]
    DiskAway(String),
    /// A disk does not answer, so that clients may still overwrite what a snapshot would see.
    #[error(
        "a disk does not answer, and clients may still write there: no snapshot was created; try again when it is back"
    )]
    StillWritable,
    /// A disk does not answer, and clients could go on reading there what a restore replaces.
    #[error("disk {0} does not answer: nothing was restored; try again when it is back")]
    RestoreWaits(String),
    /// A restore is done, but for what it replaced.
    #[error(
        "it is restored; what was replaced is not removed ({why}), and has the name {name} beside it"
    )]
    Left {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// The other disks have no space for the data of a disk that is to go.
    #[error(
        "disk {disk} holds {needed} bytes of data, and the other disks have space for {available}: add a disk, or delete files, and remove it then"
    )]
    NoPlaceElsewhere {
        /// The disk.
        disk: String,
        /// Bytes of file data on it.
        needed: u64,
        /// Bytes that fit on the others.
        available: u64,
    },
}

pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::Io { what, source }
}
