//! The log: standard error, as text or as one JSON object a line.
//!
//! 1. Where systemd's journal reads standard error it stamps each line itself: then no time and no colour is written.
//!
//! It deliberately does not know files: the starter of a server redirects standard error.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Which events are written: what the variable `STRONGROOM_LOG` says (`debug`, or `warn,metadata=trace` for one crate), else
/// those of `level` (`error` to `trace`) and above. Not `EnvFilter`, whose regular expressions are half a megabyte of code.
pub fn filter(level: &str) -> Targets {
    let variable = std::env::var("STRONGROOM_LOG").ok();
    variable
        .and_then(|text| text.parse().ok())
        .or_else(|| level.parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN))
}

/// Begins the log, with the events of `filter(level)`. A second call in a process changes nothing.
pub fn start(format: LogFormat, level: &str) {
    let filter = filter(level);
    let journal = is_journal();
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .with_ansi(!journal && std::io::stderr().is_terminal());
    let _ = match (format, journal) {
        (LogFormat::Text, false) => log.finish().with(filter).try_init(),
        (LogFormat::Text, true) => log.without_time().finish().with(filter).try_init(),
        (LogFormat::Json, false) => log
            .json()
            .flatten_event(true)
            .finish()
            .with(filter)
            .try_init(),
        (LogFormat::Json, true) => log
            .json()
            .flatten_event(true)
            .without_time()
            .finish()
            .with(filter)
            .try_init(),
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
