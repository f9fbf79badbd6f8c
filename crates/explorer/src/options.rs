//! How far an exploration goes.

use crate::states::Limits;

/// How far to go with a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which states are listed at a point.
    pub limits: Limits,
    /// Most states looked at; points with many are thinned by the seed. 0: all.
    pub states_max: usize,
    /// Of one state in so many the recovery is cut too. 0: of none; 1: of all.
    pub recovery_every: u64,
    /// Most states looked at in one recovery.
    pub recovery_states_max: usize,
    /// One state in so many is looked at thoroughly.
    pub thorough_every: u64,
    /// Failures reported of a workload before the exploration leaves it.
    pub failures_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            states_max: 0,
            recovery_every: 16,
            recovery_states_max: 24,
            thorough_every: 8,
            failures_max: 1,
        }
    }
}
