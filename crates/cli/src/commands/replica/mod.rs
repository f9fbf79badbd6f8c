//! `strongroom send`, `receive` and `replicate`: moments of a room in another place, brought there without its key.

mod files;
pub(crate) mod receive;
pub(crate) mod replicate;
pub(crate) mod send;
mod target;
