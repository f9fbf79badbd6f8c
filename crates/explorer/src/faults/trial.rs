//! One workload with one fault, and what is demanded of the room then.
//!
//! 1. A call returns an error or does what it does without the fault; what a user sees after it is the state before or
//!    the one after, and, where a call that changes data failed half way, only its file may be between the two.
//! 2. An error names the failure: never that a file is not there, or that the key is wrong.
//! 3. What a sync acknowledged is there afterwards, of one moment; of several only after a call that found no space, also when the power goes and pages of a failed sync were lost.
//! 4. A step that failed once for a fault that came once succeeds when it is tried again, unless the room takes no more
//!    changes; then it takes none, whatever is asked.
//! 5. No panic, and no wrong data: what is read is right or an error.
//! 6. Opened again on storage that works the room is whole.
//! 7. A storage that fails from some operation on is a process that was killed there: what the next one shows and closes is
//!    there after a power cut.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use catalog::CatalogError;
use room::Error;
use storage::Storage;
use storage::testing::{Fault, FaultyStorage, Times};

use super::Kind;
use super::reference::Reference;
use super::remains::remains;
use crate::explore::Failure;
use crate::image::Image;
use crate::record::Recorder;
use crate::sites::Watch;
use crate::snapshot::Snapshot;
use crate::verify::{How, acknowledge, is_blend, verify};
use crate::workload::{Session, Step, Workload, is_refusal};

/// One trial in so many ends with a room that is also used.
const THOROUGH_EVERY: u64 = 8;

/// How a trial ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The operation never came.
    Missed,
    /// No call failed.
    Absorbed,
    /// A call failed, and the room went on.
    Refused,
    /// The room took no more changes.
    Closed,
    /// Opening the room failed.
    NotOpened,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missed => "missed",
            Self::Absorbed => "no call failed",
            Self::Refused => "a call failed",
            Self::Closed => "closed to changes",
            Self::NotOpened => "failed to open",
        })
    }
}

type Faulty = FaultyStorage<Arc<dyn Storage>>;

/// A room under a trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) session: Session,
    seen: Snapshot,
}

impl Trial {
    /// Opens the room and looks at it.
    pub(super) fn open(faulty: &Faulty, workload: &Workload) -> room::Result<Self> {
        let mut session = Session::open(Arc::new(faulty.clone()))?;
        if workload.steps.contains(&Step::Backup) {
            session.back_up_to(Recorder::unlogged(&Image::new()).storage());
        }
        Ok(Self {
            session,
            seen: Snapshot::default(),
        })
    }

    /// What a user sees, without faults and times. While the room is closed, what was seen last.
    pub(super) fn see(&mut self, faulty: &Faulty) -> room::Result<Snapshot> {
        if let Some(seen) = faulty.in_peace(|| self.session.snapshot())? {
            self.seen = seen.timeless();
        }
        Ok(self.seen.clone())
    }

    /// Closes the room, opens it, looks at it, and closes it again.
    pub(super) fn last_look(&mut self, faulty: &Faulty) -> room::Result<Snapshot> {
        self.session.step(0, &Step::Close)?;
        let mut session = Session::open(Arc::new(faulty.clone()))?;
        let seen = session.snapshot()?.map(|s| s.timeless());
        session.step(0, &Step::Close)?;
        Ok(seen.unwrap_or_default())
    }
}

/// Runs the workload with the fault at the `nth` operation on the storage, from 1; `watch` sees the syncs.
///
/// # Errors
/// What is wrong.
pub fn trial(
    workload: &Workload,
    reference: &Reference,
    kind: Kind,
    nth: u64,
    watch: Option<Watch>,
) -> Result<Outcome, Failure> {
    catch_unwind(AssertUnwindSafe(|| {
        Course::new(workload, reference, kind, nth, watch).run()
    }))
    .unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure(format!("panicked: {text}")))
    })
}

/// A trial under way.
struct Course<'a> {
    workload: &'a Workload,
    reference: &'a Reference,
    kind: Kind,
    nth: u64,
    recorder: Recorder,
    faulty: Faulty,
    /// What a user saw, in order; what the room may hold at the end.
    seen: Vec<Arc<Snapshot>>,
    /// The first of `seen` that may still be found.
    acknowledged: usize,
    /// The first of `seen` whose keys may still be found: a step that fails to change keys leaves it open whether it did,
    /// until another one succeeds.
    keys_from: usize,
    /// Whether a call found no space: then a commit may hold some files without their newest bytes.
    blended: bool,
    /// Whether everything went as without faults so far, but for errors.
    on_path: bool,
    /// Whether the room could not be read at some time since: what it holds in memory is not known.
    unknown: bool,
    outcome: Outcome,
    /// Whether the room has said that it takes no more changes.
    poisoned: bool,
    /// What happened, for people.
    notes: Vec<String>,
}

