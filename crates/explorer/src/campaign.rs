//! Many workloads on a fixed number of threads, until they are all done or a bound is reached.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::explore::{Options, Report, Subject, explore};

/// When to stop, and how many at once.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Threads.
    pub threads: usize,
    /// When no more is begun or gone on with.
    pub deadline: Option<Instant>,
    /// Different states after which no more workloads are begun.
    pub states_max: u64,
    /// Failures after which no more workloads are begun.
    pub failures_max: usize,
}

/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Explores `subject(0)`, `subject(1)`, … until there is none. `report_progress` is called with the sum from time to time, and at
/// once after a failure; the second value is the number of new failures.
pub fn run<S: Subject>(
    subject: impl Fn(usize) -> Option<S> + Sync,
    options: &Options,
    bounds: &Bounds,
    report_progress: impl Fn(&Report, usize) + Sync,
) -> Report {
    let next = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let sum = Mutex::new((Report::default(), Instant::now()));
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(subject) = subject(number) else {
                break;
            };
            let report = explore(&subject, options, None, bounds.deadline);
            let new = report.failures.len();
            let mut sum = sum.lock();
            sum.0.add(report);
            if new > 0 || sum.1.elapsed() >= PROGRESS_EVERY {
                sum.1 = Instant::now();
                report_progress(&sum.0, new);
            }
            let reached = sum.0.cut_short
                || sum.0.distinct >= bounds.states_max
                || sum.0.failures.len() >= bounds.failures_max;
            if reached {
                over.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..bounds.threads.max(1) {
            scope.spawn(work);
        }
    });
    let (report, _) = sum.into_inner();
    report
}
