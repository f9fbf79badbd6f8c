//! Reports for tests, from `tests/data`: what long runs could bring, invalid rows and all.

use crate::model::{Report, SCHEMA, WORKS};

/// All samples, by the name of their file.
pub(crate) fn all() -> [(&'static str, Report); 4] {
    [
        ("compare", compare()),
        ("small-files", small_files()),
        ("scale", scale()),
        ("empty", empty()),
    ]
}

fn read(text: &str) -> Report {
    Report {
        schema: SCHEMA,
        works: WORKS,
        ..serde_json::from_str(text).unwrap()
    }
}

/// Nothing but what every report has.
pub(crate) fn empty() -> Report {
    read(include_str!("../../tests/data/empty.json"))
}

/// Three stores, five works; a row without one valid round, one with two bad rounds, one that does not differ.
pub(crate) fn compare() -> Report {
    read(include_str!("../../tests/data/compare.json"))
}

/// Sub-operations of two stores.
pub(crate) fn small_files() -> Report {
    read(include_str!("../../tests/data/small-files.json"))
}

/// How cost grows, with a size that is INVALID.
pub(crate) fn scale() -> Report {
    read(include_str!("../../tests/data/scale.json"))
}

mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn the_tables_of_publications_are_those_of_the_rows() {
        let report = compare();
        let loss = published::phone_loss(&published::PhoneRows {
            random_read: Some(&report.comparisons[0]),
            random_write: Some(&report.comparisons[2]),
            sequential_read: Some(&report.comparisons[4]),
            sequential_write: Some(&report.comparisons[6]),
        });
        let peer = |store: &'static str, at: usize| published::Tool {
            store,
            write: Some(&report.rows[9 + at]),
            read: Some(&report.rows[6 + at]),
            rm: Some(&report.rows[12 + at]),
            space: Some((540_000_000, 512_000_000)),
            ..published::Tool::default()
        };
        let tools = published::tools(&[peer("room", 1), peer("gocryptfs", 2)]);
        let dd = published::dd(&[published::DdRow {
            block: 4096,
            total: 1 << 30,
            raw: Some(&report.rows[6]),
            decrypted: Some(&report.rows[7]),
            comparison: Some(&report.comparisons[4]),
        }]);
        let clock = published::phone_clock([
            Some(published::ClockRow {
                honest: 123.4,
                processor: 431.9,
            }),
            Some(published::ClockRow {
                honest: 2.31,
                processor: 78.6,
            }),
            None,
            None,
        ]);
        let ladder = published::ladder(&[
            published::LadderStep {
                call: 8192,
                each: false,
                buffered: false,
                row: Some(&report.rows[9]),
            },
            published::LadderStep {
                call: 131_072,
                each: true,
                buffered: true,
                row: Some(&report.rows[10]),
            },
        ]);
        assert_eq!(report.tables, [loss, clock, dd, ladder, tools]);
        let report = small_files();
        assert_eq!(report.tables, [published::small_files(&report.parts)]);
    }
}
