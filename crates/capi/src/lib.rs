//! Strongroom for C, and for what can call C: `strongroom.h` is made from this crate.
//!
//! To begin with, copy `examples/first.c`.
//!
//! 1. Every function may be called from any thread at any time, with any handle: what is closed, never was open or is of another kind is
//!    [`strongroom_code::STRONGROOM_CLOSED`].
//! 2. No panic and no signal leaves a function; each answers with a number, negative for an error, whose text
//!    [`strongroom_last_error`] has for the thread that made the call.
//! 3. Numbers and sizes of what is public only grow: structures that a caller fills in begin with their size.
//!
//! What a pointer must lead to is said at each function. What is decided about rooms is decided in `embed`; this crate deliberately
//! knows nothing but how C says it.

mod arguments;
mod error;
mod file;
mod keys;
mod listing;
mod names;
mod path;
mod policy;
mod room;
mod snapshots;
mod types;
mod xattrs;

pub use error::*;
pub use file::*;
pub use keys::*;
pub use listing::*;
pub use names::*;
pub use path::*;
pub use policy::*;
pub use room::*;
pub use snapshots::*;
pub use types::*;
pub use xattrs::*;
