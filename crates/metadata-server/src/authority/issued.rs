//! The issued capabilities of one group, indexed by file, session, grant and blocks.
//!
//! 1. What is in one index is in all of them.
//! 2. There are at most as many as a group has revocation bits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use metadata_proto::rpc::SessionId;
use netdisk::{BlockExtent, Ticket};
use room::{InodeNo, WriteGrantId};

/// Blocks of one stretch of a disk, by which capabilities are found.
const STRETCH: u64 = segments::SEGMENT_BLOCKS as u64;

/// What a capability was given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading a file.
    Read(InodeNo),
    /// Writing to a grant.
    Write(WriteGrantId),
}

/// A capability that a client has.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) session: SessionId,
    pub(crate) purpose: Purpose,
    pub(crate) ticket: Ticket,
}

#[derive(Debug, Default)]
pub(crate) struct IssuedCapabilities {
    entries: HashMap<u32, Entry>,
    by_file: BTreeMap<(InodeNo, SessionId), BTreeSet<u32>>,
    by_session: HashMap<SessionId, BTreeSet<u32>>,
    by_grant: HashMap<WriteGrantId, u32>,
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

impl IssuedCapabilities {
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
            Purpose::Write(grant) => {
                self.by_grant.insert(grant, id);
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
            Purpose::Write(grant) => {
                self.by_grant.remove(&grant);
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

    pub(crate) fn of_grant(&self, grant: WriteGrantId) -> Option<u32> {
        self.by_grant.get(&grant).copied()
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
        let mut issued = IssuedCapabilities::default();
        issued.put(entry(
            1,
            7,
            Purpose::Read(InodeNo(5)),
            &[(10, 5), (20000, 1)],
        ));
        issued.put(entry(2, 7, Purpose::Write(WriteGrantId(9)), &[(16380, 10)]));
        issued.put(entry(3, 8, Purpose::Read(InodeNo(5)), &[(14, 1)]));
        let covering = |issued: &IssuedCapabilities, start, blocks| -> Vec<u32> {
            issued
                .covering(&[BlockExtent { start, blocks }])
                .into_iter()
                .collect()
        };
        assert_eq!(covering(&issued, 14, 1), [1, 3]);
        assert!(covering(&issued, 15, 100).is_empty());
        assert_eq!(covering(&issued, 16384, 1), [2]);
        assert_eq!(covering(&issued, 0, 100_000), [1, 2, 3]);
        assert_eq!(issued.of_file(InodeNo(5)).count(), 2);
        assert_eq!(issued.of_session(SessionId(7)), [1, 2]);
        assert_eq!(issued.of_grant(WriteGrantId(9)), Some(2));
        let same = [BlockExtent {
            start: 14,
            blocks: 1,
        }];
        let reusable = |until| issued.reusable(SessionId(8), InodeNo(5), &same, until);
        assert!(reusable(103).is_some() && reusable(104).is_none());
        issued.expire(102);
        assert_eq!(issued.of_file(InodeNo(5)).count(), 1);
        issued.remove(2);
        issued.remove(3);
        assert!(issued.by_stretch.is_empty() && issued.by_session.is_empty());
        assert!(issued.by_expiry.is_empty() && issued.by_file.is_empty());
        assert!(issued.by_grant.is_empty() && issued.len() == 0);
    }
}
