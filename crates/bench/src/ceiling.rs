//! What FUSE itself allows: files in memory behind the mount of a room, and a store's share of their speed.

mod memory;

use crate::model::{PublishedTable, Report, Row, TableRow};
use crate::statistics;
use crate::words::{self, NOTHING};

pub use memory::MemoryFiles;

/// What the table is called.
pub(crate) const TITLE: &str = "Share of what FUSE itself allows";

/// How fast `store` is with `ceiling` as 1, a row a work that both did.
pub fn share(report: &Report, store: &str, ceiling: &str) -> PublishedTable {
    let of = |label: &str, work: &str| -> Option<&Row> {
        let mut rows = report.rows.iter();
        rows.find(|row| row.store == label && row.work == work)
    };
    let speed = |row: &Row| match row.summary.filter(|_| !row.verdict.invalid) {
        Some(summary) => format!(
            "{} {}",
            words::significant(summary.median),
            words::unit(row.unit)
        ),
        None => "INVALID".to_owned(),
    };
    let rows = report.rows.iter().filter(|row| row.store == ceiling);
    let rows = rows.map(|most| {
        let row = of(store, &most.work);
        let share =
            row.map(|row| statistics::compare(most, row, statistics::noise(report, &most.work)));
        TableRow {
            name: most.work.clone(),
            cells: vec![
                speed(most),
                row.map_or(NOTHING.to_owned(), speed),
                share.map_or(NOTHING.to_owned(), |of| words::comparison(&of)),
            ],
        }
    });
    PublishedTable {
        title: TITLE.to_owned(),
        source: "measured here, none published".to_owned(),
        columns: vec![ceiling.to_owned(), store.to_owned(), "share".to_owned()],
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_share_is_the_ratio_to_the_ceiling_and_an_invalid_row_has_none() {
        let report = sample::compare();
        let (store, ceiling) = ("room", "plain");
        let table = share(&report, store, ceiling);
        assert!(!table.rows.is_empty());
        for row in &table.rows {
            let same = |of: &&crate::model::Comparison| {
                of.work == row.name && of.base == ceiling && of.other == store
            };
            let compared = report.comparisons.iter().find(same);
            if let Some(of) = compared.filter(|of| of.invalid.is_some()) {
                assert_eq!(row.cells[2], "INVALID", "{of:?}");
            } else if compared.is_some() {
                assert!(
                    row.cells[2].starts_with(char::is_numeric)
                        || row.cells[2].starts_with("no difference"),
                    "{row:?}"
                );
            }
        }
    }
}
