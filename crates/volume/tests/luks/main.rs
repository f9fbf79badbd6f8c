//! LUKS against the tools of others, against loss of power, and against malformed headers.

mod common;
mod failing;
mod interop;
mod listed;
mod malformed;
mod power;
mod reencrypt;
mod unreadable;
