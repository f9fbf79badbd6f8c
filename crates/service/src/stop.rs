//! Requests to stop: by SIGTERM, SIGINT, SIGHUP, or by the program itself.
//!
//! 1. The first signal asks; the second ends the process at once. What must survive that survives a kill anyway.
//! 2. Who was asked and has not ended after its grace is ended: nothing waits for ever for a stuck server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Whether the process was asked to stop. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Listens to the signals from now on. Once asked, the process has `grace` to end by itself.
    pub fn on_signals(grace: Duration) -> io::Result<Stop> {
        let stop = Stop::default();
        let asked = stop.clone();
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if asked.is_asked() {
                        tracing::warn!(signal, "second stop signal: ending at once");
                        // What a shell says of who died of a signal.
                        std::process::exit(128 + signal);
                    }
                    tracing::info!(signal, "stop signal");
                    asked.ask();
                    // Where no thread can be made the second signal still ends it.
                    let _ = std::thread::Builder::new()
                        .name("grace".into())
                        .spawn(move || {
                            std::thread::sleep(grace);
                            tracing::error!(?grace, "could not stop in time: ending at once");
                            std::process::exit(1);
                        });
                }
            })?;
        Ok(stop)
    }

    /// Asks as a signal does.
    pub fn ask(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        *self.0.0.lock()
    }

    /// Waits until it is asked.
    pub fn wait(&self) {
        let mut asked = self.0.0.lock();
        while !*asked {
            self.0.1.wait(&mut asked);
        }
    }

    /// Waits until it is asked, at most this long; whether it was.
    pub fn wait_for(&self, time: Duration) -> bool {
        let mut asked = self.0.0.lock();
        self.0.1.wait_while_for(&mut asked, |asked| !*asked, time);
        *asked
    }
}
