//! SQLite's files on a `Storage`: what the catalog writes goes through the same seam as segments and header.
//!
//! To begin with, copy `examples/sqlite_on_storage.rs`.
//!
//! 1. Every open, read, write, truncation, sync and removal of a database, its log and its journal is one call of the
//!    storage's. Files without a name (SQLite's own spill) live in memory: nothing of a room goes to a temporary directory.
//! 2. There are no locks between connections and no shared memory: a room has one writer, and its lock says so. A
//!    connection must be in exclusive locking mode before it uses a log.
//! 3. A file that was created has its name made durable by its first sync, as SQLite's own layer for Unix does it.
//!
//! 4. Connections are opened when SQLCipher has started ([`start`]), also those without this layer.
//! 5. The files of a catalog that a [`authentic::Witness`] vouches for pass through it ([`Registration::vouch`]).
//!
//! It deliberately does not know what is in the pages. Unsafe code is in two modules: the table of functions that SQLite
//! calls, and what keeps SQLCipher's keys out of core dumps.

#![deny(unsafe_code)]

mod around;
pub mod authentic;
mod file;
#[allow(unsafe_code)]
mod private_heap;
mod registered;
mod registration;
mod start;
#[allow(unsafe_code)]
mod vfs;

#[cfg(test)]
mod tests;

pub use file::PageFile;
pub use registration::Registration;
pub use start::start;
pub use vfs::{not_opened, reads};

/// The name by which SQLite knows this layer.
pub const VFS: &str = "strongroom";
