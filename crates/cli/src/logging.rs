//! The log of a command: what of it is written, where and how.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::Global;

/// The least level that is written.
pub(crate) fn level(global: &Global, serving: bool) -> &'static str {
    match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) if !serving => "warn",
        (false, 0 | 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    }
}

pub(crate) fn init_tracing(global: &Global, serving: bool) {
    // A second call (a test that runs the command in its own process) keeps the first subscriber.
    let _ = log(global, serving).try_init();
}

/// `serving`: for a log file, not for a terminal.
pub(crate) fn log(
    global: &Global,
    serving: bool,
) -> impl tracing::Subscriber + Send + Sync + use<> {
    let colour = !serving && std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(Log { serving })
        .with_ansi(colour)
        .with_target(serving)
        .finish()
        .with(service::logs::filter(level(global, serving)))
}

/// Whether the process that serves a mount has its log, and need not spare the user's terminal any more.
static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// From here on standard error is a log, which takes everything.
pub(crate) fn log_everything() {
    HAS_LOG.store(true, Ordering::Relaxed);
}

/// Standard error; while it is still the terminal of the mounting user, the serving process only writes warnings there.
struct Log {
    serving: bool,
}

impl<'w> tracing_subscriber::fmt::MakeWriter<'w> for Log {
    type Writer = Box<dyn std::io::Write>;

    fn make_writer(&'w self) -> Self::Writer {
        Box::new(std::io::stderr())
    }

    fn make_writer_for(&'w self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        if self.serving && !HAS_LOG.load(Ordering::Relaxed) && *meta.level() > tracing::Level::WARN
        {
            Box::new(std::io::sink())
        } else {
            self.make_writer()
        }
    }
}
