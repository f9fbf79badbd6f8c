//! A storage in a bucket, over a store in memory that fails on purpose.
#![allow(missing_docs)]

mod faults;
mod fences;
mod made;
mod room;
mod store;
mod upkeep;
