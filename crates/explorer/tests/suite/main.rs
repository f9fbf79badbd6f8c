//! The crash explorer on rooms, and on storage that fails.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod engine;
mod explore;
mod faults;
mod regressions;
mod workloads;
