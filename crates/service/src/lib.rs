//! What every server of Strongroom needs around it: settings, logs, an endpoint for health and metrics, an orderly end.
//!
//! To begin with, copy `examples/health_endpoint.rs`.
//!
//! 1. A setting on the command line counts more than one in the environment, and that more than one in the file. A key that
//!    nobody knows is refused by its name: a misspelt limit must not go unnoticed.
//! 2. No secret is a setting: settings name files that hold secrets. So logs, which may show settings, show no secret.
//! 3. The endpoint serves a bounded number of clients for a bounded time each, and answers though the server itself is stuck.
//! 4. A server that gets a stop signal stops: when its grace period is over it is ended, on a second signal at once.
//!
//! It deliberately does not know what a server serves, nor its protocol.

#![forbid(unsafe_code)]

mod address;
pub mod endpoint;
pub mod logs;
pub mod measures;
mod process;
pub mod settings;
pub mod stop;

pub use address::HealthAddress;
pub use endpoint::{Observed, Service};
pub use logs::LogFormat;
pub use measures::Measures;
pub use process::raise_file_limit;
pub use settings::{Common, ServerCommand, SettingsError};
pub use stop::Stop;
