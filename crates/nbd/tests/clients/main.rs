//! The server against the clients that people use: libnbd's programs and its Python module, qemu's, fio, nbdkit.
//!
//! A client that is not installed is said so, and its tests pass; `scripts/setup.sh` installs all.

mod common;
mod copies;
mod programs;
mod tls;
