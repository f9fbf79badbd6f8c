//! What must hold whatever was done.

use super::*;

impl Rooms {
    pub(super) fn check(&mut self) {
        let page = 1 + self.random.usize(..5);
        for (at, whole) in &self.wholes {
            let seen = Whole::in_snapshot(&self.catalog, *at, self.highest, page);
            assert_eq!(&seen, whole, "snapshot {at}");
            for parent in (1..=DIRS).map(InodeNo) {
                for name in NAMES {
                    let inode = whole.lookup(parent, name);
                    let found = self.catalog.past_lookup(*at, parent, name).unwrap();
                    assert_eq!(found.as_ref(), inode, "snapshot {at}, {parent:?}, {name:?}");
                }
            }
        }
        assert_eq!(
            Whole::of(&self.catalog),
            Whole::of(&self.plain),
            "what is live"
        );
        self.check_units();
        self.check_space();
        assert_eq!(self.catalog.verify().unwrap(), [""; 0]);
    }

    fn check_units(&self) {
        let mut references: BTreeMap<_, u64> = BTreeMap::new();
        let live = self.catalog.all_chunks(None, 10_000).unwrap();
        let kept = self.catalog.all_kept_chunks(None, 10_000).unwrap();
        let live = live.iter().map(|(_, _, chunk)| chunk);
        for chunk in live.chain(kept.iter().map(|row| row.kept.chunk())) {
            for unit in units(chunk) {
                *references.entry(unit).or_default() += 1;
            }
        }
        let expected: Vec<_> = references
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|((segment, position), count)| (*segment, *position, count - 1))
            .collect();
        assert_eq!(self.catalog.all_shared().unwrap(), expected);
        assert!(self.freed.iter().all(|unit| !references.contains_key(unit)));
    }

    /// The account against a count of each block, and what it says of each snapshot alone against who sees the block.
    fn check_space(&self) {
        let list = self.catalog.snapshots();
        let living: Vec<&SnapshotRow> = list.iter().filter(|row| !row.doomed).collect();
        let kept = self.catalog.all_kept_chunks(None, 10_000).unwrap();
        let mut counts: BTreeMap<(u64, u64), i64> = BTreeMap::new();
        let mut alone: BTreeMap<u64, i64> = BTreeMap::new();
        for row in &kept {
            let births = self
                .catalog
                .births(row.inode, row.index, row.until)
                .unwrap();
            for extent in row.kept.chunk().extents() {
                for block in extent.first..extent.end() {
                    *counts.entry((births.since(block), row.until)).or_default() += 1;
                    let has_older = |at: u64| {
                        kept.iter().any(|older| {
                            (older.inode, older.index) == (row.inode, row.index)
                                && (at..row.until).contains(&older.until)
                                && older.kept.covers(block, 1)
                        })
                    };
                    let mut seen_by = living.iter().filter(|at| {
                        at.no() <= row.until && row.inode < at.next_inode && !has_older(at.no())
                    });
                    if let (Some(one), None) = (seen_by.next(), seen_by.next()) {
                        *alone.entry(one.no()).or_default() += 1;
                    }
                }
            }
        }
        let rows = self.catalog.snapshot_space_rows().unwrap();
        let found: BTreeMap<_, _> = rows
            .iter()
            .map(|row| ((row.since, row.until), row.blocks))
            .collect();
        assert_eq!(found, counts);
        for (i, at) in living.iter().enumerate() {
            let before = i.checked_sub(1).map_or(0, |i| living[i].no());
            let behind = living.get(i + 1).map_or(u64::MAX, |row| row.no());
            let own = rows.iter().filter(|row| {
                before <= row.since
                    && at.no() <= row.until
                    && row.until < behind
                    && row.since < at.no()
            });
            let blocks: i64 = own.map(|row| row.blocks).sum();
            assert_eq!(
                blocks,
                alone.get(&at.no()).copied().unwrap_or(0),
                "snapshot {}",
                at.no()
            );
        }
    }
}
