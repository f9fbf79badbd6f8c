//! The native half of the Java library: each function of `org.strongroom.Native` as one call of `embed`.
//!
//! 1. What Java holds is a number. Numbers are given once and never again, so one that was closed, is of another kind or was
//!    made up finds nothing, and is an error.
//! 2. Everything runs inside `embed::guard`; an error becomes an exception of Java, made by Java.
//! 3. What Java passes is bounded before it is used: offsets and lengths against the array or buffer they are of.
//! 4. No array of Java is pinned while a room works: bytes are copied in or out before and after, or are in a direct buffer.
//!
//! It deliberately does not know Java's names for things: which exception a kind becomes, what a path may look like and who
//! closes what is decided in Java.

#![deny(unsafe_code)]

mod call;
mod files;
mod keys;
mod policy;
mod rooms;
mod snapshots;
mod table;
