//! What a connection has proved: by the last request on it that passed every check, replay included.
//!
//! 1. A proof holds while what it was given with is good: a capability that expired, was revoked or is of a group that is not
//!    valid any more proves nothing.
//! 2. Who repeats another's request proves nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use streams::{Prover, Standing};

use super::check::{Access, Guard};

/// A connection's proof.
pub(super) struct Proof {
    prover: Prover,
    state: Mutex<State>,
}

enum State {
    /// Since when.
    Missing(Instant),
    /// Nothing is protected, so nothing can be proved.
    Open,
    By(Arc<Access>),
}

impl Default for State {
    fn default() -> Self {
        Self::Missing(Instant::now())
    }
}

impl Proof {
    /// None yet.
    pub(super) fn new(prover: Prover) -> Self {
        Self {
            prover,
            state: Mutex::default(),
        }
    }

    /// A request passed every check, with this access; without one where nothing is protected. False where there are too many
    /// connections like this one.
    pub(super) fn give(&self, access: Option<&Arc<Access>>) -> bool {
        let mut state = self.state.lock();
        let known = match (&*state, access) {
            (State::Open, None) => true,
            (State::By(last), Some(access)) => Arc::ptr_eq(last, access),
            _ => false,
        };
        if known {
            return true;
        }
        let standing = match access {
            Some(access) if access.is_operator() => Standing::Operator,
            access => Standing::Client(access.and_then(|a| a.client()).map(|client| client.0)),
        };
        if !self.prover.prove(standing) {
            return false;
        }
        *state = access.map_or(State::Open, |access| State::By(access.clone()));
        true
    }

    /// For how long there has been none; `None` where there is one.
    pub(super) fn missing_for(&self, guard: &Guard) -> Option<Duration> {
        let mut state = self.state.lock();
        if let State::By(access) = &*state
            && !guard.still_holds(access)
        {
            *state = State::default();
            self.prover.prove(Standing::Waiting);
        }
        match &*state {
            State::Missing(since) => Some(since.elapsed()),
            State::Open | State::By(_) => None,
        }
    }

    /// Whether the metadata server proved itself.
    pub(super) fn is_operator(&self) -> bool {
        matches!(&*self.state.lock(), State::By(access) if access.is_operator())
    }
}
