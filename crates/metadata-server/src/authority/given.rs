//! The capabilities of one group that clients have, found by file, session, loan and place.
//!
//! 1. What is in one index is in all of them.
//! 2. There are at most as many as a group has revocation bits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use metadata_proto::rpc::SessionId;
use netdisk::{BlockExtent, Ticket};
use room::{InodeNo, LoanId};

/// Blocks of one stretch of a disk, by which capabilities are found.
const STRETCH: u64 = segments::SEGMENT_BLOCKS as u64;

/// What a capability was given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading a file.
    Read(InodeNo),
    /// Writing to a loan.
    Write(LoanId),
}

/// A capability that a client has.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) session: SessionId,
    pub(crate) purpose: Purpose,
    pub(crate) ticket: Ticket,
}

#[derive(Debug, Default)]
pub(crate) struct Given {
    entries: HashMap<u32, Entry>,
    by_file: BTreeMap<(InodeNo, SessionId), BTreeSet<u32>>,
    by_session: HashMap<SessionId, BTreeSet<u32>>,
    by_loan: HashMap<LoanId, u32>,
    by_stretch: HashMap<u64, BTreeSet<u32>>,
    by_expiry: BTreeSet<(u64, u32)>,
}

fn stretches(extents: &[BlockExtent]) -> impl Iterator<Item = u64> + '_ {
    extents
        .iter()
        .flat_map(|e| e.start / STRETCH..=(e.start + e.blocks - 1) / STRETCH)
}

fn overlap(a: &BlockExtent, b: &BlockExtent) -> bool {
    a.start < b.start + b.blocks && b.start < a.start + a.blocks
}

fn take<K: std::hash::Hash + Eq>(map: &mut HashMap<K, BTreeSet<u32>>, key: K, id: u32) {
    if let Some(ids) = map.get_mut(&key) {
        ids.remove(&id);
        if ids.is_empty() {
            map.remove(&key);
        }
    }
}

impl Given {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn has(&self, id: u32) -> bool {
        self.entries.contains_key(&id)
    }

