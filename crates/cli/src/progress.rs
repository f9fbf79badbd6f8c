//! Progress bars on standard error, when it is a terminal; and stopping on Ctrl-C between two safe points.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use room::FileKind;

use crate::args::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::tree::{Meta, Source};
use crate::walk::{Step, walk};

/// Long work under way.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    /// How many of the unit in all; 0: that is not known.
    total: AtomicU64,
    what: &'static str,
    unit: Unit,
}

/// What work is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Files,
}

/// How much is in a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Files of any kind, directories included.
    pub(crate) files: u64,
    /// Bytes of all files, holes included.
    pub(crate) bytes: u64,
    /// Bytes of them that are stored.
    pub(crate) stored: u64,
}

/// How a bar looks: what is done, of how much, how fast, and the time left.
fn template(unit: Unit, has_total: bool) -> &'static str {
    match (unit, has_total) {
        (Unit::Bytes, true) => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
        (Unit::Files, true) => "{msg} {wide_bar} {pos}/{len} {per_sec} {eta} left",
        (Unit::Bytes, false) => "{spinner} {msg} {bytes} {bytes_per_sec} {elapsed}",
        (Unit::Files, false) => "{spinner} {msg} {per_sec} {elapsed}",
    }
}

fn style(unit: Unit, has_total: bool) -> ProgressStyle {
    // Fixed text; a test makes each of them.
    ProgressStyle::with_template(template(unit, has_total))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
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
        bar.set_style(style(Unit::Bytes, false));
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
            unit: Unit::Bytes,
        }
    }

    /// Takes note of (done, total) bytes; false once the user wants to stop.
    pub(crate) fn report(&self, done: u64, total: u64) -> bool {
        if total > 0 {
            self.total.store(total, Ordering::Relaxed);
        }
        if !self.bar.is_hidden() {
            self.show(done);
        }
        !self.stop.load(Ordering::Relaxed)
    }

    /// The same for work that counts itself: files and bytes done, of as many as [`expect`](Self::expect) said.
    pub(crate) fn count(&self, files: u64, bytes: u64) -> Result<()> {
        if !self.bar.is_hidden() {
            self.bar.set_message(format!(
                "{}: {}",
                self.what,
                crate::output::count(files, "file")
            ));
            self.show(match self.unit {
                Unit::Bytes => bytes,
                Unit::Files => files,
            });
        }
        self.go_on()
    }

    /// Fails once the user wants to stop.
    pub(crate) fn go_on(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(interrupted()),
            false => Ok(()),
        }
    }

    /// As Ctrl-C does.
    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Draws the bar at so many done.
    fn show(&self, done: u64) {
        let total = self.total.load(Ordering::Relaxed);
        if self.bar.length() != Some(total.max(done)) {
            self.bar.set_style(style(self.unit, total > 0));
            // What grew meanwhile is more than was expected.
            self.bar.set_length(total.max(done));
        }
        self.bar.set_position(done);
        self.bar.tick();
    }

    /// How much there will be in all.
    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Looks how much data is in a tree that is about to be gone through; 0 where nobody sees the bar. Returns the bytes of its
    /// files, holes included.
    pub(crate) fn survey(&self, tree: &dyn Source, path: &Path, meta: &Meta) -> Survey {
        let mut found = Survey::default();
        if self.bar.is_hidden() {
            return found;
        }
        // What cannot be listed is reported when it is its turn.
        let _ = walk(
            tree,
            path,
            meta,
            &mut |step, _, meta| {
                if step != Step::Leave {
                    found.files += 1;
                }
                if meta.kind == FileKind::Regular {
                    found.bytes += meta.size;
                    found.stored += meta.size.min(meta.allocated);
                }
                match self.stop.load(Ordering::Relaxed) {
                    true => Err(()),
                    false => Ok(()),
                }
            },
            &mut |_, _| Ok(()),
        );
        found
    }

    /// A bar for work that counts itself.
    pub(crate) fn counting(what: &'static str, global: &Global) -> Bar {
        Bar::start(what, global)
    }

    /// The same, measured in files.
    pub(crate) fn of_files(what: &'static str, global: &Global) -> Bar {
        let mut bar = Bar::start(what, global);
        bar.unit = Unit::Files;
        bar.bar.set_style(style(Unit::Files, false));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_style_is_a_template_and_one_with_a_total_has_rate_and_time_left() {
        for unit in [Unit::Bytes, Unit::Files] {
            for has_total in [true, false] {
                let text = template(unit, has_total);
                assert!(ProgressStyle::with_template(text).is_ok(), "{text}");
                assert!(text.contains("per_sec"), "{unit:?} {has_total}: {text}");
                assert_eq!(text.contains("eta"), has_total, "{unit:?}: {text}");
            }
        }
    }
}
