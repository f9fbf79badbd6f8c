//! What is explored: a program that uses storage and knows what it may find after a crash.

use std::fmt::Debug;
use std::sync::Arc;

use storage::Storage;

use crate::image::Image;
use crate::record::{Log, Recorder};

/// What is wrong with a state, in words; several lines where needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A program that uses storage and knows what it may find after a crash.
pub trait Subject: Send + Sync {
    /// What a user can see of the storage at one moment.
    type State: Send + Sync + Debug;

    /// How the workload can be named again: `twos:17`.
    fn name(&self) -> String;

    /// Each step in a few words; step `n` of the marks is `steps()[n - 1]`.
    fn steps(&self) -> Vec<String>;

    /// The tree before the first step; all of it is durable. The same each time, as far as it can be.
    ///
    /// # Errors
    /// A word on what went wrong in the preparation: a fault of the workload or of the program under test.
    fn start(&self) -> Result<Image, Failure>;

    /// Runs the steps on the recorder, marking each as begun and done, and marking what is durable. Returns what a user
    /// sees: at index `n` after step `n`, at 0 before the first.
    ///
    /// # Errors
    /// A word on what went wrong without any crash.
    fn run(&self, recorder: &Recorder) -> Result<Vec<Arc<Self::State>>, Failure>;

    /// Opens what a crash left, compares it with each of the states that are allowed, and uses it. Returns which of
    /// them it is. `thorough`: all that can be looked at; otherwise what is cheap.
    ///
    /// # Errors
    /// What is wrong.
    fn verify(
        &self,
        storage: Arc<dyn Storage>,
        allowed: &[Arc<Self::State>],
        thorough: bool,
    ) -> Result<usize, Failure>;

    /// Opens what a crash left and closes it again, so that the power can be cut during that.
    ///
    /// # Errors
    /// What is wrong.
    fn recover(&self, storage: Arc<dyn Storage>) -> Result<(), Failure>;
}

/// A workload that has run: what it did and what its user saw.
#[derive(Debug)]
pub struct Recorded<S> {
    /// What it did to the storage.
    pub log: Log,
    /// What was seen after each step.
    pub seen: Vec<Arc<S>>,
}

impl<S: Subject + ?Sized> Subject for &S {
    type State = S::State;

    fn name(&self) -> String {
        (**self).name()
    }
    fn steps(&self) -> Vec<String> {
        (**self).steps()
    }
    fn start(&self) -> Result<Image, Failure> {
        (**self).start()
    }
    fn run(&self, recorder: &Recorder) -> Result<Vec<Arc<Self::State>>, Failure> {
        (**self).run(recorder)
    }
    fn verify(
        &self,
        storage: Arc<dyn Storage>,
        allowed: &[Arc<Self::State>],
        thorough: bool,
    ) -> Result<usize, Failure> {
        (**self).verify(storage, allowed, thorough)
    }
    fn recover(&self, storage: Arc<dyn Storage>) -> Result<(), Failure> {
        (**self).recover(storage)
    }
}
