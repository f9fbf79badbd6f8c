//! How much of each segment is alive, and what was discarded since the last commit.
//!
//! 1. A block is live from the moment an extent refers to it; the account follows every change of an extent map.
//! 2. Discarded blocks are released to the storage only after the commit that stops referring to them is durable.
//! 3. Accounts in a record of the log are those of the extent maps in the catalog with it: blocks of deferred inodes are not live
//!    there.
//!
//! It deliberately does not know which file a block belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use catalog::{BlockRange, SegmentAccount, SegmentId, SegmentNo};

/// The accounts of all segments, as of now.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    segments: BTreeMap<SegmentNo, SegmentAccount>,
    changed: HashSet<SegmentNo>,
    /// Those of `changed` that the catalog has no row of as they are.
    unrecorded: HashSet<SegmentNo>,
    /// Live blocks to which only extents of deferred inodes refer.
    deferred: HashMap<SegmentNo, u32>,
    released: Vec<BlockRange>,
    /// Segments of which the catalog has no row any more, though no commit says so yet.
    dead: Vec<SegmentNo>,
}

/// What a record of the log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything that was done before it.
    Everything,
    /// All of that but deferred inodes.
    Names,
}

/// What a commit has to write and, once it is durable, to free.
#[derive(Debug, Default)]
pub(crate) struct Settlement {
    pub(crate) changed: Vec<SegmentAccount>,
    pub(crate) dead: Vec<SegmentNo>,
    pub(crate) released: Vec<BlockRange>,
}

impl Accounts {
    pub(crate) fn load(segments: Vec<SegmentAccount>) -> Self {
        Self {
            // In use when the room was last closed or crashed, and nothing but a header: to be dropped. One with blocks but
            // none alive is left to a compaction, which looks whether that is so.
            changed: segments
                .iter()
                .filter(|s| s.live == 0 && s.length <= 1)
                .map(|s| s.id.no)
                .collect(),
            segments: segments.into_iter().map(|s| (s.id.no, s)).collect(),
            ..Self::default()
        }
    }

    /// Takes a new segment in; its header block counts as written.
    pub(crate) fn begin(&mut self, id: SegmentId) {
        self.segments.entry(id.no).or_insert(SegmentAccount {
            id,
            length: 1,
            live: 0,
        });
        self.note_change(id.no);
    }

    fn note_change(&mut self, segment: SegmentNo) {
        self.changed.insert(segment);
        self.unrecorded.insert(segment);
    }

    /// What the next record of the log is to say of segments. All of them stay: only a commit frees space.
    pub(crate) fn unrecorded(&self, scope: Scope) -> Vec<SegmentAccount> {
        let unrecorded = self.unrecorded.iter();
        let account = |no: &SegmentNo| self.segments.get(no).copied();
        match scope {
            Scope::Everything => {
                let deferred = self.deferred.keys();
                let deferred = deferred.filter(|no| !self.unrecorded.contains(no));
                unrecorded.chain(deferred).filter_map(account).collect()
            }
            Scope::Names => {
                let mut accounts: Vec<_> = unrecorded.filter_map(account).collect();
                for account in &mut accounts {
                    let deferred = self.deferred.get(&account.id.no).copied();
                    account.live = account.live.saturating_sub(deferred.unwrap_or(0));
                }
                accounts
            }
        }
    }

    /// Takes note that the catalog has what was unrecorded; nothing has changed since.
    pub(crate) fn recorded(&mut self, scope: Scope) {
        self.unrecorded.clear();
        if scope == Scope::Everything {
            self.deferred.clear();
        }
    }

    /// Notes that only an extent of a deferred inode refers to these blocks.
    pub(crate) fn defer(&mut self, range: BlockRange) {
        *self.deferred.entry(range.segment).or_insert(0) += range.blocks;
    }

    /// Notes that the inode with these blocks is not deferred any more.
    pub(crate) fn end_deferral(&mut self, ranges: &[BlockRange]) {
        for range in ranges {
            if let Some(blocks) = self.deferred.get_mut(&range.segment) {
                *blocks = blocks.saturating_sub(range.blocks);
                self.unrecorded.insert(range.segment);
            }
        }
    }

    /// Notes that blocks became live.
    pub(crate) fn add(&mut self, range: BlockRange) {
        if let Some(account) = self.segments.get_mut(&range.segment) {
            account.live += range.blocks;
            account.length = account.length.max(range.position + range.blocks);
            self.note_change(range.segment);
        } else {
            debug_assert!(false, "a live block in a segment without an account");
        }
    }

    /// Notes that nothing refers to these blocks any more.
    pub(crate) fn release(&mut self, range: BlockRange) {
        if let Some(account) = self.segments.get_mut(&range.segment) {
            debug_assert!(
                account.live >= range.blocks,
                "more blocks released than live"
            );
            account.live = account.live.saturating_sub(range.blocks);
            self.note_change(range.segment);
        }
        self.released.push(range);
    }

