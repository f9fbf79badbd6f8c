//! What a process keeps.

use std::path::PathBuf;

/// What a process keeps; everything else is dropped. The default keeps its own open files, memory and threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Files, or whole directories, that may be read.
    pub read: Vec<PathBuf>,
    /// Files, or whole directories, in which everything may be done but to start a program.
    pub write: Vec<PathBuf>,
    /// Directories whose names, and those of the directories below them, may be listed.
    pub list: Vec<PathBuf>,
    /// Directories in which Unix sockets may be bound and their names removed.
    pub sockets: Vec<PathBuf>,
    /// Networks.
    pub network: Network,
    /// Whether other programs may be started, from the system's directories.
    pub programs: bool,
    /// Whether io_uring may be used.
    pub io_uring: bool,
}

/// What a process keeps of networks. Unix sockets are always kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Connections to others.
    Client,
    /// To be connected to, at these TCP ports.
    Server(Vec<u16>),
    /// Both.
    Both(Vec<u16>),
}

impl Network {
    /// The ports to listen on; `None`: nothing may listen.
    pub(crate) fn ports(&self) -> &[u16] {
        match self {
            Self::None | Self::Client => &[],
            Self::Server(ports) | Self::Both(ports) => ports,
        }
    }

    pub(crate) fn connects(&self) -> bool {
        matches!(self, Self::Client | Self::Both(_))
    }
}