    pub(crate) fn put(&mut self, entry: Entry) {
        let capability = &entry.ticket.capability;
        let id = capability.id.0;
        match entry.purpose {
            Purpose::Read(no) => {
                let key = (no, entry.session);
                self.by_file.entry(key).or_default().insert(id);
            }
            Purpose::Write(loan) => {
                self.by_loan.insert(loan, id);
            }
        }
        self.by_session.entry(entry.session).or_default().insert(id);
        for stretch in stretches(&capability.extents) {
            self.by_stretch.entry(stretch).or_default().insert(id);
        }
        self.by_expiry.insert((capability.expires, id));
        self.entries.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        match entry.purpose {
            Purpose::Read(no) => {
                let key = (no, entry.session);
                if let Some(ids) = self.by_file.get_mut(&key) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.by_file.remove(&key);
                    }
                }
            }
            Purpose::Write(loan) => {
                self.by_loan.remove(&loan);
            }
        }
        take(&mut self.by_session, entry.session, id);
        let capability = &entry.ticket.capability;
        for stretch in stretches(&capability.extents) {
            take(&mut self.by_stretch, stretch, id);
        }
        self.by_expiry.remove(&(capability.expires, id));
        Some(entry)
    }

    /// Forgets what has expired before `clock`.
    pub(crate) fn expire(&mut self, clock: u64) {
        while let Some((expires, id)) = self.by_expiry.first().copied()
            && expires < clock
        {
            self.remove(id);
        }
    }

    /// One that allows a session the very same and is good until `until` at least.
    pub(crate) fn reusable(
        &self,
        session: SessionId,
        no: InodeNo,
        extents: &[BlockExtent],
        until: u64,
    ) -> Option<&Ticket> {
        self.by_file
            .get(&(no, session))?
            .iter()
            .filter_map(|id| Some(&self.entries.get(id)?.ticket))
            .find(|t| t.capability.expires >= until && t.capability.extents == extents)
    }

    /// Those to read a file, with whose they are.
    pub(crate) fn of_file(&self, no: InodeNo) -> impl Iterator<Item = (SessionId, u32)> + '_ {
        self.by_file
            .range((no, SessionId(0))..=(no, SessionId(u64::MAX)))
            .flat_map(|((_, session), ids)| ids.iter().map(|id| (*session, *id)))
    }

    pub(crate) fn of_session(&self, session: SessionId) -> Vec<u32> {
        let ids = self.by_session.get(&session);
        ids.map(|ids| ids.iter().copied().collect())
            .unwrap_or_default()
    }

    /// How many a session has.
    pub(crate) fn count_of(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// Those to read that a session has, the oldest first.
    pub(crate) fn reads_of(&self, session: SessionId) -> impl Iterator<Item = u32> + '_ {
        self.of_session(session).into_iter().filter(|id| {
            let entry = self.entries.get(id);
            entry.is_some_and(|entry| matches!(entry.purpose, Purpose::Read(_)))
        })
    }

    pub(crate) fn of_loan(&self, loan: LoanId) -> Option<u32> {
        self.by_loan.get(&loan).copied()
    }

    /// Those that cover any of these blocks.
    pub(crate) fn covering(&self, extents: &[BlockExtent]) -> BTreeSet<u32> {
        stretches(extents)
            .filter_map(|stretch| self.by_stretch.get(&stretch))
            .flatten()
            .copied()
            .filter(|id| {
                self.entries.get(id).is_some_and(|entry| {
                    let theirs = &entry.ticket.capability.extents;
                    theirs.iter().any(|t| extents.iter().any(|e| overlap(t, e)))
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdisk::{Capability, CapabilityId, ClientId, DiskId, DiskKey, GroupId, Mode};

    fn entry(id: u32, session: u64, purpose: Purpose, extents: &[(u64, u64)]) -> Entry {
        let extents = extents
            .iter()
            .map(|(start, blocks)| BlockExtent {
                start: *start,
                blocks: *blocks,
            })
            .collect();
        let capability = Capability {
            disk: DiskId([0; 16]),
            client: ClientId(session),
            group: GroupId(1),
            id: CapabilityId(id),
            mode: Mode::Read,
            expires: 100 + u64::from(id),
            nonce: [0; 16],
            extents,
        };
        Entry {
            session: SessionId(session),
            purpose,
            ticket: DiskKey::new([1; 32]).ticket(capability),
        }
    }

    #[test]
    fn a_capability_is_found_by_everything_that_can_take_it_away_and_gone_from_all() {
        let mut given = Given::default();
        given.put(entry(
            1,
            7,
            Purpose::Read(InodeNo(5)),
            &[(10, 5), (20000, 1)],
        ));
        given.put(entry(2, 7, Purpose::Write(LoanId(9)), &[(16380, 10)]));
        given.put(entry(3, 8, Purpose::Read(InodeNo(5)), &[(14, 1)]));
        let covering = |given: &Given, start, blocks| -> Vec<u32> {
            given
                .covering(&[BlockExtent { start, blocks }])
                .into_iter()
                .collect()
        };
        assert_eq!(covering(&given, 14, 1), [1, 3]);
        assert!(covering(&given, 15, 100).is_empty());
        assert_eq!(covering(&given, 16384, 1), [2]);
        assert_eq!(covering(&given, 0, 100_000), [1, 2, 3]);
        assert_eq!(given.of_file(InodeNo(5)).count(), 2);
        assert_eq!(given.of_session(SessionId(7)), [1, 2]);
        assert_eq!(given.of_loan(LoanId(9)), Some(2));
        let same = [BlockExtent {
            start: 14,
            blocks: 1,
        }];
        let reusable = |until| given.reusable(SessionId(8), InodeNo(5), &same, until);
        assert!(reusable(103).is_some() && reusable(104).is_none());
        given.expire(102);
        assert_eq!(given.of_file(InodeNo(5)).count(), 1);
        given.remove(2);
        given.remove(3);
        assert!(given.by_stretch.is_empty() && given.by_session.is_empty());
        assert!(given.by_expiry.is_empty() && given.by_file.is_empty());
        assert!(given.by_loan.is_empty() && given.len() == 0);
    }
}
