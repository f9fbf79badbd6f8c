//! Progress bars on standard error, when a person stands before it; and stopping on Ctrl-C between two safe points.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;

/// Long work under way.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    /// Bytes in all, where that is known of work that is counted; 0: it is not.
    total: AtomicU64,
    what: &'static str,
}

impl Bar {
    /// A bar for work that is measured in bytes. From here on the first Ctrl-C asks the work to stop, the second kills.
    pub(crate) fn start(what: &'static str, global: &Global) -> Bar {
        let bar = ProgressBar::new(0);
        let shown = std::io::stderr().is_terminal() && !global.quiet && !global.json;
        bar.set_draw_target(if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        bar.set_message(what);
        let stop = Arc::new(AtomicBool::new(false));
        // Where a handler cannot be set, Ctrl-C kills as it always does; rooms survive that.
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal_hook::consts::SIGINT,
            130,
            stop.clone(),
        );
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone());
        Bar {
            bar,
            stop,
            total: AtomicU64::new(0),
            what,
        }
    }

    /// Takes note of (done, total) bytes; false once the user wants to stop.
    pub(crate) fn tell(&self, done: u64, total: u64) -> bool {
        if self.bar.length() == Some(0) && total > 0 {
            // The template is fixed text, checked by every run that shows a bar.
            if let Ok(style) = ProgressStyle::with_template(
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ) {
                self.bar.set_style(style);
            }
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        !self.stop.load(Ordering::Relaxed)
    }

    /// The same where the total is not known: files and bytes done.
    pub(crate) fn count(&self, files: u64, bytes: u64) -> Result<()> {
        if !self.bar.is_hidden() {
            let of = match self.total.load(Ordering::Relaxed) {
                0 => String::new(),
                total => format!(" of {}", crate::output::size(total)),
            };
            let bytes = crate::output::size(bytes);
            self.bar.set_message(format!(
                "{}: {}, {bytes}{of}",
                self.what,
                crate::output::count(files, "file")
            ));
            self.bar.tick();
        }
        if self.stop.load(Ordering::Relaxed) {
            Err(interrupted())
        } else {
            Ok(())
        }
    }

    /// Shows beside what is counted how many bytes there will be.
    pub(crate) fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// A bar that counts without a total.
    pub(crate) fn counting(what: &'static str, global: &Global) -> Bar {
        let bar = Bar::start(what, global);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.bar.set_style(style);
        }
        bar
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What a command that the user stopped ends with.
pub(crate) fn interrupted() -> Error {
    Error::said(Exit::Interrupted, "stopped; what was done so far is kept")
}
