//! What a C program hands over, made safe: pointers, handles, forks, and the program's end.
//!
//! To begin with, copy `examples/c_handles.rs`.
//!
//! 1. A handle is a number, never an address: one that was closed, never existed or is of another kind is an error, and no number is
//!    used twice in a process and its forks.
//! 2. A pointer is looked at for NULL, a text and a length for their bounds, before anything is read through it. That it points to what
//!    the header says cannot be seen from here: it is all that a C caller can do wrong.
//! 3. A program that ends in order with rooms open closes them before its other libraries come down.
//!
//! It deliberately does not know which functions there are, nor what their errors are called.

mod exit;
mod handles;
mod pointers;

pub use exit::at_exit;
pub use handles::{all, get, insert, opening, remove};
pub use pointers::{BYTES_MAX, TEXT_MAX, bytes, bytes_mut, out, put, text, value};
