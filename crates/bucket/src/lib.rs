//! A room in a bucket: [`::storage::Storage`] over an object store.
//!
//! To begin with, copy `examples/room_in_bucket.rs`.
//!
//! 1. **A sync is one conditional create** in a log: of the object `commits/<n>` with `If-None-Match: *`, or of a row of PostgreSQL or a
//!    key of etcd. It carries what changed, makes that durable
//!    and takes the number, all in one request. A writer that finds its next number taken was overtaken, and acknowledges nothing more.
//! 2. **Objects never change.** Many bytes go into objects of their own first, under names that no other writer uses.
//! 3. **Nothing is removed that a commit refers to**, nor, for a time, what one referred to lately.
//! 4. **Opening begins with a commit**, so that the writer before it is overtaken from then on.
//! 5. **A writer can show that it lives**, by commits; a [`Standby`] takes its place when it does not. Who is the writer depends on no clock.
//!
//! It deliberately does not know keys, formats, or what the files hold: everything in them was sealed before. That what is read is what
//! was written, and of one moment, is checked by the room.

#![forbid(unsafe_code)]

mod cache;
mod certificates;
mod client;
mod clock;
mod commit;
mod commits;
mod creation;
mod credentials;
mod discard;
mod elsewhere;
mod etcd;
mod file;
mod history;
mod in_store;
mod log;
mod log_place;
mod manifest;
mod names;
mod objects;
mod opening;
mod options;
mod percent;
mod pieces;
mod place;
mod postgres;
mod probe;
mod record;
mod removals;
mod shared;
mod standby;
mod storage;
mod syncs;
mod trying;

pub use client::Requests;
pub use log::{CommitLog, Created, HEAD, LogError};
pub use log_place::LogPlace;
pub use object_store::ObjectStore;
pub use opening::WriterId;
pub use options::Options;
pub use place::{Place, SCHEME};
pub use standby::Standby;

pub use crate::storage::BucketStorage;
