//! Keys, headers and sealed data, held to the standards' vectors.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod header;
mod sealing;
mod slots;
mod standards;
mod vectors;
mod wycheproof;
