//! The crash explorer: cuts the power of a room at every point and looks at what is left.
//!
//! A workload ([`explore::Subject`]) runs on a storage in memory that logs every operation ([`record::Recorder`]). From
//! the log come the trees that a crash may leave ([`states`]); each is opened and compared with the state that the room
//! reported as durable. A failure prints as a story with the command that reproduces it ([`story`]).

#![forbid(unsafe_code)]

pub mod campaign;
pub mod explore;
pub mod faults;
pub mod image;
pub mod opening;
mod options;
pub mod receiver_subject;
pub mod record;
pub mod room_subject;
pub mod sites;
pub mod snapshot;
pub mod states;
pub mod story;
mod subject;
pub mod verify;
pub mod without;
pub mod workload;
