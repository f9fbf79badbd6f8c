//! Files kept in other programs' formats: containers of IOCipher and libsqlfs ([`Container`]), and tar streams ([`tar`]).
//!
//! To begin with, copy `examples/read_tar.rs`.
//!
//! 1. What is read is never changed: a container's files are opened for reading only, its write-ahead log among them.
//! 2. Input is never trusted: names, sizes and counts are bounded before they are used, and an entry that cannot be a file is
//!    left out and named, never guessed at.
//! 3. A name or path is bytes. No path that comes out of here has an empty part, `.`, `..` or a NUL.
//!
//! It deliberately does not know rooms, the host's file system beyond the files it reads, or where anything goes.

#![forbid(unsafe_code)]

mod container;
mod error;
pub mod tar;

pub use container::{Container, Entry, EntryKind, Format, Key, LeftOut, MAX_BLOCK, MAX_ENTRIES};
pub use error::{Error, Result};
