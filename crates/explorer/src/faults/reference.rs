//! A workload without faults: its operations on the storage, and what a user sees after each step.

use std::sync::{Arc, Mutex};

use storage::testing::{FaultyStorage, Op};

use crate::explore::Failure;
use crate::image::Image;
use crate::record::Recorder;
use crate::snapshot::Snapshot;
use crate::workload::{Workload, is_refusal};

use super::trial::Trial;

/// One operation on the storage.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Which.
    pub op: Op,
    /// On what.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// During which step: 0 is the opening, one more than there are steps is the look at the end.
    pub step: usize,
}

/// How a workload goes without faults.
#[derive(Debug)]
pub struct Reference {
    /// The prepared room.
    pub start: Image,
    /// Every operation in order.
    pub operations: Vec<Operation>,
    /// What a user sees after each step, from step 0, without times.
    pub snapshots: Vec<Arc<Snapshot>>,
    /// For each step, from step 1, whether the room refused it as one that does not apply.
    pub refused: Vec<bool>,
}

impl Reference {
    /// Runs the workload.
    ///
    /// # Errors
    /// What went wrong.
    pub fn of(workload: &Workload) -> Result<Self, Failure> {
        let start = workload.start.image()?;
        let recorder = Recorder::over(&start);
        let faulty = FaultyStorage::new(recorder.storage());
        let step = Arc::new(Mutex::new(0));
        let operations = Arc::new(Mutex::new(Vec::new()));
        let (list, now) = (operations.clone(), step.clone());
        faulty.observe(move |call| {
            super::lock(&list).push(Operation {
                op: call.op,
                path: call.path.to_owned(),
                offset: call.offset,
                len: call.len,
                step: *super::lock(&now),
            });
        });
        let says = |what: &str, e: &room::Error| Failure(format!("{what}: {e}"));
        let mut trial = Trial::open(&faulty, workload).map_err(|e| says("open", &e))?;
        let mut snapshots = vec![Arc::new(trial.see(&faulty).map_err(|e| says("open", &e))?)];
        let mut refused = Vec::new();
        for (number, line) in (1..).zip(&workload.steps) {
            *super::lock(&step) = number;
            let done = trial.session.step(number, line);
            if let Err(e) = &done
                && !is_refusal(e)
            {
                return Err(says(&line.to_string(), e));
            }
            refused.push(done.is_err());
            let seen = trial.see(&faulty).map_err(|e| says("snapshot", &e))?;
            snapshots.push(Arc::new(seen));
        }
        *super::lock(&step) = workload.steps.len() + 1;
        let last = trial
            .last_look(&faulty)
            .map_err(|e| says("at the end", &e))?;
        if snapshots.last().is_some_and(|s| **s != last) {
            return Err(Failure("the room opened again differs".into()));
        }
        let operations = std::mem::take(&mut *super::lock(&operations));
        Ok(Self {
            start,
            operations,
            snapshots,
            refused,
        })
    }
}
