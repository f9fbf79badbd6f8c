//! Workloads without the syncs of one site: whether anything shows that the sync is needed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::campaign::Bounds;
use crate::explore::{Options, Report, Subject, explore};
use crate::sites::{Site, Watch};
use crate::states::Limits;

/// The sites that workloads and the recoveries from their crashes pass, each with the indices of the workloads that
/// pass it, those of few steps first.
pub fn users<S: Subject>(subjects: &[S], threads: usize) -> BTreeMap<Site, Vec<usize>> {
    let next = AtomicUsize::new(0);
    let users = Mutex::new(BTreeMap::<Site, Vec<usize>>::new());
    let few = Options {
        limits: Limits {
            bits: 2,
            samples: 1,
            tears: 0,
            seed: 1,
        },
        states_max: 6,
        recovery_every: 3,
        recovery_states_max: 1,
        ..Options::default()
    };
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(subject) = subjects.get(index) else {
                break;
            };
            let watch = Watch::new();
            explore(subject, &few, Some(watch.clone()), None);
            let mut users = users.lock();
            for (site, _) in watch.seen() {
                users.entry(site).or_default().push(index);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut users = users.into_inner();
    for indices in users.values_mut() {
        indices.sort_by_key(|index| (subjects[*index].steps().len(), *index));
    }
    users
}

/// Explores workloads without the syncs of a site until one fails.
pub fn without<S: Subject>(
    site: &Site,
    subjects: &[&S],
    options: &Options,
    bounds: &Bounds,
) -> Report {
    let mut sum = Report::default();
    // Every recovery may be the one that misses the sync.
    let options = Options {
        recovery_every: options.recovery_every.min(4),
        ..options.clone()
    };
    for subject in subjects {
        let watch = Watch::ignoring(site.clone());
        sum.add(explore(*subject, &options, Some(watch), bounds.deadline));
        if !sum.failures.is_empty() || sum.cut_short || sum.distinct >= bounds.states_max {
            break;
        }
    }
    sum
}
