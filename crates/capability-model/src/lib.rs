//! A formal model of the protocol between clients, a network disk and its metadata server, for a model checker.
//!
//! `docs/netdisk.md` has the protocol. Here it is cut down to what its security rests on, and [stateright](https://www.stateright.rs) visits
//! every state that is left. `docs/capability-model.md` says what was found.
//!
//! 1. The attacker is the network (Dolev and Yao, 1983): Eve keeps every message, delivers each at any time, as often as she likes or never,
//!    changes it, and sends her own. She is also a user with capabilities of her own.
//! 2. Cryptography is perfect: a MAC is made only by a holder of its key, and a record of TLS is opened only by its two ends.
//! 3. Each check of the protocol can be removed ([`Check`]). With all of them no property fails. Without one, the checker finds an attack:
//!    what the model cannot see it does not prove.
//!
//! It deliberately does not know bytes, lengths, how long anything takes, or the disk's resources.

#![forbid(unsafe_code)]

mod check;
mod disk;
mod history;
mod message;
mod property;
mod protocol;
mod server;
mod steps;
mod world;

pub use check::{Check, Setup};
pub use protocol::{Bounds, Protocol};
pub use steps::Action;
pub use world::World;
