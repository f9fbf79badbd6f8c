//! A result against an earlier one of the same question.
//!
//! The noise floor is that of the louder of the two runs; what changes on a machine from day to day comes on top, which no
//! run can know: the text says so.

use std::path::Path;

use super::{Entry, Skipped};
use crate::model::{Comparison, Report, StoreFacts, Unit};
use crate::report::layout::{cut, shown, width, wrap};
use crate::statistics;
use crate::words::{self, NOTHING, significant};

/// What changed from one result to a later one.
#[derive(Debug, Clone)]
pub struct Change {
    /// What is different about the machine, the program and the stores, one a sentence.
    pub facts: Vec<String>,
    /// The rows both have.
    pub rows: Vec<RowChange>,
}

/// One row of both.
#[derive(Debug, Clone)]
pub struct RowChange {
    /// Label of the store.
    pub store: String,
    /// What was done.
    pub work: String,
    /// Of the medians.
    pub unit: Unit,
    /// Median of the earlier result.
    pub old: Option<f64>,
    /// Median of the later one.
    pub new: Option<f64>,
    /// How many times as fast the later one is.
    pub comparison: Comparison,
}

/// What changed, if the two answer the same question: of one machine, with the same command, options (but for the seed) and
/// stores.
pub fn between(old: &Report, new: &Report) -> Option<Change> {
    let stores = |of: &Report| -> Vec<(String, String)> {
        of.stores
            .iter()
            .map(|store| (store.label.clone(), store.kind.clone()))
            .collect()
    };
    let options = |of: &Report| -> Vec<String> {
        of.options
            .iter()
            .filter(|option| !option.starts_with("--seed"))
            .cloned()
            .collect()
    };
    let same = old.machine.id == new.machine.id
        && old.command == new.command
        && options(old) == options(new)
        && stores(old) == stores(new);
    if !same {
        return None;
    }
    let rows = new.rows.iter().filter_map(|row| {
        let before = old
            .rows
            .iter()
            .find(|of| (&of.store, &of.work) == (&row.store, &row.work))?;
        let median =
            |of: &crate::model::Row| of.summary.filter(|_| !of.verdict.invalid).map(|s| s.median);
        Some(RowChange {
            store: row.store.clone(),
            work: row.work.clone(),
            unit: row.unit,
            old: median(before),
            new: median(row),
            comparison: statistics::compare(
                before,
                row,
                statistics::noise(old, &row.work).max(statistics::noise(new, &row.work)),
            ),
        })
    });
    Some(Change {
        facts: facts(old, new),
        rows: rows.collect(),
    })
}

fn facts(old: &Report, new: &Report) -> Vec<String> {
    let mut facts = Vec::new();
    let mut changed = |what: &str, old: &str, new: &str| {
        if old != new {
            let name = |text: &str| {
                if text.is_empty() {
                    "unknown".to_owned()
                } else {
                    text.to_owned()
                }
            };
            facts.push(format!("{what}: {} is now {}", name(old), name(new)));
        }
    };
    changed("strongroom", &old.version, &new.version);
    let (a, b) = (&old.machine, &new.machine);
    changed("kernel", &a.kernel, &b.kernel);
    changed("processor", &a.processor, &b.processor);
    changed(
        "processors",
        &a.processors.to_string(),
        &b.processors.to_string(),
    );
    changed("instructions", &a.features.join(" "), &b.features.join(" "));
    changed(
        "memory",
        &words::bytes(a.memory_bytes),
        &words::bytes(b.memory_bytes),
    );
    changed(
        "governor",
        a.governor.as_deref().unwrap_or_default(),
        b.governor.as_deref().unwrap_or_default(),
    );
    for (a, b) in old.stores.iter().zip(&new.stores) {
        let of = |name: &str| format!("{name} of {}", b.label);
        let mut may = |name: &str, pick: fn(&StoreFacts) -> Option<&String>| {
            let text = |store| pick(store).map(String::as_str).unwrap_or_default();
            changed(&of(name), text(a), text(b));
        };
        may("place", |store| Some(&store.target));
        may("device", |store| store.device.as_ref());
        may("file system", |store| store.file_system.as_ref());
        may("mount options", |store| store.mount_options.as_ref());
        may("cipher", |store| store.cipher.as_ref());
        may("version", |store| store.version.as_ref());
        may("transport", |store| store.transport.as_ref());
    }
    facts
}

