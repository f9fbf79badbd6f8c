//! Which capability groups are valid, which capabilities are revoked, and which requests are running.
//!
//! 1. A request runs between [`Groups::enter`] and the end of its [`Running`]; it enters only while its group is valid and
//!    its capability is not revoked, in one step.
//! 2. A revocation sets its bits first and then waits until nothing that they forbid is running. What enters after that
//!    is refused.
//! 3. At first no group is valid.
//! 4. Of several metadata servers the latest counts: groups are set, and space is freed, by no [`Writer`] before it. Where a later one
//!    sets groups, nothing of an earlier one is running when that returns.
//! 5. Groups are set, and space is freed, by a request only that names how often that was done before it, and space by one at a time. So
//!    nothing that somebody held back, or that was repeated meanwhile, acts when a later change was answered.
//! 6. Memory: 64 KiB of bits for a group in which something was revoked, [`GROUPS_MAX`] groups at most; an entry for each
//!    request that runs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{CAPABILITIES_PER_GROUP, CapabilityId, GroupId, Reason, Writer};

/// Words of 64 bits in a group's revocation bits.
const WORDS: usize = CAPABILITIES_PER_GROUP as usize / 64;
/// Under which the metadata server's own work counts as running. No capability is of this group: numbers begin at 1.
const OWN_WORK: (GroupId, CapabilityId) = (GroupId(0), CapabilityId(0));

#[derive(Debug, Default)]
pub(crate) struct Groups {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    groups: HashMap<GroupId, Option<Box<[u64]>>>,
    running: HashMap<(GroupId, CapabilityId), u32>,
    waiting: u32,
    /// The latest one that set the groups.
    writer: Writer,
    /// How often groups were set and space was freed; begins again after 2^32, far more than two epochs allow.
    sequence: u32,
}

impl State {
    fn allowed(&self, group: GroupId, id: CapabilityId) -> Result<(), Reason> {
        let bits = self.groups.get(&group).ok_or(Reason::UnknownGroup)?;
        if id.0 >= CAPABILITIES_PER_GROUP {
            return Err(Reason::Malformed);
        }
        let word = bits.as_ref().map_or(0, |bits| bits[id.0 as usize / 64]);
        if word >> (id.0 % 64) & 1 == 1 {
            return Err(Reason::Revoked);
        }
        Ok(())
    }

    fn in_sequence(&self, sequence: u32) -> Result<(), Reason> {
        if sequence == self.sequence {
            Ok(())
        } else {
            Err(Reason::OutOfSequence)
        }
    }
}

/// A request that runs; nothing that forbids it returns before this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'g> {
    groups: &'g Groups,
    which: (GroupId, CapabilityId),
}

impl Groups {
    /// Whether a capability is of a valid group and not revoked, now.
    pub(crate) fn allowed(&self, group: GroupId, id: CapabilityId) -> Result<(), Reason> {
        self.state.lock().allowed(group, id)
    }

