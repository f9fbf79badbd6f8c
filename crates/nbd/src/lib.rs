//! Serves any device over the network block device protocol (NBD, fixed newstyle).
//!
//! To begin with, copy `examples/serve_device.rs`.
//!
//! 1. [`Export`]: a device under a name.
//! 2. [`Server`]: takes connections over TCP or a Unix socket, plain or inside TLS, and answers.
//!
//! It deliberately does not know what a device's bytes mean, nor how it was opened.

#![forbid(unsafe_code)]

mod export;
mod negotiate;
mod proto;
mod server;
mod tls;
mod wire;

pub use export::{Export, ExportError};
pub use proto::PAYLOAD_MAX;
pub use server::{Config, Listen, Metrics, ServeError, Server};
pub use tls::{Tls, TlsError, TlsFiles, TlsPolicy};
