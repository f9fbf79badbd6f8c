//! The log: standard error, as text or as one JSON object a line.
//!
//! 1. Where systemd's journal reads standard error it stamps each line itself: then no time and no colour is written.
//!
//! It deliberately does not know files: whoever starts a server says where standard error goes.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Begins the log. `level` is the least level written (`error` to `trace`, or directives as in `RUST_LOG`) where the variable
/// `STRONGROOM_LOG` does not say otherwise. A second call in a process changes nothing.
pub fn start(format: LogFormat, level: &str) {
    let filter =
        EnvFilter::try_from_env("STRONGROOM_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let journal = is_journal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(!journal && std::io::stderr().is_terminal());
    let _ = match (format, journal) {
        (LogFormat::Text, false) => log.try_init(),
        (LogFormat::Text, true) => log.without_time().try_init(),
        (LogFormat::Json, false) => log.json().flatten_event(true).try_init(),
        (LogFormat::Json, true) => log.json().flatten_event(true).without_time().try_init(),
    };
}

/// Whether standard error is the journal's stream: systemd.exec(5), `JOURNAL_STREAM`.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}
