//! A storage in a bucket, over a store in memory that fails on purpose.
#![allow(missing_docs)]

mod engine {
    //! The store itself keeps the order of commits.
    pub(crate) fn place() -> Option<String> {
        None
    }
}
mod beside;
mod cached;
mod explore;
mod faults;
mod fences;
mod follow;
mod log;
mod made;
mod replica;
mod room;
mod standbys;
mod store;
mod upkeep;
