//! The protocol byte by byte: what no well-behaved client sends, and what clients here do not speak yet.

mod client;
mod extended;
mod garbage;
mod limits;
mod model;
mod records;
