//! Runs a workload and looks at every state that a crash in it may leave.
//!
//! 1. A state is looked at once for each set of allowed outcomes: seen again, it is looked at again only when what was
//!    found there is no longer allowed.
//! 2. A power cut during recovery allows what was allowed before it.
//! 3. Which states are looked at follows from workload, log and options alone; only a deadline cuts that short.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::image::Image;
pub use crate::options::Options;
use crate::record::{Log, Recorder};
use crate::sites::Watch;
use crate::states::{Choice, Limits, Point, StateId, walk};
use crate::story;
pub use crate::subject::{Failure, Recorded, Subject};

/// A failure, with what makes it again.
#[derive(Debug, Clone)]
pub struct Found {
    /// The state; `None` when the workload failed without a crash.
    pub state: Option<StateId>,
    /// The second crash, in the recovery of `state`.
    pub second: Option<StateId>,
    /// For people.
    pub story: String,
}

/// What an exploration did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Workloads run.
    pub workloads: u64,
    /// Points at which the power went.
    pub points: u64,
    /// States made, equal ones included.
    pub states: u64,
    /// Different states opened and compared, those of `second` included.
    pub distinct: u64,
    /// Recoveries that were cut.
    pub recoveries: u64,
    /// States opened that a second crash left.
    pub second: u64,
    /// What failed.
    pub failures: Vec<Found>,
    /// Whether the deadline came first.
    pub cut_short: bool,
}

impl Report {
    /// Adds what another exploration did.
    pub fn add(&mut self, other: Report) {
        self.workloads += other.workloads;
        self.points += other.points;
        self.states += other.states;
        self.distinct += other.distinct;
        self.recoveries += other.recoveries;
        self.second += other.second;
        self.failures.extend(other.failures);
        self.cut_short |= other.cut_short;
    }
}

/// Runs a workload once, without a crash.
///
/// # Errors
/// What went wrong.
pub fn record<S: Subject>(
    subject: &S,
    watch: Option<Watch>,
) -> Result<Recorded<S::State>, Failure> {
    let start = guarded(|| subject.start())?;
    let recorder = recorder(&start, watch);
    let seen = guarded(|| subject.run(&recorder))?;
    Ok(Recorded {
        log: recorder.log_so_far(),
        seen,
    })
}

fn recorder(image: &Image, watch: Option<Watch>) -> Recorder {
    match watch {
        None => Recorder::over(image),
        Some(watch) => Recorder::watched(image, watch),
    }
}

/// A panic is a failure like any other.
fn guarded<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Failure(format!(
            "panicked: {}",
            text.unwrap_or_else(|| "without a word".into())
        )))
    })
}

/// Looks at the states that crashes in a workload may leave.
pub fn explore<S: Subject>(
    subject: &S,
    options: &Options,
    watch: Option<Watch>,
    deadline: Option<Instant>,
) -> Report {
    let mut report = Report {
        workloads: 1,
        ..Report::default()
    };
    match record(subject, watch.clone()) {
        Ok(recorded) => Explorer {
            subject,
            recorded: &recorded,
            options,
            deadline,
            watch,
            known: HashMap::new(),
            report: &mut report,
        }
        .run(),
        Err(failure) => report.failures.push(Found {
            state: None,
            second: None,
            story: story::without_a_crash(subject, &failure),
        }),
    }
    report
}

struct Explorer<'a, S: Subject> {
    subject: &'a S,
    recorded: &'a Recorded<S::State>,
    options: &'a Options,
    deadline: Option<Instant>,
    /// Also of the recoveries that are cut.
    watch: Option<Watch>,
    /// Which step's outcome each state was found to be, by its hash.
    known: HashMap<u128, usize>,
    report: &'a mut Report,
}

/// A number that follows from the seed and a state's name.
fn lot(seed: u64, id: StateId) -> u64 {
    let mixed = seed ^ (id.point as u64).rotate_left(32) ^ id.choice as u64;
    fastrand::Rng::with_seed(mixed).u64(..)
}

