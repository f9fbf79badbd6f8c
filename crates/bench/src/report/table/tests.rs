//! What a person reads in a terminal, from the samples.

use super::*;
use crate::model::{PublishedTable, TableRow};
use crate::report::sample;

fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(width(line) <= columns, "{} columns: {line}", width(line));
        assert!(!line.contains('\x1b'), "{line:?}");
        assert_eq!(line.trim_end(), line, "blanks at the end");
    }
}

#[test]
fn every_line_fits_eighty_columns_and_carries_no_escapes() {
    for (_, report) in sample::all() {
        fits(&text(&report, 80), 80);
        fits(&text(&report, 132), 132);
        fits(&text(&report, 20), 80);
    }
}

#[test]
fn whatever_a_store_is_called_lines_fit_and_the_terminal_is_not_driven() {
    let mut report = sample::compare();
    let long = format!("\x1b[31m{}\u{202e}", "部屋 and a very long name ".repeat(9));
    for row in &mut report.rows {
        row.work = format!("{}{long}", row.work);
        if row.store == "room" {
            row.store = long.clone();
        }
    }
    report.stores[1].label = long.clone();
    report.stores[1].target = "x".repeat(300);
    report.notes.push(long.clone());
    report.tables.push(PublishedTable {
        title: long.clone(),
        source: long.clone(),
        columns: vec![long.clone(); 7],
        rows: vec![TableRow {
            name: long.clone(),
            cells: vec![long.clone(); 7],
        }],
    });
    report.options.push(long);
    fits(&text(&report, 80), 80);
}

#[test]
fn what_matters_is_said() {
    let text = text(&sample::compare(), 80);
    // Where a sentence wraps does not matter.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "random read, 4 KiB, depth 1, cold, op/s",
        "gocryptfs INVALID 37 % of what was read",
        "37 % of what was read was in the page cache",
        "2 of 7 rounds INVALID: another process wrote 41.2 MB",
        "zeros go 8.3 % faster than data",
        "no difference seen (±6 %)",
        "0.41 (0.39–0.44)",
        "p99.9",
        "×1.11",
        "Nexus 6",
        "80.7 %",
        "10,711,067",
        "Noise floor: plain against itself is 1.00 (0.98–1.03)",
        "a skipped fsync",
        "1 of 15 rows are INVALID",
    ] {
        assert!(words.contains(wanted), "{wanted} is missing in:\n{text}");
    }
}

#[test]
fn what_most_rows_say_is_said_once_and_a_base_without_a_number_is_named() {
    let mut report = sample::compare();
    for row in &mut report.rows[1..] {
        row.verdict.issues.push(Issue {
            kind: IssueKind::NotObservable,
            said: "the kernel does not report the frequency".into(),
        });
    }
    report.comparisons[2].invalid = Some("plain: nothing was measured".into());
    let text = text(&report, 80);
    assert_eq!(
        text.matches("the kernel does not report the frequency")
            .count(),
        1,
        "{text}"
    );
    assert!(
        text.contains("Most rows: the kernel does not report the frequency."),
        "{text}"
    );
    assert!(text.contains("no ratio to plain"), "{text}");
}

/// A row was cut short and had neither a round nor a reason: the table said INVALID and nothing else.
#[test]
fn an_invalid_row_says_why_even_where_nobody_did() {
    let mut report = sample::compare();
    report.rows[0].verdict = crate::model::Verdict {
        invalid: true,
        issues: Vec::new(),
    };
    report.rows[0].rounds.clear();
    assert!(text(&report, 80).contains("no round of it was finished"));
}

#[test]
fn sub_operations_add_up_before_the_reader() {
    let text = text(&sample::small_files(), 80);
    for wanted in [
        "Where the time goes in room",
        "not covered",
        "whole",
        "FUSE round trip",
        "Snapdragon",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing in:\n{text}");
    }
}

#[test]
fn a_check_that_does_not_fire_is_a_warning_for_the_whole_report() {
    let mut report = sample::compare();
    if let Some(noise) = &mut report.noise {
        noise.unfired.push("a skipped fsync".into());
    }
    assert!(text(&report, 80).contains("DOES NOT WORK HERE"));
}

/// `cargo test -p strongroom-bench shows_the_samples -- --nocapture` is how a person looks at it.
#[test]
fn shows_the_samples() {
    for (name, report) in sample::all() {
        println!("--- {name}\n{}", text(&report, 80));
    }
}
