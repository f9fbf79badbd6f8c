//! Space of snapshots: what is kept for them is in existing segments, and the account of what they hold matches it. That each row
//! belongs to a snapshot, the catalog looks at itself.

use std::collections::HashSet;

use catalog::{CHUNK_LEN, Catalog, InodeNo, KeptRow};

use super::super::Maintenance;
use super::Look;
use super::repair::Repair;
use super::space::{Fault, faults};
use crate::Result;
use crate::blocks::BLOCK;
use crate::history::{self, Held, History};
use crate::usage::{self, Counts, Unit};

/// Looks at all that is kept of chunks.
pub(super) fn look(
    core: &Maintenance,
    catalog: &Catalog,
    counts: &mut Counts,
    look: &mut Look,
) -> Result<()> {
    let mut held = Held::new();
    // The chunk whose rows are being looked at.
    let mut current: Option<History> = None;
    let mut at = (InodeNo(0), 0);
    usage::each_kept(catalog, |row| {
        if (row.inode, row.index) != at {
            at = (row.inode, row.index);
            if let Some(done) = current.take() {
                history::add_all(&mut held, &done.held());
            }
        }
        one(core, &row, counts, look)?;
        let history = match &mut current {
            Some(history) => history,
            None => current.insert(History::of_live(catalog, row.inode, row.index)?),
        };
        history.kept.insert(row.until, row.kept);
        Ok(())
    })?;
    if let Some(done) = current {
        history::add_all(&mut held, &done.held());
    }
    account(catalog, &held, look)
}

/// What a finding calls what is kept of a chunk.
fn text(row: &KeptRow) -> String {
    let at = row.index * CHUNK_LEN;
    format!(
        "inode {}, kept for snapshot {} at byte {at}",
        row.inode.0, row.until
    )
}

fn one(core: &Maintenance, row: &KeptRow, counts: &mut Counts, look: &mut Look) -> Result<()> {
    let mut seen: HashSet<Unit> = HashSet::new();
    for extent in row.kept.chunk().extents() {
        for Fault { first, blocks, why } in faults(core, extent, counts, &mut seen)? {
            look.find_and_repair(
                format!(
                    "{}: {} bytes: the map {why}",
                    text(row),
                    u64::from(blocks) * BLOCK
                ),
                Repair::DropKeptBlocks {
                    key: (row.inode, row.index, row.until),
                    first,
                    blocks,
                },
            );
        }
    }
    Ok(())
}

/// Compares the account of what snapshots hold with what was counted.
fn account(catalog: &Catalog, held: &Held, look: &mut Look) -> Result<()> {
    let rows = catalog.snapshot_space_rows()?;
    let counted: Held = rows
        .iter()
        .map(|r| ((r.since, r.until), r.blocks))
        .collect();
    for ((since, until), by) in history::difference(&counted, held) {
        let said = counted.get(&(since, until)).copied().unwrap_or(0);
        look.find_and_repair(
            format!(
                "snapshots after {since} up to {until} hold {} blocks, {said} are counted",
                said + by
            ),
            Repair::Held { since, until, by },
        );
    }
    Ok(())
}

/// Looks for shared units that what is kept of chunks does not mark as such.
pub(super) fn marks(catalog: &Catalog, counts: &Counts, look: &mut Look) -> Result<()> {
    usage::each_kept(catalog, |row| {
        let mut extents = row.kept.chunk().extents().iter();
        if extents.any(|e| counts.lacks_mark(e)) {
            look.find_and_repair(
                format!("{}: shared data is not marked", text(&row)),
                Repair::MarkKept {
                    key: (row.inode, row.index, row.until),
                },
            );
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use catalog::{Change, Extent, KeptChunk, SegmentNo};

    use crate::testing::room_in;
    use crate::{CheckReport, FileSystem as _, NewSnapshot, Room, Snapshots as _};

    fn check(room: &Room, repair: bool) -> CheckReport {
        room.check(true, repair, &|_, _| true).unwrap()
    }

    /// What is wrong is found, repaired, and found no more; what the snapshot sees is intact.
    fn found_and_repaired(spoil: impl Fn(&Room), finding: &str) {
        let dir = tempfile::tempdir().unwrap();
        let room = room_in(dir.path());
        room.write_file("/f", &[1; 100_000]).unwrap();
        room.create_snapshot("s", NewSnapshot::default()).unwrap();
        let no = room.resolve("/f".as_ref(), true).unwrap();
        // A unit of which both have a part.
        room.write(no, 5 * 4096, &[2; 4096]).unwrap();
        room.sync().unwrap();
        assert!(check(&room, false).findings.is_empty());
        spoil(&room);
        let report = check(&room, true);
        assert!(report.findings[0].contains(finding), "{report:?}");
        assert!(!report.repaired.is_empty());
        let report = check(&room, false);
        assert!(report.findings.is_empty(), "{report:?}");
        let mut data = vec![0; 100_000];
        let view = room.snapshot("s").unwrap();
        view.read(no, 0, &mut data).unwrap();
        assert_eq!(data, [1; 100_000]);
        room.delete_snapshot("s").unwrap();
        room.tend().unwrap();
        let report = check(&room, false);
        assert!(report.findings.is_empty(), "{report:?}");
        assert_eq!(room.read_file("/f").unwrap()[5 * 4096..6 * 4096], [2; 4096]);
    }

    /// Replaces what is kept of `/f` for the snapshot.
    fn keep(room: &Room, change: impl Fn(KeptChunk) -> KeptChunk) {
        let no = room.resolve("/f".as_ref(), true).unwrap();
        let catalog = room.parts.catalog.get();
        let until = catalog.snapshots()[0].no();
        let kept = change(catalog.kept_chunk(no, 0, until).unwrap());
        catalog
            .apply(&[Change::keep_chunk(no, 0, until, &kept)])
            .unwrap();
        room.parts.data.inodes().forget_kept();
    }

    #[test]
    fn a_wrong_account_of_what_snapshots_hold_is_counted_again() {
        found_and_repaired(
            |room| {
                let change = Change::count_space(0, 1, 7);
                room.parts.catalog.get().apply(&[change]).unwrap();
            },
            "hold 0 blocks, 7 are counted",
        );
    }

    #[test]
    fn shared_data_that_is_not_marked_is_marked() {
        found_and_repaired(
            |room| {
                keep(room, |kept| {
                    let extents = kept.chunk().extents().iter().cloned();
                    let unmarked: Vec<_> = extents.map(|e| Extent { shared: false, ..e }).collect();
                    let mut kept = KeptChunk::default();
                    kept.keep(5, 1, &unmarked);
                    kept
                });
            },
            "shared data is not marked",
        );
    }

    #[test]
    fn what_leads_nowhere_goes() {
        found_and_repaired(
            |room| {
                keep(room, |mut kept| {
                    let mut lost = kept.chunk().extents()[0].clone();
                    (lost.first, lost.blocks, lost.skip) = (40, 1, 0);
                    lost.segment = SegmentNo(999);
                    // Behind the end of the file.
                    kept.keep(40, 1, &[lost]);
                    kept
                });
            },
            "leads to a segment that is not known",
        );
    }
}