/// The largest share of states a point may have so that all points have at most `most` together.
fn share(counts: &[usize], most: usize) -> usize {
    let sum = |share: usize| counts.iter().map(|c| (*c).min(share)).sum::<usize>();
    let (mut fits, mut not) = (1, counts.iter().max().copied().unwrap_or(0) + 1);
    if most == 0 || sum(not) <= most {
        return not;
    }
    while not - fits > 1 {
        let half = (fits + not) / 2;
        if sum(half) <= most {
            fits = half;
        } else {
            not = half;
        }
    }
    fits
}

/// Visits the chosen states of a log, `most` of them; `visit` says whether to go on.
fn visit_states(
    log: &Log,
    limits: &Limits,
    most: usize,
    mut visit: impl FnMut(&Point<'_>, StateId, &Choice) -> bool,
) {
    let share = if most == 0 {
        usize::MAX
    } else {
        let mut counts = Vec::new();
        walk(log, |point| {
            counts.push(point.choices(limits).len());
            true
        });
        share(&counts, most)
    };
    walk(log, |point| {
        let choices = point.choices(limits);
        let mut chosen: Vec<usize> = (0..choices.len()).collect();
        if chosen.len() > share {
            let of = |choice| {
                lot(
                    limits.seed,
                    StateId {
                        point: point.index,
                        choice,
                    },
                )
            };
            // The first two are all and nothing. Where one alone is looked at, all would lose nothing at any point.
            chosen.sort_by_key(|choice| match *choice {
                0 if share > 1 => 0,
                1 if share > 1 || point.all => 0,
                choice => of(choice).max(1),
            });
            chosen.truncate(share);
        }
        chosen.into_iter().all(|choice| {
            let id = StateId {
                point: point.index,
                choice,
            };
            visit(point, id, &choices[choice])
        })
    });
}

impl<S: Subject> Explorer<'_, S> {
    fn run(&mut self) {
        let options = self.options;
        let mut last_point = usize::MAX;
        let log = &self.recorded.log;
        visit_states(
            log,
            &options.limits,
            options.states_max,
            |point, id, choice| {
                if last_point != point.index {
                    last_point = point.index;
                    self.report.points += 1;
                }
                self.look(point, id, choice);
                self.go_on()
            },
        );
    }

    fn go_on(&mut self) -> bool {
        let late = self.deadline.is_some_and(|end| Instant::now() >= end);
        self.report.cut_short |= late;
        !late && self.report.failures.len() < self.options.failures_max
    }

    /// Opens a state unless it is known to be allowed; the failure, if it is one.
    fn verify(
        &mut self,
        image: &Image,
        durable: usize,
        begun: usize,
        id: StateId,
    ) -> Option<Failure> {
        self.report.states += 1;
        let hash = image.hash();
        if self.known.get(&hash).is_some_and(|step| *step >= durable) {
            return None;
        }
        self.report.distinct += 1;
        let thorough =
            lot(self.options.limits.seed, id).is_multiple_of(self.options.thorough_every.max(1));
        match verify(
            self.subject,
            self.recorded,
            image,
            (durable, begun),
            thorough,
        ) {
            Ok(step) => {
                self.known.insert(hash, step);
                None
            }
            Err(failure) => Some(failure),
        }
    }

    fn look(&mut self, point: &Point<'_>, id: StateId, choice: &Choice) {
        let image = point.image(choice);
        let before = self.report.distinct;
        if let Some(failure) = self.verify(&image, point.durable, point.begun, id) {
            self.of_failure(point, id, choice, None, &failure);
            return;
        }
        let every = self.options.recovery_every;
        let chosen = every > 0 && lot(!self.options.limits.seed, id).is_multiple_of(every);
        if chosen && self.report.distinct > before {
            self.cut_recovery(&image, point, id, choice);
        }
    }

    /// Records a failure with its story.
    fn of_failure(
        &mut self,
        point: &Point<'_>,
        id: StateId,
        choice: &Choice,
        again: Option<&story::Second<'_>>,
        failure: &Failure,
    ) {
        let story = story::of_failure(
            self.subject,
            self.recorded,
            self.options,
            point,
            id,
            choice,
            again,
            failure,
        );
        self.report.failures.push(Found {
            state: Some(id),
            second: again.map(|second| second.id),
            story,
        });
    }

    fn cut_recovery(&mut self, image: &Image, point: &Point<'_>, id: StateId, choice: &Choice) {
        let recorder = recorder(image, self.watch.clone());
        // That recovery succeeds is what `verify` has shown.
        let _ = guarded(|| self.subject.recover(recorder.storage()));
        self.report.recoveries += 1;
        let log = recorder.log_so_far();
        let (limits, most) = (
            second_limits(&self.options.limits),
            self.options.recovery_states_max,
        );
        visit_states(&log, &limits, most, |second, second_id, second_choice| {
            let image = second.image(second_choice);
            self.report.second += 1;
            if let Some(failure) = self.verify(&image, point.durable, point.begun, second_id) {
                let again = story::Second {
                    log: &log,
                    point: second,
                    id: second_id,
                    choice: second_choice,
                };
                self.of_failure(point, id, choice, Some(&again), &failure);
            }
            self.go_on()
        });
    }
}

