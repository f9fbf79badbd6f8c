//! A discrete-event simulation of shared storage: how many clients metadata servers and disks take, and what is used up first.
//!
//! `docs/scale.md` has what came out, `examples/simulate.rs` is the program. What each call costs was measured ([`calibration`]); what programs
//! do is assumed, and said by [`Mix`].
//!
//! 1. Time is a number in the simulation: one seed gives one result, on every machine, however busy.
//! 2. A station is visited by an event at the moment of the visit, never ahead of time. So visits are in the order of time, and the end of a visit
//!    is known when it begins.
//! 3. The stations agree with the closed forms of queueing theory, and the whole with what was measured: see the tests.
//!
//! It deliberately does not know the code that its numbers are of: a change of that shows here only when it is measured again.

#![forbid(unsafe_code)]

pub mod calibration;
mod events;
mod latency;
mod mix;
mod stations;
mod system;

pub use events::{Events, Time};
pub use latency::Latency;
pub use mix::{Mix, Operation, Step};
pub use stations::{Log, Station};
pub use system::{Failure, Report, Setup, Use, simulate};
