//! What results of earlier versions say that is not so: it is INVALID when they are read.
//!
//! It deliberately does not change what is in their files.

use crate::model::{Comparison, Issue, IssueKind, Report, StoreFacts, WORKS};
use crate::{ceiling, published};

/// Rows of names that were made durable. On a mount only the kernel was asked.
const SYNCED: [&str; 6] = [
    CREATE,
    "chmod files, synced",
    "rename files, synced",
    "unlink files, synced",
    "untar",
    "rm -r",
];
const CREATE: &str = "create 4 KiB files, synced";
/// Rows that were of the files that a store had created in its time.
const OF_FILES: [&str; 6] = [
    "open files, warm",
    "stat files, warm",
    "list directories, warm",
    "chmod files, synced",
    "rename files, synced",
    "unlink files, synced",
];

/// Marks them.
pub(super) fn mark(report: &mut Report) {
    if report.works >= WORKS {
        return;
    }
    report.works = WORKS;
    let stores = report.stores.iter().filter(|store| is_served(store));
    let served: Vec<String> = stores.map(|store| store.label.clone()).collect();
    let why = "measured by a version that synced names on a mount no further than the kernel";
    for row in &mut report.rows {
        if served.contains(&row.store) && SYNCED.contains(&&*row.work) {
            row.verdict.invalid = true;
            row.verdict.issues.insert(
                0,
                Issue {
                    kind: IssueKind::NotDurable,
                    said: why.to_owned(),
                },
            );
        }
    }
    // How many files each store had, round by round.
    let created = |label: &str| {
        let mut rows = report.rows.iter();
        let row = rows.find(|row| row.store == label && row.work == CREATE)?;
        Some(row.rounds.iter().map(|round| round.operations).collect())
    };
    for of in &mut report.comparisons {
        let (base, other): (Option<Vec<u64>>, _) = (created(&of.base), created(&of.other));
        let on_mount = served.contains(&of.base) || served.contains(&of.other);
        if on_mount && SYNCED.contains(&&*of.work) {
            no_ratio(of, why);
        } else if base != other && OF_FILES.contains(&&*of.work) {
            no_ratio(
                of,
                "measured by a version that took other files of each store",
            );
        }
    }
    // Made of these rows: again.
    let mut tables = std::mem::take(&mut report.tables);
    for table in &mut tables {
        let again = match (&*table.title, &*table.columns) {
            (published::TOOLS_TITLE, _) => published::tools_of(report),
            (ceiling::TITLE, [most, store, _]) => Some(ceiling::share(report, store, most)),
            _ => None,
        };
        *table = again.unwrap_or_else(|| table.clone());
    }
    report.tables = tables;
}

/// Whether a process writes its names to the disk.
fn is_served(store: &StoreFacts) -> bool {
    let kinds = ["mounted room", "gocryptfs", "securefs", "cryfs"];
    let on_fuse = |kind: &String| kind.starts_with("fuse");
    kinds.contains(&&*store.kind) || store.file_system.as_ref().is_some_and(on_fuse)
}

fn no_ratio(of: &mut Comparison, why: &str) {
    (of.ratio, of.low, of.high, of.differs) = (None, None, None, false);
    of.invalid.get_or_insert_with(|| why.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Round, Row};
    use crate::report::{json, sample};

    /// A result of a directory, a room mounted beside it, and that room through the library.
    fn result(works: u32) -> Report {
        let mut report = sample::compare();
        let row = report.rows[0].clone();
        let comparison = Comparison {
            ratio: Some(3.0),
            low: Some(2.9),
            high: Some(3.1),
            differs: true,
            invalid: None,
            ..report.comparisons[0].clone()
        };
        report.works = works;
        let facts = report.stores[0].clone();
        (report.stores, report.rows, report.comparisons) = Default::default();
        for (store, kind, files) in [
            ("plain", "directory", 100),
            ("mounted", "mounted room", 60),
            ("room", "room", 100),
            ("slow", "room", 60),
        ] {
            report.stores.push(StoreFacts {
                label: store.into(),
                kind: kind.into(),
                ..facts.clone()
            });
            for work in [
                CREATE,
                "list directories, warm",
                "rm -r",
                "md5sum of all, cold",
            ] {
                let mut row = Row {
                    store: store.into(),
                    work: work.into(),
                    ..row.clone()
                };
                row.verdict.invalid = false;
                row.rounds = vec![
                    Round {
                        operations: files,
                        ..Round::default()
                    };
                    3
                ];
                report.rows.push(row);
                report.comparisons.push(Comparison {
                    work: work.into(),
                    base: "plain".into(),
                    other: store.into(),
                    ..comparison.clone()
                });
            }
        }
        report.tables = published::tools_of(&report).into_iter().collect();
        let share = ceiling::share(&report, "mounted", "plain");
        report.tables.push(share);
        report
    }

    #[test]
    fn what_earlier_versions_measured_wrongly_is_invalid_when_it_is_read() {
        let text = json::text(&result(0));
        let before = text.replace(r#""works":0,"#, "");
        assert_ne!(text, before);
        let report = json::read(&before).unwrap();
        let rows = report.rows.iter().filter(|row| row.verdict.invalid);
        let rows: Vec<_> = rows.map(|row| (&*row.store, &*row.work)).collect();
        assert_eq!(rows, [("mounted", CREATE), ("mounted", "rm -r")]);
        let ratios = report.comparisons.iter().filter(|of| of.ratio.is_none());
        let ratios: Vec<_> = ratios.map(|of| (&*of.other, &*of.work)).collect();
        let list = "list directories, warm";
        let expected = [
            ("mounted", CREATE),
            ("mounted", list),
            ("mounted", "rm -r"),
            ("slow", list),
        ];
        assert_eq!(ratios, expected);
        // Tables of such rows are made again.
        let removed = report.tables[0]
            .rows
            .iter()
            .find(|row| row.name == "rm -r, s");
        assert!(removed.unwrap().cells.contains(&"INVALID".to_owned()));
        let share = report.tables[1].rows.iter().find(|row| row.name == "rm -r");
        assert_eq!(share.unwrap().cells[1..], ["INVALID", "INVALID"]);

        let new = result(WORKS);
        assert_eq!(json::read(&json::text(&new)).unwrap(), new);
    }
}
