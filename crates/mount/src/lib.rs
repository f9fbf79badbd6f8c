//! Mounts a room, or a shared file system: FUSE requests become its calls, and room errors become errno. The only crate that knows errno.
//!
//! To begin with, copy `examples/mount_room.rs`.
//!
//! 1. The kernel checks permissions, ACLs included, before it asks; a mount where it would not is refused.
//! 2. The mount is the only one that changes a room, so the kernel may cache every reply. Other changes of the room must
//!    be announced through [`Handle`]. Of a [shared](model::FileSystem::is_shared) file system the kernel keeps nothing
//!    beyond the next open of a file, and nothing that was written.
//! 3. What a program wrote reaches the room when it closes the file, when it asks for it (fsync), and at the latest after
//!    [`MountOptions::write_back_interval`]; there the room's own commits take over. `fsync` is durable when it returns.
//!    `sync` and `syncfs` are not: Linux passes everything on, but does not notify an ordinary FUSE mount of the caller
//!    that waits, so it becomes durable with the room's next commit.
//! 4. A program learns from `write` that the room is full, before anything it wrote is lost. A map or a single `write` of more
//!    than 64 MiB beyond the space is refused later: by `msync`, `fsync` or `close`.
//! 5. Access times follow reads that reach the room, as [`MountOptions::access_times`] says; one served from the kernel's
//!    cache does not show.
//! 6. Append-only and immutable files are the room's: it refuses changes, and its mount refuses opens, as far as the kernel
//!    asks for them (`fuse/flagged.rs`).
//! 7. Files are stamped by the clock that the kernel stamps them with; those of a shared file system by its server's.
//! 8. A listing ends at the names that were there when it began. Of a shared file system it may go on with new ones; but in both
//!    a file renamed in its directory keeps its place.
//! 9. Direct reads and writes are synchronous in the kernel, so that its cache never keeps what they replaced.
//! 10. Snapshots are shown by a file system around the live one, [`WithSnapshots`]; a mount does not know which of the two it serves.
//!
//! It deliberately does not know the command line, signals, or how the mounting process goes into the background.
//!
//! What the kernel does not let through a FUSE mount: `fallocate` with collapse and insert, and `FICLONE`
//! (`copy_file_range` shares blocks all the same). Locks (flock, fcntl) are kept by the kernel; those
//! of a shared file system are taken there.

#![deny(unsafe_code)]

mod activity;
mod alone;
mod attach;
mod clock;
mod data;
mod detach;
mod errno;
mod error;
mod flags;
mod fuse;
mod groups;
mod keeper;
mod kernel;
mod labels;
mod listings;
mod locker;
mod lookups;
mod mounted;
mod options;
mod pressure;
mod relief;
mod removals;
mod seeker;
mod server;
mod slice;
mod snapshots;
pub mod table;
mod tune;
mod xattrs;

pub use attach::{Attachment, attach, write_back};
pub use detach::{Detach, detach, detach_own, fusermount, is_out_of_sight};
pub use error::MountError;
pub use mounted::{Handle, Mounted, mount, serve};
pub use options::{AccessTimes, MountOptions, Synchronous, THREADS_MAX, Transport};
pub use snapshots::{SnapshotDirectory, WithSnapshots, is_in_snapshots};
pub use tune::tune;
