//! Storage for tests: one that refuses on demand, one that loses power, and the contract every storage keeps.
//!
//! Only with the feature `testing`, which no shipped program turns on.

pub mod contract;
mod faulty;
mod memory;

pub use faulty::{Call, Fault, FaultyStorage, Op, Times};
pub use memory::MemoryStorage;
