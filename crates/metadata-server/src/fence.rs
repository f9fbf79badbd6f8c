//! Where a room's files are, all but its segments, and what shows that this server is the only one of the room.
//!
//! 1. What is durable depends on no clock: another server that takes the room over makes the files of this one useless by a write, and the
//!    disks know the later one by its [`Fence::writer`].
//! 2. Answers to reads are no writes. They are given while [`Fence::holds`], which may rely on how fast time passes, and on nothing else
//!    of clocks.

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use netdisk::Writer;
use storage::{HostStorage, Storage};

/// Where a room's files are.
pub trait RoomFiles: Debug + Send + Sync {
    /// Opens those of the room that `dir` represents on this machine, for writing. May wait as long as another server has the room.
    ///
    /// # Errors
    /// `Interrupted` where the wait was ended; `ResourceBusy` where another server has the room and this one does not wait.
    fn open(&self, dir: &Path, turn: &Turn<'_>) -> io::Result<OpenFiles>;
}

/// When one of several servers opens a room.
pub struct Turn<'a> {
    /// Says when to end the wait.
    pub stops: &'a dyn Fn() -> bool,
    /// For how long a room that nobody has is left to the others.
    pub yields: Duration,
}

impl Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("yields", &self.yields)
            .finish_non_exhaustive()
    }
}

impl Turn<'_> {
    /// At once, or not at all.
    pub(crate) const NOW: Turn<'static> = Turn {
        stops: &|| true,
        yields: Duration::ZERO,
    };
}

/// The files of a room, open for writing.
#[derive(Debug)]
pub struct OpenFiles {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// What shows that nobody else has them.
    pub fence: Arc<dyn Fence>,
}

/// What shows whether this server still is the only one of its room.
pub trait Fence: Debug + Send + Sync {
    /// Higher than that of every server before.
    fn writer(&self) -> Writer;

    /// Returns when it is certain that no other server had taken the room when this was called.
    ///
    /// # Errors
    /// Where one has, or that cannot be found out.
    fn prove(&self) -> io::Result<()>;

    /// Whether no other server can have taken the room by now.
    fn holds(&self) -> bool;

    /// Whether the files are of no use any more.
    fn is_lost(&self) -> bool;
}

/// A room in a directory of this machine, whose lock keeps others out.
#[derive(Debug)]
pub struct InDirectory;

impl RoomFiles for InDirectory {
    fn open(&self, dir: &Path, _turn: &Turn<'_>) -> io::Result<OpenFiles> {
        Ok(OpenFiles {
            storage: Arc::new(HostStorage::open(dir)?),
            fence: Arc::new(Alone),
        })
    }
}

#[derive(Debug)]
struct Alone;

impl Fence for Alone {
    fn writer(&self) -> Writer {
        Writer::default()
    }

    fn prove(&self) -> io::Result<()> {
        Ok(())
    }

    fn holds(&self) -> bool {
        true
    }

    fn is_lost(&self) -> bool {
        false
    }
}
