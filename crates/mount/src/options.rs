//! How a room is to be mounted.

use std::time::Duration;

/// Options of a mount. The defaults are those of a local file system mounted by whoever asks.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The kernel refuses every change.
    pub read_only: bool,
    /// Whether users other than the one who mounts may enter; permissions are checked by the kernel in any case.
    /// By default true for root, as any other file system root mounts, and false for everybody else, who may ask for it
    /// only where `/etc/fuse.conf` has `user_allow_other`.
    pub allow_other: bool,
    /// Honour set-user-id and set-group-id bits of programs in the room. By default true for root; `fusermount3`
    /// never grants it to anybody else.
    pub suid: bool,
    /// Let device nodes in the room work. By default true for root; `fusermount3` never grants it to anybody else.
    pub dev: bool,
    /// Let programs in the room be run.
    pub exec: bool,
    /// Unmount when nothing was asked for this long and nothing is open.
    pub idle_timeout: Option<Duration>,
    /// Threads that serve requests: 2 to 64.
    pub threads: usize,
    /// What `mount` and `df` show as the source; usually the room's directory.
    pub name: String,
    /// How often what programs wrote into the kernel's cache is fetched, so that it reaches the room's own commits;
    /// `None`: when the kernel thinks fit (usually after 30 seconds).
    pub write_back_interval: Option<Duration>,
}

impl Default for MountOptions {
    fn default() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self {
            read_only: false,
            allow_other: root,
            suid: root,
            dev: root,
            exec: true,
            idle_timeout: None,
            threads: 8,
            name: "strongroom".to_owned(),
            write_back_interval: Some(Duration::from_secs(5)),
        }
    }
}
