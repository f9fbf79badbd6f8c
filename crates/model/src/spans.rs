//! The names of the spans that say where time goes.
//!
//! 1. A span covers work of its own kind only, or contains others: a listener that takes the time of a span less that of
//!    the spans within it (its *own* time) counts every nanosecond of a thread once.
//! 2. They are `tracing` spans of level TRACE and target [`TARGET`], without fields: with nobody listening each costs
//!    one comparison, and no name of a file or key can reach a log through them.
//!
//! 3. Work that another process did and timed is reported by an event of the part's name and the same target, with the
//!    field `ns`: it counts as a span of so many nanoseconds within the present one.
//!
//! It deliberately does not know who listens. The list is here because every crate that opens a span is above.
//!
//! ```
//! # fn read() {}
//! use model::spans;
//! let _span = tracing::trace_span!(target: spans::TARGET, spans::DEVICE_READ).entered();
//! read();
//! ```

/// The target of all of them, for a filter that wants these and nothing else.
pub const TARGET: &str = "strongroom::span";

/// Reading of the room's files, here or by a network disk. The system call: from the page cache as well as from the device.
pub const DEVICE_READ: &str = "device read";
/// Writing, lengthening, cutting and reserving of the room's files; mostly into the page cache.
pub const DEVICE_WRITE: &str = "device write";
/// Giving space of the room's files back: holes punched in them.
pub const DEVICE_RELEASE: &str = "device release";
/// Waiting until files or names are durable.
pub const DEVICE_SYNC: &str = "device sync";
/// Opening, renaming, removing, listing and measuring of the room's files.
pub const DEVICE_NAMES: &str = "device names";
/// Sealing of file data: encryption and authentication, which are one operation in both suites, and the copy into the
/// buffer it is done in.
pub const SEALING: &str = "sealing";
/// Opening of file data: authentication and decryption, again as one.
pub const OPENING: &str = "opening";
/// What only authenticates: tags and codes of the catalog's pages, headers of segments, messages to and from network disks.
pub const AUTHENTICATION: &str = "authentication";
/// Reading and changing of the catalog: SQL, with SQLCipher's encryption and authentication of pages, which cannot be
/// measured apart from it.
pub const CATALOG: &str = "catalog";
/// The catalog's log moved into its file: [`CATALOG`] too, but not of the operation that happens to meet it.
pub const CHECKPOINT: &str = "checkpoint";
/// Waiting for another thread: its commit, its use of the catalog.
pub const WAITING: &str = "waiting";
/// A request of a mounted room, from the moment it is taken apart until its answer is known. It contains the others.
pub const REQUEST: &str = "request";
/// Waiting for a network disk: the way there and back, and what the disk does, less what its own storage takes.
pub const NETWORK: &str = "network";
/// A request to a network disk under a capability that was revoked, there and back.
pub const REVOKED: &str = "revoked request";
/// Asking the metadata server where data is stored or may be written, with the capabilities for it.
pub const CAPABILITY: &str = "capability";
/// Asking the metadata server for anything else.
pub const METADATA: &str = "metadata";
