//! Measures storage from outside (directories, files, block devices, rooms), and marks numbers that are not valid.
//!
//! To begin with, copy `examples/measure_directory.rs`.
//!
//! ```text
//! work    what is done: calls of a size, an order and a depth; files; ciphers     -> Round
//! store   what it is done to                                                      (Store)
//! observe what the machine says meanwhile: clocks, counters, the page cache       -> Evidence
//! validity which evidence makes a round INVALID                                    -> Issue
//! statistics  medians, intervals, steady state                                    -> Summary, Ratio
//! compare rounds of several stores in turns, A B B A
//! model   what comes of it: one document                                          -> Report
//! report  the document as a table, as JSON, as a page
//! ```
//!
//! 1. Time is CLOCK_MONOTONIC_RAW, read before and after the work and nothing else.
//! 2. A round with a validity issue enters no summary and no ratio; it is shown, with the reason.
//! 3. Whatever is read is compared with what was written.
//! 4. Nothing is written but to files and directories this crate made, and a run file names those before they are made.
//!
//! It deliberately does not know the command line, nor what a network disk is.

#![deny(unsafe_code)]

#[cfg(test)]
mod alone;
pub mod ceiling;
pub mod clock;
pub mod compare;
pub mod data;
pub mod engine;
mod error;
pub mod history;
pub mod itself;
pub mod model;
pub mod observe;
pub mod progress;
pub mod published;
pub mod report;
pub mod run_file;
pub mod session;
pub mod spans;
pub mod statistics;
pub mod store;
#[allow(unsafe_code)]
mod sys;
pub mod validity;
mod words;
pub mod work;

pub use error::{Error, Result};
