//! Showing how far a measurement is, and how long it will take yet.
//!
//! A measurement reports to a [`Progress`], which its caller chooses. Reports must not cost time inside a measurement:
//! report between rounds, or from the thread that only waits.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Listens to how far a measurement is. Implementations are quick and never fail.
pub trait Progress: Send + Sync {
    /// So many steps there will be, all of about the same length. May be said again when more is known.
    fn rows(&self, n: u64);
    /// A step begins, and this is what it does, as in "random read, 4 KiB, depth 1: room, round 3 of 7".
    fn row(&self, words: &str);
    /// How much of the present step is done, 0 to 1. 1 ends it: steps that are not ended do not count.
    fn advance(&self, fraction: f64);
    /// Something to be read that stays, as in "not steady yet, measuring longer".
    fn note(&self, words: &str);
    /// All is done, or was stopped.
    fn end(&self);
}

/// Reports nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn rows(&self, _: u64) {}
    fn row(&self, _: &str) {}
    fn advance(&self, _: f64) {}
    fn note(&self, _: &str) {}
    fn end(&self) {}
}

/// Parts of a step the bar knows of.
const FINE: u64 = 1000;

/// A bar on standard error, with the time left.
#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    done: Mutex<u64>,
}

impl Terminal {
    /// A bar, if standard error is a terminal; otherwise the same as [`Quiet`], but for notes, which are printed.
    pub fn new() -> Terminal {
        Terminal::on(if std::io::stderr().is_terminal() {
            // Twice a second: drawing takes processor time from what is measured.
            ProgressDrawTarget::stderr_with_hz(2)
        } else {
            ProgressDrawTarget::hidden()
        })
    }

    fn on(target: ProgressDrawTarget) -> Terminal {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        // The template is fixed text; a test shows that it is one.
        if let Ok(style) = style() {
            bar.set_style(style);
        }
        Terminal {
            bar,
            done: Mutex::new(0),
        }
    }

    fn done(&self) -> std::sync::MutexGuard<'_, u64> {
        // A number cannot be left half-changed.
        self.done
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Terminal::new()
    }
}

/// What is being done on a line of its own, cut to the terminal's width, and the bar below.
fn style() -> Result<ProgressStyle, indicatif::style::TemplateError> {
    ProgressStyle::with_template("{wide_msg}\n{wide_bar} {percent:>3} % {elapsed}, left {eta}")
}

impl Progress for Terminal {
    fn rows(&self, n: u64) {
        self.bar.set_length(n * FINE);
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn row(&self, words: &str) {
        self.bar.set_message(words.to_owned());
    }

    fn advance(&self, fraction: f64) {
        let mut done = self.done();
        let part = (fraction.clamp(0.0, 1.0) * FINE as f64) as u64;
        self.bar.set_position(*done * FINE + part);
        if part == FINE {
            *done += 1;
        }
    }

    fn note(&self, words: &str) {
        if self.bar.is_hidden() {
            // Nobody has to read it.
            let _ = writeln!(std::io::stderr(), "{words}");
        } else {
            self.bar.println(words);
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_has_a_style() {
        style().unwrap();
    }

    #[test]
    fn steps_add_up_and_nothing_goes_past_the_end() {
        let terminal = Terminal::on(ProgressDrawTarget::hidden());
        terminal.rows(2);
        terminal.row("first");
        terminal.advance(0.5);
        assert_eq!(terminal.bar.position(), FINE / 2);
        terminal.advance(1.0);
        terminal.row("second");
        terminal.advance(0.25);
        assert_eq!(terminal.bar.position(), FINE + FINE / 4);
        terminal.advance(7.0);
        assert_eq!(Some(terminal.bar.position()), terminal.bar.length());
        terminal.end();
    }
}