    /// Begins a request.
    pub(crate) fn enter(&self, group: GroupId, id: CapabilityId) -> Result<Running<'_>, Reason> {
        let mut state = self.state.lock();
        state.allowed(group, id)?;
        Ok(self.begin(&mut state, (group, id)))
    }

    fn begin(&self, state: &mut State, which: (GroupId, CapabilityId)) -> Running<'_> {
        *state.running.entry(which).or_insert(0) += 1;
        Running {
            groups: self,
            which,
        }
    }

    /// Begins work of the metadata server itself, when what it began before has ended; `Busy` where that takes longer than `timeout`.
    /// `Overtaken` where a later one has set the groups, `UnknownGroup` where this one has not set them yet, `OutOfSequence` where the
    /// disk's sequence is another.
    pub(crate) fn enter_own(
        &self,
        writer: Writer,
        sequence: u32,
        timeout: Duration,
    ) -> Result<Running<'_>, Reason> {
        let allowed = |state: &State| match writer.cmp(&state.writer) {
            Ordering::Less => Err(Reason::Overtaken),
            Ordering::Greater => Err(Reason::UnknownGroup),
            Ordering::Equal => state.in_sequence(sequence),
        };
        let mut state = self.state.lock();
        self.drain(&mut state, timeout, |state| {
            allowed(state).is_err() || !state.running.contains_key(&OWN_WORK)
        })?;
        allowed(&state)?;
        state.sequence = state.sequence.wrapping_add(1);
        Ok(self.begin(&mut state, OWN_WORK))
    }

    /// How often groups were set and space was freed.
    pub(crate) fn sequence(&self) -> u32 {
        self.state.lock().sequence
    }

    /// The valid groups, in order.
    pub(crate) fn valid(&self) -> Vec<GroupId> {
        let mut groups: Vec<_> = self.state.lock().groups.keys().copied().collect();
        groups.sort_unstable();
        groups
    }

    /// From now on exactly these are valid. Waits until nothing of the others is running; `Busy` where that takes longer than
    /// `timeout`: they are invalid all the same. `Overtaken`, and no change, where a later writer set them before; `OutOfSequence`
    /// likewise where the disk's sequence is another.
    pub(crate) fn set(
        &self,
        writer: Writer,
        sequence: u32,
        valid: &[GroupId],
        timeout: Duration,
    ) -> Result<(), Reason> {
        let mut state = self.state.lock();
        if writer < state.writer {
            return Err(Reason::Overtaken);
        }
        state.in_sequence(sequence)?;
        state.sequence = state.sequence.wrapping_add(1);
        state.writer = writer;
        let mut before = std::mem::take(&mut state.groups);
        for group in valid {
            // One that is named twice keeps its bits.
            let bits = || before.remove(group).flatten();
            state.groups.entry(*group).or_insert_with(bits);
        }
        self.drain(&mut state, timeout, |state| {
            state
                .running
                .keys()
                .all(|(group, _)| state.groups.contains_key(group))
        })
    }

    /// Revokes capabilities of a group; those of one that is not valid are revoked already. Waits as [`Self::set`] does.
    /// `Malformed` where a number is too high.
    pub(crate) fn revoke(
        &self,
        group: GroupId,
        ids: &[CapabilityId],
        timeout: Duration,
    ) -> Result<(), Reason> {
        if ids.iter().any(|id| id.0 >= CAPABILITIES_PER_GROUP) {
            return Err(Reason::Malformed);
        }
        let mut state = self.state.lock();
        if let Some(bits) = state.groups.get_mut(&group) {
            let bits = bits.get_or_insert_with(|| vec![0; WORDS].into());
            for id in ids {
                bits[id.0 as usize / 64] |= 1 << (id.0 % 64);
            }
        }
        self.drain(&mut state, timeout, |state| {
            ids.iter()
                .all(|id| !state.running.contains_key(&(group, *id)))
        })
    }

    /// Waits until `drained`.
    fn drain(
        &self,
        state: &mut MutexGuard<'_, State>,
        timeout: Duration,
        drained: impl Fn(&State) -> bool,
    ) -> Result<(), Reason> {
        let deadline = Instant::now() + timeout;
        state.waiting += 1;
        let mut result = Ok(());
        while !drained(state) {
            if self.ended.wait_until(state, deadline).timed_out() && !drained(state) {
                result = Err(Reason::Busy);
                break;
            }
        }
        state.waiting -= 1;
        result
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.groups.state.lock();
        let left = state.running.get_mut(&self.which).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            state.running.remove(&self.which);
            if state.waiting > 0 {
                self.groups.ended.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const ONE: GroupId = GroupId(1);
    const NOBODY: Writer = Writer(0);

    fn with(groups: &[u64]) -> Groups {
        let all = Groups::default();
        let groups: Vec<_> = groups.iter().copied().map(GroupId).collect();
        all.set(NOBODY, all.sequence(), &groups, LONG).unwrap();
        all
    }

    #[test]
    fn at_first_nothing_is_valid() {
        let groups = Groups::default();
        let refused = groups.enter(ONE, CapabilityId(0)).unwrap_err();
        assert_eq!(refused, Reason::UnknownGroup);
    }

    #[test]
    fn one_capability_is_revoked_and_its_neighbours_are_not() {
        let groups = with(&[1, 2]);
        groups.revoke(ONE, &[CapabilityId(64)], LONG).unwrap();
        for id in [63, 65, 0, 128] {
            groups.enter(ONE, CapabilityId(id)).unwrap();
        }
        assert_eq!(groups.allowed(ONE, CapabilityId(64)), Err(Reason::Revoked));
        groups.allowed(GroupId(2), CapabilityId(64)).unwrap();
        let beyond = CapabilityId(CAPABILITIES_PER_GROUP);
        assert_eq!(groups.allowed(ONE, beyond), Err(Reason::Malformed));
        assert_eq!(groups.revoke(ONE, &[beyond], LONG), Err(Reason::Malformed));
    }

    #[test]
    fn a_group_that_stays_keeps_its_bits_and_one_that_comes_back_does_not() {
        let groups = with(&[1]);
        groups.revoke(ONE, &[CapabilityId(5)], LONG).unwrap();
        groups
            .set(NOBODY, groups.sequence(), &[ONE, GroupId(2)], LONG)
            .unwrap();
        assert_eq!(groups.allowed(ONE, CapabilityId(5)), Err(Reason::Revoked));
        groups
            .set(NOBODY, groups.sequence(), &[ONE, ONE], LONG)
            .unwrap();
        assert_eq!(groups.allowed(ONE, CapabilityId(5)), Err(Reason::Revoked));
        groups.set(NOBODY, groups.sequence(), &[], LONG).unwrap();
        assert_eq!(
            groups.allowed(ONE, CapabilityId(5)),
            Err(Reason::UnknownGroup)
        );
        groups.set(NOBODY, groups.sequence(), &[ONE], LONG).unwrap();
        groups.allowed(ONE, CapabilityId(5)).unwrap();
    }

    #[test]
    fn a_revocation_waits_for_what_runs_under_it_and_for_nothing_else() {
        let groups = with(&[1]);
        let other = groups.enter(ONE, CapabilityId(1)).unwrap();
        groups.revoke(ONE, &[CapabilityId(2)], LONG).unwrap();
        let short = Duration::from_millis(20);
        assert_eq!(
            groups.revoke(ONE, &[CapabilityId(1)], short),
            Err(Reason::Busy)
        );
        // The bit is set although the wait timed out.
        assert_eq!(groups.allowed(ONE, CapabilityId(1)), Err(Reason::Revoked));
        assert_eq!(
            groups.set(NOBODY, groups.sequence(), &[], short),
            Err(Reason::Busy)
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| groups.set(NOBODY, groups.sequence(), &[], LONG));
            drop(other);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn an_overtaken_metadata_server_changes_nothing_and_has_nothing_running() {
        let groups = Groups::default();
        groups
            .set(Writer(3), groups.sequence(), &[ONE], LONG)
            .unwrap();
        // It has a number that nobody set groups by.
        assert_eq!(
            groups
                .enter_own(Writer(5), groups.sequence(), LONG)
                .unwrap_err(),
            Reason::UnknownGroup
        );
        let freeing = groups
            .enter_own(Writer(3), groups.sequence(), LONG)
            .unwrap();
        let short = Duration::from_millis(20);
        assert_eq!(
            groups.set(Writer(5), groups.sequence(), &[GroupId(2)], short),
            Err(Reason::Busy)
        );
        drop(freeing);
        groups
            .set(Writer(5), groups.sequence(), &[GroupId(2)], LONG)
            .unwrap();
        assert_eq!(
            groups.set(Writer(3), groups.sequence(), &[ONE], LONG),
            Err(Reason::Overtaken)
        );
        assert_eq!(
            groups.set(NOBODY, groups.sequence(), &[], LONG),
            Err(Reason::Overtaken)
        );
        assert_eq!(
            groups
                .enter_own(Writer(3), groups.sequence(), LONG)
                .unwrap_err(),
            Reason::Overtaken
        );
        assert_eq!(groups.valid(), [GroupId(2)]);
        groups
            .enter_own(Writer(5), groups.sequence(), LONG)
            .unwrap();
    }

    /// Held back or repeated: what was signed before the last change does nothing, and what was signed after it waits for it.
    #[test]
    fn of_what_was_signed_for_one_sequence_one_acts_and_space_is_freed_by_one_at_a_time() {
        let groups = with(&[1]);
        let at = groups.sequence();
        let first = groups.enter_own(NOBODY, at, LONG).unwrap();
        // Refused at once, although the other one still runs.
        let repeated = groups.enter_own(NOBODY, at, LONG).unwrap_err();
        assert_eq!(repeated, Reason::OutOfSequence);
        assert_eq!(
            groups.set(NOBODY, at, &[], LONG),
            Err(Reason::OutOfSequence)
        );
        assert_eq!(groups.valid(), [ONE]);
        let short = Duration::from_millis(20);
        let busy = groups.enter_own(NOBODY, at + 1, short).unwrap_err();
        assert_eq!(busy, Reason::Busy);
        // Two that wait together: one is in time.
        std::thread::scope(|scope| {
            let both = [0, 1].map(|_| scope.spawn(|| groups.enter_own(NOBODY, at + 1, LONG)));
            drop(first);
            let both = both.map(|waits| waits.join().unwrap().map(drop));
            assert!(both.contains(&Ok(())));
            assert!(both.contains(&Err(Reason::OutOfSequence)));
        });
        groups.set(NOBODY, at + 2, &[], LONG).unwrap();
        // One for a sequence that has not come could be kept until it comes.
        let early = groups.set(NOBODY, at + 4, &[ONE], LONG);
        assert_eq!(early, Err(Reason::OutOfSequence));
    }
}
