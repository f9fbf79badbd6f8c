//! Counts of references to shared units, and of blocks kept for snapshots: [gathered](super::gathered) by adding up.
//!
//! A change that cannot lead below nothing reads no count: to write many in the order of their keys costs less than to look each up and
//! change it when it comes.

use std::collections::BTreeMap;

use super::rows::{self, bound, damaged, to_sql};
use super::schema::{self, past};
use super::snapshots::living;
use super::{Catalog, State};
use crate::{Change, Result, SegmentNo, SpaceRow};

/// Counts gathered at most: then they are written, though no commit is due.
const COUNTS_MAX: usize = 16384;

/// Segment and position.
type Unit = (SegmentNo, u32);

/// What the tables' counts are to be changed by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    shares: BTreeMap<Unit, Share>,
    /// Blocks for each pair of snapshots, as [`SpaceRow`] has them.
    space: BTreeMap<(u64, u64), i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// What the table says, where it was read.
    stored: Option<i64>,
    added: i64,
}

impl Counts {
    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.space.is_empty()
    }

    pub(super) fn are_many(&self) -> bool {
        self.shares.len() + self.space.len() >= COUNTS_MAX
    }
}

impl State {
    /// Refuses an operation whose [`Change::ShareUnit`] would lead below no references.
    pub(super) fn check_shares(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut sums: BTreeMap<Unit, i64> = BTreeMap::new();
        for change in changes {
            let Change::ShareUnit {
                segment,
                position,
                references,
            } = *change
            else {
                continue;
            };
            let sum = sums.entry((segment, position)).or_default();
            *sum = sum.saturating_add(references);
        }
        for (unit, sum) in sums.into_iter().filter(|(_, sum)| *sum < 0) {
            if self.share_count(unit)?.saturating_add(sum) < 0 {
                let (segment, position) = unit;
                return Err(damaged(format!(
                    "the unit at {position} of segment {} would have fewer than no references",
                    segment.0
                )));
            }
        }
        Ok(())
    }

    /// Adds to the number of references to a unit.
    pub(super) fn gather_share(&mut self, segment: SegmentNo, position: u32, references: i64) {
        let shares = &mut self.gathered.get_mut().counts.shares;
        let share = shares.entry((segment, position)).or_default();
        share.added = share.added.saturating_add(references);
    }

    fn share_count(&self, unit: Unit) -> Result<i64> {
        match self.gathered.borrow_mut().counts.shares.get_mut(&unit) {
            Some(share) => {
                let stored = match share.stored {
                    Some(stored) => stored,
                    None => *share.stored.insert(self.stored_share(unit)?),
                };
                Ok(stored.saturating_add(share.added))
            }
            None => self.stored_share(unit),
        }
    }

    fn stored_share(&self, (segment, position): Unit) -> Result<i64> {
        let count = self.one(schema::SHARED, (bound(segment.0), position), |row| {
            rows::number::<u64>(row, 0, "a share count")
        })?;
        Ok(count.map_or(0, to_sql))
    }

    /// Counts blocks kept for snapshots.
    pub(super) fn gather_space(&mut self, since: u64, until: u64, blocks: i64) {
        let since = living(&self.snapshots.get(), since);
        let count = self.gathered.get_mut().counts.space.entry((since, until));
        let count = count.or_default();
        *count = count.saturating_add(blocks);
    }

    /// Writes the gathered counts of references.
    pub(super) fn write_shares(&mut self) -> Result<()> {
        for (unit, share) in std::mem::take(&mut self.gathered.get_mut().counts.shares) {
            self.write_share(unit, share)?;
        }
        Ok(())
    }

    /// Writes the gathered counts of blocks kept for snapshots.
    pub(super) fn write_space(&mut self) -> Result<()> {
        for ((since, until), blocks) in std::mem::take(&mut self.gathered.get_mut().counts.space) {
            if blocks != 0 {
                self.put_space(to_sql(since), to_sql(until), blocks)?;
            }
        }
        Ok(())
    }

    fn write_share(&self, unit: Unit, Share { stored, added }: Share) -> Result<()> {
        let key = (to_sql(unit.0.0), unit.1);
        let count = match (stored, added) {
            (_, 0) => return Ok(()),
            (None, 1..) => {
                let add = (key.0, key.1, added);
                return self.run(schema::ADD_SHARED, add).map(drop);
            }
            (Some(stored), _) => stored.saturating_add(added),
            (None, _) => self.stored_share(unit)?.saturating_add(added),
        };
        match count {
            0 => self.run(schema::DELETE_SHARED, key),
            _ => self.run(schema::PUT_SHARED, (key.0, key.1, count)),
        }
        .map(drop)
    }

    pub(super) fn put_space(&self, since: i64, until: i64, blocks: i64) -> Result<()> {
        self.run(past::COUNT_SPACE, (since, until, blocks))?;
        self.run(past::DROP_SPACE, (since, until)).map(drop)
    }
}

impl Catalog {
    /// All counts of shared units.
    pub fn all_shared(&self) -> Result<Vec<(SegmentNo, u32, u64)>> {
        self.read(|state| {
            let stored = state.all(schema::ALL_SHARED, (), |row| {
                let segment = SegmentNo(rows::number(row, 0, "a shared unit's segment")?);
                let position = rows::number(row, 1, "a shared unit's position")?;
                let count: u64 = rows::number(row, 2, "a share count")?;
                Ok(((segment, position), to_sql(count)))
            })?;
            let mut all: BTreeMap<Unit, i64> = stored.into_iter().collect();
            for (unit, share) in &state.gathered.borrow().counts.shares {
                let count = all.entry(*unit).or_default();
                *count = count.saturating_add(share.added);
            }
            all.retain(|_, count| *count != 0);
            all.into_iter()
                .map(|((segment, position), count)| {
                    let count = u64::try_from(count);
                    let count = count.map_err(|_| damaged("a share count is negative"))?;
                    Ok((segment, position, count))
                })
                .collect()
        })
    }

    /// References beyond the first to one unit.
    pub fn shared_references(&self, segment: SegmentNo, position: u32) -> Result<u64> {
        self.read(|state| {
            let count = state.share_count((segment, position))?;
            u64::try_from(count).map_err(|_| damaged("a share count is negative"))
        })
    }

    /// The account of blocks kept for snapshots, by `since` and `until`.
    pub fn snapshot_space_rows(&self) -> Result<Vec<SpaceRow>> {
        self.read(|state| {
            if !state.has_past() {
                return Ok(Vec::new());
            }
            let stored = state.all(past::SPACE, (), rows::space)?;
            let pair = |row: SpaceRow| ((row.since, row.until), row.blocks);
            let mut all: BTreeMap<_, i64> = stored.into_iter().map(pair).collect();
            for (pair, blocks) in &state.gathered.borrow().counts.space {
                let count = all.entry(*pair).or_default();
                *count = count.saturating_add(*blocks);
            }
            all.retain(|_, blocks| *blocks != 0);
            let row = |((since, until), blocks)| SpaceRow {
                since,
                until,
                blocks,
            };
            Ok(all.into_iter().map(row).collect())
        })
    }
}
