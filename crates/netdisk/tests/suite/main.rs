//! A network disk, and who attacks it; what is measured by its memory is beside this.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod attachment;
mod attacks;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod limits;
mod renewal;
mod replies;
mod revocation;
mod starved;
