//! How a room is to be mounted.

use std::time::Duration;

/// Which reads move a file's access time. A read that the kernel serves from its cache never reaches the room and moves
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// Reads after a change of the file, and one a day.
    #[default]
    Relative,
    /// Every read.
    Strict,
    /// None.
    Never,
}

/// What is durable when a call returns. `fsync` always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Synchronous {
    /// Nothing else.
    #[default]
    Off,
    /// Changes of names: creating, linking, renaming, removing.
    Names,
    /// Every change, writes and attributes included.
    All,
}

/// How requests come from the kernel and answers go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// By reading and writing the device `/dev/fuse`.
    #[default]
    Device,
    /// Over io_uring (Linux 6.14 and newer, with `enable_uring` of the module `fuse` set), and by the device where the kernel does
    /// not offer that or refuses it, and for a [shared](model::FileSystem::is_shared) file system.
    IoUring,
}

/// The most threads that serve a mount.
pub const THREADS_MAX: usize = 64;

/// Options of a mount. By default a mount is for the user who mounts it, root included, and what a room holds gives nobody
/// rights: its bytes may come from anywhere.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The kernel refuses every change.
    pub read_only: bool,
    /// Whether users other than the one who mounts may enter; permissions are checked by the kernel in any case. Root may ask for
    /// it, and others where `/etc/fuse.conf` has `user_allow_other`.
    pub allow_other: bool,
    /// Honour set-user-id and set-group-id bits of programs in the room. `fusermount3` never grants it to ordinary users.
    pub suid: bool,
    /// Let device nodes in the room work. `fusermount3` never grants it to ordinary users.
    pub dev: bool,
    /// Let programs in the room be run.
    pub exec: bool,
    /// Which reads move access times.
    pub access_times: AccessTimes,
    /// Whether reading a directory may move its access time.
    pub directory_access_times: bool,
    /// The kernel keeps changed times of files in memory until something else of the file is written, `fsync`, or a day.
    pub lazy_times: bool,
    /// What is durable when a call returns.
    pub synchronous: Synchronous,
    /// Unmount when nothing was asked for this long and nothing is open.
    pub idle_timeout: Option<Duration>,
    /// Threads that serve requests: 2 to [`THREADS_MAX`]. Over io_uring, threads for each processor, and at most so many in all.
    pub threads: usize,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// What `mount` and `df` show as the source; usually the room's directory.
    pub name: String,
    /// How often what programs wrote into the kernel's cache is fetched, so that it reaches the room's own commits;
    /// `None`: when the kernel thinks fit (usually after 30 seconds).
    pub write_back_interval: Option<Duration>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            suid: false,
            dev: false,
            exec: true,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            lazy_times: false,
            synchronous: Synchronous::default(),
            idle_timeout: None,
            threads: 8,
            transport: Transport::default(),
            name: "strongroom".to_owned(),
            write_back_interval: Some(Duration::from_secs(5)),
        }
    }
}
