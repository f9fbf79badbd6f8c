//! Which rules hold, and how far the checker goes.

use crate::check::{Check, Setup};

/// How often each thing may happen.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Requests of Alice.
    pub requests: u8,
    /// Requests of the metadata server.
    pub orders: u8,
    /// Messages that Eve makes herself.
    pub forgeries: u8,
    /// Restarts of the disk.
    pub restarts: u8,
    /// Ends of epochs.
    pub epochs: u8,
    /// Steps of time.
    pub ticks: u8,
}

/// The protocol, with a rule less perhaps.
#[derive(Debug, Clone)]
pub struct Protocol {
    setup: Setup,
    without: Option<Check>,
    pub(crate) bounds: Bounds,
}

impl Protocol {
    /// The protocol with every rule.
    pub fn new(setup: Setup, bounds: Bounds) -> Self {
        Self {
            setup,
            without: None,
            bounds,
        }
    }

    /// The protocol without one rule.
    pub fn without(self, check: Check) -> Self {
        Self {
            without: Some(check),
            ..self
        }
    }

    pub(crate) fn has(&self, check: Check) -> bool {
        let part = match check {
            Check::PayloadTag => self.is_secure(),
            Check::MessagesInTls | Check::Certificate => !self.is_secure(),
            _ => true,
        };
        part && self.without != Some(check)
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.setup == Setup::Secure
    }
}