impl<'a> Course<'a> {
    fn new(
        workload: &'a Workload,
        reference: &'a Reference,
        kind: Kind,
        nth: u64,
        watch: Option<Watch>,
    ) -> Self {
        let recorder = match watch {
            None => Recorder::over(&reference.start),
            Some(watch) => Recorder::watched(&reference.start, watch),
        };
        let faulty = FaultyStorage::new(recorder.storage());
        let lossy = recorder.clone();
        faulty.on_failed_sync(move |path| {
            // A file that lost its name meanwhile is nobody's any more.
            let _ = lossy.drop_unsynced(path);
        });
        if kind.fault == Fault::Stale {
            faulty.remember_overwritten();
        }
        faulty.refuse_any(nth, kind.fault, kind.times);
        Self {
            workload,
            reference,
            kind,
            nth,
            recorder,
            faulty,
            seen: vec![reference.snapshots[0].clone()],
            acknowledged: 0,
            keys_from: 0,
            blended: false,
            on_path: true,
            unknown: false,
            outcome: Outcome::Absorbed,
            poisoned: false,
            notes: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Outcome, Failure> {
        let went = self.go();
        let befell = self.faulty.first_refused().unwrap_or_default();
        let failed = |failure: Failure, notes: &[String]| {
            let notes = notes.join("\n  ");
            Failure(format!("{failure}\n  the fault befell {befell}\n  {notes}"))
        };
        went.map_err(|e| failed(e, &self.notes))?;
        if self.faulty.refused() == 0 {
            return Ok(Outcome::Missed);
        }
        self.look_at_remains().map_err(|e| failed(e, &self.notes))?;
        Ok(self.outcome)
    }

    fn go(&mut self) -> Result<(), Failure> {
        let mut trial = match Trial::open(&self.faulty, self.workload) {
            Ok(trial) => trial,
            Err(e) => {
                self.outcome = Outcome::NotOpened;
                return self.fair("open", &e);
            }
        };
        // As without faults, so that the same operations follow.
        trial
            .see(&self.faulty)
            .map_err(|e| Failure(format!("just opened, the room cannot be read: {e}")))?;
        for (number, step) in (1..).zip(&self.workload.steps) {
            let done = trial.session.step(number, step);
            let failed = done.is_err();
            self.judge(&mut trial, number, step, done)?;
            let closes = matches!(step, Step::Close);
            if trial.session.room().is_none() && !closes {
                self.notes.push("the room is closed".into());
                return Ok(());
            }
            if failed
                && self.on_path
                && !self.reference.refused[number - 1]
                && *self.reference.snapshots[number] != trial.seen
            {
                if self.kind.times == Times::Once && self.outcome != Outcome::Closed {
                    self.try_again(&mut trial, number, step)?;
                } else {
                    self.on_path = false;
                }
            }
        }
        self.look_again(&mut trial)
    }

    /// What a step returned, and what a user sees after it.
    fn judge(
        &mut self,
        trial: &mut Trial,
        number: usize,
        step: &Step,
        done: room::Result<()>,
    ) -> Result<(), Failure> {
        let before = trial.seen.clone();
        let expected = self.reference.snapshots[number].clone();
        let refused = self.reference.refused[number - 1];
        match &done {
            Ok(()) => self.notes.push(format!("{number} {step}: done")),
            Err(e) if is_refusal(e) && (refused || !self.on_path) => {
                self.notes.push(format!("{number} {step}: {e}"));
            }
            Err(e) => self.fair(&format!("{number} {step}"), e)?,
        }
        let seen = match trial.see(&self.faulty) {
            Ok(seen) => seen,
            Err(e) if done.is_ok() && self.on_path => {
                return Err(Failure(format!(
                    "after a step that succeeded the room cannot be read: {e}"
                )));
            }
            Err(e) => {
                self.notes.push(format!("the room cannot be read: {e}"));
                self.on_path = false;
                self.unknown = true;
                if let Some(keys) = keys_after(step, &before.keys, &expected.keys) {
                    let tree = before.tree.clone();
                    self.seen.push(Arc::new(Snapshot { tree, keys }));
                }
                self.seen.push(expected);
                return Ok(());
            }
        };
        self.nothing_damaged(&seen)?;
        if self.on_path && seen != *expected {
            if done.is_ok() {
                return Err(Failure(format!(
                    "step {number} ({step}) succeeded, but shows:\n  {}",
                    expected.differences(&seen).join("\n  ")
                )));
            }
            if seen != before {
                between(step, &before, &seen)?;
                self.notes.push("the step was done in part".into());
                self.on_path = false;
            }
        }
        // The next rekeying goes on with this one, and keeps what was added since; without the grant later steps have nowhere to write.
        if done.is_err() && matches!(step, Step::Rekey(_) | Step::Grant(_)) {
            self.on_path = false;
        }
        if done.is_err()
            && let Some(keys) = keys_after(step, &seen.keys, &expected.keys)
        {
            // The header may have been written before the failure, wholly or not at all.
            let tree = seen.tree.clone();
            self.seen.push(Arc::new(Snapshot { tree, keys }));
        }
        let last = &self.seen[self.acknowledged];
        let something_new = !last.agrees_with(&seen) || last.keys != seen.keys;
        self.seen.push(Arc::new(seen));
        if done.is_ok() && step.is_durable() {
            // Once everything is acknowledged, a sync that does nothing loses nothing.
            if self.poisoned && !self.unknown && something_new {
                return Err(Failure(format!(
                    "step {number} ({step}) succeeded in a room that takes no more changes"
                )));
            }
            if !self.unknown {
                self.acknowledged = self.seen.len() - 1;
                if keys_after(step, &before.keys, &expected.keys).is_some() {
                    self.keys_from = self.acknowledged;
                }
            }
        }
        Ok(())
    }

    fn try_again(&mut self, trial: &mut Trial, number: usize, step: &Step) -> Result<(), Failure> {
        let done = trial.session.step(number, step);
        self.notes.push("tried again:".into());
        let failed = done.is_err();
        self.judge(trial, number, step, done)?;
        if failed {
            self.on_path = false;
            if self.outcome != Outcome::Closed {
                return Err(Failure(format!(
                    "step {number} ({step}) fails a second time, though the storage works"
                )));
            }
        }
        Ok(())
    }

    /// Opens the room once more, with the fault where it comes only then, and reads everything.
    fn look_again(&mut self, trial: &mut Trial) -> Result<(), Failure> {
        match trial.last_look(&self.faulty) {
            Ok(found) => {
                // An error is an answer: what is damaged says so.
                self.nothing_damaged(&found)?;
                let allowed = self.allowed();
                let whole = allowed.iter().any(|s| s.agrees_with(&found))
                    && allowed.iter().any(|s| s.keys == found.keys);
                if !(whole || self.blended && is_blend(&allowed, &found)) {
                    let nearest = self.seen.last().map(|s| s.differences(&found));
                    return Err(Failure(format!(
                        "opened again the room shows what it must not, keys {:?}:\n  {}",
                        found.keys,
                        nearest.unwrap_or_default().join("\n  ")
                    )));
                }
                Ok(())
            }
            Err(e) => self.fair("at the end", &e),
        }
    }

    /// A storage that refuses damages nothing, whatever else is done in part.
    fn nothing_damaged(&self, seen: &Snapshot) -> Result<(), Failure> {
        let is_damaged = |snapshot: &Snapshot| {
            let mut files = snapshot.tree.iter();
            files.find_map(|(path, node)| node.content.is_none().then(|| path.clone()))
        };
        match is_damaged(seen) {
            Some(path) if self.refuses() && is_damaged(&self.seen[0]).is_none() => Err(Failure(
                format!("a storage that only refuses left /{path} damaged"),
            )),
            _ => Ok(()),
        }
    }

    /// Whether the fault says nothing about what the storage holds.
    fn refuses(&self) -> bool {
        matches!(
            self.kind.fault,
            Fault::Io | Fault::NoSpace | Fault::Quota | Fault::Torn
        )
    }

    /// What may be found at the end.
    fn allowed(&self) -> Vec<Arc<Snapshot>> {
        let mut allowed = self.seen[self.acknowledged..].to_vec();
        if let Some(last) = allowed.last().cloned() {
            let from = self.keys_from.min(self.acknowledged);
            allowed.extend(self.seen[from..self.acknowledged].iter().map(|seen| {
                Arc::new(Snapshot {
                    tree: last.tree.clone(),
                    keys: seen.keys.clone(),
                })
            }));
        }
        allowed
    }

    /// Notes an error; a failure where it says something else than that the storage failed.
    fn fair(&mut self, what: &str, e: &Error) -> Result<(), Failure> {
        self.notes.push(format!("{what}: {e}"));
        self.blended |= matches!(e, Error::NoSpace);
        self.poisoned |= matches!(e, Error::Poisoned);
        let catalog = CatalogError::of(e);
        // A catalog that met damage may show nothing more until it is opened again; a copy that met it goes alone.
        let damaged = matches!(catalog, Some(CatalogError::Damaged(_)));
        let this = match damaged || matches!(e, Error::Poisoned) {
            true => Outcome::Closed,
            false => Outcome::Refused,
        };
        self.outcome = self.outcome.max(this);
        let misleading = is_refusal(e)
            || matches!(
                e,
                Error::NotARoom(_)
                    | Error::RolledBack { .. }
                    | Error::OldHeader { .. }
                    | Error::UnusableMemory { .. }
                    | Error::Unsupported(_)
                    | Error::ReadOnly
            );
        // A storage that fails says nothing about what it holds.
        let refused = self.refuses();
        let blames = damaged
            || matches!(catalog, Some(CatalogError::NotThisRoom))
            || matches!(
                e,
                Error::Damaged(_) | Error::Corrupt { .. } | Error::HeaderDamaged(_)
            );
        let looks_for_damage = what.ends_with("repair");
        if misleading || (refused && blames && !looks_for_damage) {
            return Err(Failure(format!(
                "{what}: a failure of the storage is taken for something else: {e}"
            )));
        }
        Ok(())
    }

    /// The room as the power cut leaves it with nothing but what was synced, and as the end of the process leaves it.
    fn look_at_remains(&self) -> Result<(), Failure> {
        self.faulty.heal();
        let allowed = &self.allowed();
        let how = How {
            // Using the room takes longer than all the rest.
            thorough: self.nth.is_multiple_of(THOROUGH_EVERY),
            accept_old_header: self.workload.restores_header(),
            timeless: true,
            blended: self.blended,
        };
        let cut = remains(&self.recorder.log_so_far());
        let ended = self.recorder.image();
        let same = cut.hash() == ended.hash();
        if same && ended.hash() == self.reference.start.hash() && self.acknowledged == 0 {
            return Ok(());
        }
        verify(Recorder::unlogged(&cut).storage(), allowed, how)
            .map_err(|e| Failure(format!("after the power went: {e}")))?;
        if !same {
            verify(Recorder::unlogged(&ended).storage(), allowed, how)
                .map_err(|e| Failure(format!("after the process ended: {e}")))?;
        }
        if self.kind.fault == Fault::Io && self.kind.times == Times::Always {
            self.next_process(how)
                .map_err(|e| Failure(format!("after another process and a power cut: {e}")))?;
        }
        Ok(())
    }

    /// What the next process shows stays, though the first one left much that no sync covers.
    fn next_process(&self, how: How) -> Result<(), Failure> {
        let shown = acknowledge(&self.recorder.storage(), how.accept_old_header)
            .map_err(|e| Failure(format!("the other process: {e}")))?;
        let cut = remains(&self.recorder.log_so_far());
        verify(
            Recorder::unlogged(&cut).storage(),
            &[Arc::new(shown)],
            How {
                thorough: false,
                ..how
            },
        )
        .map(drop)
    }
}

/// The keys that open the room when a step that changes them succeeds. `restored`: after a header was put back.
fn keys_after(step: &Step, keys: &[bool], restored: &[bool]) -> Option<Vec<bool>> {
    let mut after = keys.to_vec();
    let mut set = |key: u8, opens: bool| {
        if let Some(place) = after.get_mut(usize::from(key)) {
            *place = opens;
        }
    };
    match step {
        Step::AddSlot(key) => set(*key, true),
        Step::RemoveSlot(key) => set(*key, false),
        Step::ChangeSlot(key, to) => {
            set(*key, false);
            set(*to, true);
        }
        Step::Rekey(key) => {
            after.fill(false);
            after[usize::from(*key)] = true;
        }
        Step::RestoreHeader => return Some(restored.to_vec()),
        _ => return None,
    }
    Some(after)
}

/// Refuses a state between two that differs in more than the files which the step changes.
fn between(step: &Step, before: &Snapshot, seen: &Snapshot) -> Result<(), Failure> {
    let targets = step.targets();
    let numbers: Vec<_> = targets
        .iter()
        .filter_map(|path| before.tree.get(*path).map(|node| node.no))
        .collect();
    let differences: Vec<_> = before
        .tree
        .iter()
        .filter(|(path, node)| seen.tree.get(*path) != Some(*node) && !numbers.contains(&node.no))
        .map(|(path, _)| path.clone())
        .chain(
            seen.tree
                .keys()
                .filter(|path| {
                    !before.tree.contains_key(*path) && !targets.contains(&path.as_str())
                })
                .cloned(),
        )
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure(format!(
        "a step that failed ({step}) left a state that is neither the one before nor the one after:\n  {}",
        before.differences(seen).join("\n  ")
    )))
}