/// The history for a terminal: the newest `most` results, each with what changed since the one before it that answers the same
/// question. Rows that do not differ are counted, not listed, unless `all` are wanted. No line is wider than `columns`, 80 at
/// least.
pub fn text(
    entries: &[Entry],
    skipped: &[Skipped],
    columns: usize,
    most: usize,
    all: bool,
) -> String {
    let columns = columns.max(crate::report::table::NARROWEST);
    let mut lines = Vec::new();
    let say = |lines: &mut Vec<String>, indent: usize, text: &str| {
        let wrapped = wrap(&shown(text), columns - indent, 2);
        lines.extend(
            wrapped
                .into_iter()
                .map(|line| format!("{}{line}", " ".repeat(indent))),
        );
    };
    if entries.is_empty() {
        say(
            &mut lines,
            0,
            "No earlier results. Every `strongroom bench` that measures leaves one.",
        );
    }
    let first = entries.len().saturating_sub(most);
    if first > 0 {
        say(
            &mut lines,
            0,
            &format!("{first} older results are not shown."),
        );
    }
    for (at, entry) in entries.iter().enumerate().skip(first) {
        let report = &entry.report;
        if !lines.is_empty() {
            lines.push(String::new());
        }
        say(&mut lines, 0, &summary(report));
        let earlier = entries[..at].iter().rev().map(|earlier| &earlier.report);
        let Some((before, change)) = earlier
            .filter_map(|before| Some((before, between(before, report)?)))
            .next()
        else {
            say(&mut lines, 2, "Nothing earlier to put against it.");
            continue;
        };
        say(
            &mut lines,
            2,
            &format!("Against {}:", crate::report::moment(&before.began)),
        );
        for fact in &change.facts {
            say(&mut lines, 4, fact);
        }
        rows(&mut lines, &change, columns, all);
    }
    if !entries.is_empty() {
        lines.push(String::new());
        say(
            &mut lines,
            0,
            "Two runs also differ by what else the machine did that day: measure twice before you rely on a small change.",
        );
    }
    for of in skipped {
        say(
            &mut lines,
            0,
            &format!("Skipped {}: {}.", name(&of.path), of.why),
        );
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn summary(report: &Report) -> String {
    let invalid = report.rows.iter().filter(|row| row.verdict.invalid).count();
    let mut said = format!(
        "{}  {}",
        crate::report::moment(&report.began),
        report.command
    );
    for option in &report.options {
        said = format!("{said} {option}");
    }
    said = format!("{said} ({} rows", report.rows.len());
    if invalid > 0 {
        said = format!("{said}, {invalid} INVALID");
    }
    said.push(')');
    if report.interrupted {
        said.push_str(", stopped early");
    }
    said
}

fn rows(lines: &mut Vec<String>, change: &Change, columns: usize, all: bool) {
    let (shown_rows, quiet): (Vec<&RowChange>, Vec<&RowChange>) = change
        .rows
        .iter()
        .partition(|row| all || row.comparison.differs || row.comparison.invalid.is_some());
    for row in shown_rows {
        let what = shown(&format!("{}: {}", row.store, row.work));
        let number = |of: Option<f64>| of.map_or(NOTHING.into(), significant);
        let said = match (&row.comparison.invalid, row.old, row.new) {
            (None, ..) if row.comparison.differs => {
                format!("×{}", words::comparison(&row.comparison))
            }
            (None, ..) => words::comparison(&row.comparison),
            (Some(_), None, Some(_)) => "no ratio: INVALID before".into(),
            (Some(_), Some(_), None) => "no ratio: INVALID now".into(),
            (Some(_), ..) => "no ratio: INVALID both times".into(),
        };
        let numbers = format!(
            "{} → {} {}  {said}",
            number(row.old),
            number(row.new),
            words::unit(row.unit)
        );
        lines.push(format!("    {}", cut(&what, columns - 4)));
        debug_assert!(width(&numbers) + 6 <= columns);
        lines.push(format!("      {numbers}"));
    }
    match (quiet.len(), change.rows.len()) {
        (0, 0) => lines.push("    No row is in both.".into()),
        (0, _) => {}
        (quiet, all) => lines.push(format!("    {quiet} of {all} rows: no difference seen.")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::report::sample;

    fn faster(factor: f64) -> Report {
        let mut report = sample::compare();
        report.began = "2026-11-23T08:00:00Z".into();
        for row in report.rows.iter_mut().filter(|row| row.store == "room") {
            for round in &mut row.rounds {
                round.rate *= factor;
            }
            if let Some(summary) = &mut row.summary {
                summary.median *= factor;
            }
        }
        report
    }

    fn entry(report: Report) -> Entry {
        Entry {
            path: PathBuf::from("/state/a.json"),
            report,
        }
    }

    #[test]
    fn faster_rows_are_listed_and_others_are_counted() {
        let (old, mut new) = (sample::compare(), faster(1.5));
        new.version = "0.2.0".into();
        new.machine.kernel = "6.19.1".into();
        new.stores[1].device = Some("nvme0n1".into());
        new.seed += 1;
        let change = between(&old, &new).unwrap();
        assert_eq!(
            change.facts,
            [
                "strongroom: 0.1.0 is now 0.2.0",
                "kernel: 6.18.5 is now 6.19.1",
                "device of room: vda is now nvme0n1"
            ]
        );
        for row in &change.rows {
            let wanted = row.store == "room";
            assert_eq!(row.comparison.differs, wanted, "{row:?}");
            if wanted {
                let ratio = row.comparison.ratio.unwrap();
                assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
            }
        }
        let text = text(&[entry(old), entry(new)], &[], 80, 20, false);
        assert!(text.contains("kernel: 6.18.5 is now 6.19.1"), "{text}");
        assert!(text.contains("1.50 ("), "{text}");
        assert!(text.contains("rows: no difference seen."), "{text}");
        assert!(text.contains("no ratio: INVALID both times"), "{text}");
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
    }

    #[test]
    fn other_questions_are_not_compared() {
        let old = sample::compare();
        assert!(between(&old, &sample::small_files()).is_none());
        let mut other = sample::compare();
        other.options[3] = "--size 1GiB".into();
        assert!(between(&old, &other).is_none());
        let mut other = sample::compare();
        other.machine.id = "another".into();
        assert!(between(&old, &other).is_none());
        let mut other = sample::compare();
        other.stores.pop();
        assert!(between(&old, &other).is_none());
        let mut seeded = sample::compare();
        seeded.options.push("--seed 7".into());
        assert!(
            between(&old, &seeded).is_some(),
            "the seed is no part of the question"
        );
    }

    #[test]
    fn an_invalid_row_has_no_ratio_here_either() {
        let change = between(&sample::compare(), &faster(1.5)).unwrap();
        let row = change
            .rows
            .iter()
            .find(|row| row.comparison.invalid.is_some())
            .unwrap();
        assert_eq!(
            (row.store.as_str(), row.old, row.comparison.ratio),
            ("gocryptfs", None, None)
        );
    }

    #[test]
    fn whatever_names_are_lines_fit_and_skipped_files_are_named() {
        let long = format!("\x1b[31m{}", "long name ".repeat(30));
        let rename = |mut report: Report| {
            for row in &mut report.rows {
                row.work = format!("{}{long}", row.work);
            }
            report.options = vec![long.clone()];
            report
        };
        let skipped = [Skipped {
            path: "/state/torn.json".into(),
            why: "it is damaged".into(),
        }];
        let entries = [entry(rename(sample::compare())), entry(rename(faster(0.5)))];
        let text = text(&entries, &skipped, 80, 20, true);
        for line in text.lines() {
            assert!(width(line) <= 80 && !line.contains('\x1b'), "{line}");
        }
        assert!(
            text.contains("Skipped /state/torn.json: it is damaged."),
            "{text}"
        );
        assert!(super::text(&[], &[], 80, 20, false).contains("No earlier results"));
    }
}
