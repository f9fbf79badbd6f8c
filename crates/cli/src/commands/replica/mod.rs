//! `strongroom send`, `receive` and `replicate`: moments of a room in another directory, brought there without its key.

pub(crate) mod receive;
pub(crate) mod replicate;
pub(crate) mod send;