/// Fewer states are looked at of a recovery, because there are so many recoveries.
fn second_limits(limits: &Limits) -> Limits {
    Limits {
        bits: limits.bits.min(4),
        samples: limits.samples.min(4),
        tears: limits.tears.min(3),
        seed: limits.seed,
    }
}

/// Which step's outcome a state is.
fn verify<S: Subject>(
    subject: &S,
    recorded: &Recorded<S::State>,
    image: &Image,
    (durable, begun): (usize, usize),
    thorough: bool,
) -> Result<usize, Failure> {
    let allowed = &recorded.seen[durable..=begun.max(durable)];
    let storage = Recorder::unlogged(image).storage();
    let found = guarded(|| subject.verify(storage, allowed, thorough))?;
    Ok(durable + found)
}

/// Makes one state again and looks at it thoroughly: its story when it fails, `None` when it holds.
///
/// # Errors
/// The workload fails without a crash, or has no such state.
pub fn replay<S: Subject>(
    subject: &S,
    options: &Options,
    id: StateId,
    second: Option<StateId>,
    watch: Option<Watch>,
) -> Result<Option<String>, Failure> {
    let recorded = record(subject, watch.clone())?;
    let mut outcome = Err(Failure(format!("the workload has no state {id}")));
    at(&recorded.log, &options.limits, id, |point, choice| {
        let image = point.image(choice);
        let allowed = (point.durable, point.begun);
        let Some(second_id) = second else {
            let looked = verify(subject, &recorded, &image, allowed, true);
            outcome = Ok(looked.err().map(|failure| {
                story::of_failure(
                    subject, &recorded, options, point, id, choice, None, &failure,
                )
            }));
            return;
        };
        let recorder = recorder(&image, watch.clone());
        let _ = guarded(|| subject.recover(recorder.storage()));
        let log = recorder.log_so_far();
        outcome = Err(Failure(format!(
            "the recovery of {id} has no state {second_id}"
        )));
        at(
            &log,
            &second_limits(&options.limits),
            second_id,
            |second, second_choice| {
                let image = second.image(second_choice);
                let looked = verify(subject, &recorded, &image, allowed, true);
                let again = story::Second {
                    log: &log,
                    point: second,
                    id: second_id,
                    choice: second_choice,
                };
                outcome = Ok(looked.err().map(|failure| {
                    story::of_failure(
                        subject,
                        &recorded,
                        options,
                        point,
                        id,
                        choice,
                        Some(&again),
                        &failure,
                    )
                }));
            },
        );
    });
    outcome
}

/// Visits one state of a log, if it is there.
fn at(log: &Log, limits: &Limits, id: StateId, mut visit: impl FnMut(&Point<'_>, &Choice)) {
    walk(log, |point| {
        if point.index == id.point
            && let Some(choice) = point.choices(limits).get(id.choice)
        {
            visit(point, choice);
        }
        point.index < id.point
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_small_points_whole() {
        assert_eq!(share(&[1, 2, 100], 0), 101);
        assert_eq!(share(&[1, 2, 100], 1000), 101);
        assert_eq!(share(&[1, 2, 100], 23), 20);
        assert_eq!(share(&[5, 5], 2), 1);
    }
}
