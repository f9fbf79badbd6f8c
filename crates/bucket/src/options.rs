//! How a storage in a bucket is opened.

use std::sync::Arc;
use std::time::Duration;

use crate::log::CommitLog;

/// Settings of a storage in a bucket.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Nothing is written, and a writer elsewhere is not disturbed. The files are as of the opening.
    pub read_only: bool,
    /// Whether a room that another machine has open, or whose writer died there, is taken over, or a creation there. That writer acknowledges
    /// nothing more.
    pub take_over: bool,
    /// Whether a name is one that a creation makes before its end. Where there are no others, it was killed, and what is there is nothing that anyone
    /// could open: the next creation removes it. As it comes, of no name.
    pub remains: fn(&str) -> bool,
    /// The most bytes that the cache keeps on this machine's disk.
    pub cache_bytes: u64,
    /// How long a request is tried before it fails; waiting for others of this process is not counted. One try has up to 15 seconds, and one for
    /// each 128 KiB that it uploads: if that is more than the whole time, it is tried once more after a try without an answer. A sync that fails
    /// ends writing.
    pub timeout: Duration,
    /// How long objects stay that no file has bytes of any more, for readers of an older moment.
    pub grace: Duration,
    /// Commits between two checkpoints: the most that an opening reads.
    pub checkpoint_commits: u64,
    /// Bytes in commits between two checkpoints.
    pub checkpoint_bytes: u64,
    /// The most bytes in commits that wait for a checkpoint: with more, a sync needs one first, and fails where none can be made.
    pub waiting_bytes: u64,
    /// This writer shows that it lives: it commits at least three times within this time, so that a [`Standby`](crate::Standby) may take its
    /// place when it does not. `None`: it commits when there is something to commit.
    pub lease: Option<Duration>,
    /// What keeps the order of commits: the one with which the room was created. `None`: the object store.
    pub log: Option<Arc<dyn CommitLog>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            take_over: false,
            remains: |_| false,
            cache_bytes: 10 << 30,
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(600),
            checkpoint_commits: 256,
            checkpoint_bytes: 16 << 20,
            waiting_bytes: 128 << 20,
            lease: None,
            log: None,
        }
    }
}
