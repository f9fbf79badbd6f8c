//! A storage in a bucket whose commits are in a log of PostgreSQL: the suite of the object store, over a real engine, and what only
//! such an engine can do.
#![allow(missing_docs)]

#[path = "../engines/both.rs"]
mod both;
#[path = "../engines/mod.rs"]
mod engines;
#[path = "../bucket/faults.rs"]
mod faults;
#[path = "../bucket/fences.rs"]
mod fences;
#[path = "../bucket/follow.rs"]
mod follow;
#[path = "../bucket/log.rs"]
mod log;
#[path = "../bucket/made.rs"]
mod made;
mod only;
#[path = "../bucket/room.rs"]
mod room;
#[path = "../bucket/store.rs"]
mod store;
#[path = "../bucket/upkeep.rs"]
mod upkeep;

mod engine {
    use std::sync::LazyLock;

    use crate::engines::Postgres;

    /// One server for all tests: each has rooms of its own.
    pub(crate) static ENGINE: LazyLock<Postgres> = LazyLock::new(Postgres::shared);

    /// The directory with all that the server has, which is on disk then.
    pub(crate) fn stored() -> std::path::PathBuf {
        ENGINE.stored()
    }

    pub(crate) fn place() -> Option<String> {
        Some(ENGINE.place())
    }
}