    /// What the next commit is to write. `in_use` are the segments still written to: never dead. Nothing is different here
    /// until it is [`accept`](Self::accept)ed.
    pub(crate) fn propose(&self, in_use: &BTreeSet<SegmentNo>) -> Settlement {
        let mut settlement = Settlement {
            released: self.released.clone(),
            dead: self.dead.clone(),
            ..Settlement::default()
        };
        for account in self.changed.iter().filter_map(|no| self.segments.get(no)) {
            if account.live > 0 || in_use.contains(&account.id.no) {
                settlement.changed.push(*account);
            } else {
                settlement.dead.push(account.id.no);
            }
        }
        settlement
            .released
            .retain(|r| !settlement.dead.contains(&r.segment));
        settlement
    }

    /// Takes note that the catalog has what was proposed; nothing has changed since.
    pub(crate) fn accept(&mut self, settlement: &Settlement) {
        self.released.clear();
        self.dead.clear();
        self.segments.retain(|no, _| !settlement.dead.contains(no));
        self.unrecorded.clear();
        self.deferred.clear();
        // One in use without live blocks is looked at again when it is closed.
        self.changed = settlement
            .changed
            .iter()
            .filter(|a| a.live == 0)
            .map(|a| a.id.no)
            .collect();
    }

    /// Puts back what a failed commit could not free: the next one does.
    pub(crate) fn put_back(&mut self, settlement: Settlement) {
        self.released.extend(settlement.released);
        self.dead.extend(settlement.dead);
    }

    /// Replaces the recorded number of live blocks by a counted one.
    pub(crate) fn correct(&mut self, segment: SegmentNo, live: u32) {
        if let Some(account) = self.segments.get_mut(&segment) {
            account.live = live;
            self.note_change(segment);
        }
    }

    /// A segment is longer than recorded.
    pub(crate) fn lengthen(&mut self, segment: SegmentNo, length: u32) {
        if let Some(account) = self.segments.get_mut(&segment) {
            account.length = account.length.max(length);
            self.note_change(segment);
        }
    }

    pub(crate) fn get(&self, segment: SegmentNo) -> Option<&SegmentAccount> {
        self.segments.get(&segment)
    }

    pub(crate) fn live_blocks(&self) -> u64 {
        self.segments.values().map(|s| u64::from(s.live)).sum()
    }

    pub(crate) fn stored_blocks(&self) -> u64 {
        self.segments.values().map(|s| u64::from(s.length)).sum()
    }

    /// Blocks discarded since the last commit.
    pub(crate) fn released_blocks(&self) -> u64 {
        self.released.iter().map(|r| u64::from(r.blocks)).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SegmentAccount> {
        self.segments.values()
    }

    /// The highest number of a segment.
    pub(crate) fn last(&self) -> SegmentNo {
        let last = self.segments.last_key_value();
        last.map_or(SegmentNo(0), |(no, _)| *no)
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(no: u64) -> SegmentId {
        SegmentId {
            no: SegmentNo(no),
            key_epoch: 1,
            salt: [0; 32],
        }
    }

    fn range(no: u64, position: u32, blocks: u32) -> BlockRange {
        BlockRange {
            segment: SegmentNo(no),
            position,
            blocks,
        }
    }

    #[test]
    fn a_record_of_names_counts_no_blocks_of_deferred_inodes() {
        let mut accounts = Accounts::default();
        accounts.begin(id(1));
        accounts.add(range(1, 1, 8));
        accounts.add(range(1, 9, 4));
        accounts.defer(range(1, 9, 4));
        let live = |accounts: &Accounts, scope| {
            let unrecorded = accounts.unrecorded(scope);
            unrecorded.iter().map(|a| a.live).collect::<Vec<_>>()
        };
        assert_eq!(live(&accounts, Scope::Names), [8]);
        accounts.recorded(Scope::Names);
        assert!(live(&accounts, Scope::Names).is_empty());
        // What the record left out is in the next one that takes everything.
        assert_eq!(live(&accounts, Scope::Everything), [12]);
        accounts.end_deferral(&[range(1, 9, 4)]);
        assert_eq!(live(&accounts, Scope::Names), [12]);
        accounts.recorded(Scope::Everything);
        assert!(live(&accounts, Scope::Everything).is_empty());
    }

    #[test]
    fn a_segment_without_live_blocks_dies_with_the_next_commit_unless_it_is_in_use() {
        let mut accounts = Accounts::default();
        accounts.begin(id(1));
        accounts.begin(id(2));
        accounts.add(range(1, 1, 8));
        accounts.add(range(2, 1, 8));
        let settle = |accounts: &mut Accounts, open: Option<SegmentNo>| {
            let settlement = accounts.propose(&open.into_iter().collect());
            accounts.accept(&settlement);
            settlement
        };
        let first = settle(&mut accounts, Some(SegmentNo(2)));
        assert_eq!((first.changed.len(), first.dead.len()), (2, 0));
        accounts.release(range(1, 1, 8));
        accounts.release(range(2, 1, 8));
        let second = settle(&mut accounts, Some(SegmentNo(2)));
        assert_eq!(second.dead, [SegmentNo(1)]);
        assert_eq!(second.released, [range(2, 1, 8)]);
        let third = settle(&mut accounts, None);
        assert_eq!(third.dead, [SegmentNo(2)]);
        assert_eq!(accounts.len(), 0);
        // Its commit fails: the next one frees it.
        accounts.put_back(third);
        assert_eq!(settle(&mut accounts, None).dead, [SegmentNo(2)]);
        assert!(settle(&mut accounts, None).dead.is_empty());
    }
}
