//! A workload as the explorer takes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use storage::Storage;

use crate::explore::{Failure, Subject};
use crate::image::Image;
use crate::record::Recorder;
use crate::snapshot::Snapshot;
use crate::verify::{How, recover, verify};
use crate::workload::{Start, Watch, Workload, run};

/// A workload to be explored.
#[derive(Debug, Clone)]
pub struct RoomSubject(pub Workload);

/// Prepared rooms, made once: preparing takes longer than most workloads.
static PREPARED: Mutex<Option<HashMap<Start, Image>>> = Mutex::new(None);

impl Start {
    /// The prepared room as a tree. Made once for the whole process.
    ///
    /// # Errors
    /// What the room said.
    pub fn image(self) -> Result<Image, Failure> {
        let mut prepared = PREPARED.lock().unwrap_or_else(|e| e.into_inner());
        let prepared = prepared.get_or_insert_default();
        if let Some(image) = prepared.get(&self) {
            return Ok(image.clone());
        }
        let recorder = Recorder::unlogged(&Image::new());
        self.prepare(&recorder.storage())
            .map_err(|e| Failure(format!("the room `{self}` cannot be prepared: {e}")))?;
        let image = recorder.image();
        prepared.insert(self, image.clone());
        Ok(image)
    }
}

struct Marks<'a>(&'a Recorder);

impl Watch for Marks<'_> {
    fn begun(&mut self, step: usize) {
        self.0.begun(step);
    }
    fn did(&mut self, step: usize, _snapshot: &Arc<Snapshot>) {
        if step > 0 {
            self.0.did(step);
        }
    }
    fn durable(&mut self, step: usize) {
        self.0.durable(step);
    }
}

impl Subject for RoomSubject {
    type State = Snapshot;

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn steps(&self) -> Vec<String> {
        self.0.steps.iter().map(ToString::to_string).collect()
    }

    fn start(&self) -> Result<Image, Failure> {
        self.0.start.image()
    }

    fn run(&self, recorder: &Recorder) -> Result<Vec<Arc<Snapshot>>, Failure> {
        let target = Recorder::unlogged(&Image::new()).storage();
        let ran = run(
            &self.0,
            recorder.storage(),
            Some(target),
            &mut Marks(recorder),
        )
        .map_err(|e| Failure(e.to_string()))?;
        Ok(ran.snapshots)
    }

    fn verify(
        &self,
        storage: Arc<dyn Storage>,
        allowed: &[Arc<Snapshot>],
        thorough: bool,
    ) -> Result<usize, Failure> {
        let how = How {
            thorough,
            accept_old_header: self.0.restores_header(),
            timeless: false,
            blended: false,
        };
        verify(storage, allowed, how)
    }

    fn recover(&self, storage: Arc<dyn Storage>) -> Result<(), Failure> {
        recover(storage, self.0.restores_header())
    }
}
