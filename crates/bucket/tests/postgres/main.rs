//! A storage in a bucket whose commits are in a log of PostgreSQL: the suite of the object store, over a real engine, and what only
//! such an engine can do.
#![allow(missing_docs)]

#[path = "../engines/both.rs"]
mod both;
#[path = "../engines/engine.rs"]
mod engine;
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
#[path = "../bucket/standbys.rs"]
mod standbys;
#[allow(dead_code, reason = "what else it does is for the explorer")]
#[path = "../bucket/store.rs"]
mod store;
#[path = "../bucket/upkeep.rs"]
mod upkeep;

use engines::Postgres as Engine;
