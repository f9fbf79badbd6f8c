//! The document as lines for a terminal.
//!
//! 1. No line is wider than asked, 80 columns at least, and no escape sequence comes out: it reads the same when piped.
//! 2. A row that is not valid shows INVALID and why, and no number.

use std::collections::BTreeMap;

use super::layout::{cut, grid, shown, width, wrap};
use crate::model::{Comparison, Issue, IssueKind, Parts, Report, Row};
use crate::words::{self, NOTHING, duration, significant, time_ns};

/// The narrowest terminal there is a layout for.
pub const NARROWEST: usize = 80;

/// The whole document, each line ended. `columns` below [`NARROWEST`] count as that.
pub fn text(report: &Report, columns: usize) -> String {
    let columns = columns.max(NARROWEST);
    let mut out = Out {
        lines: Vec::new(),
        columns,
    };
    head(&mut out, report);
    stores(&mut out, report);
    rates(&mut out, report);
    latencies(&mut out, report);
    loose_comparisons(&mut out, report);
    parts(&mut out, &report.parts);
    published(&mut out, report);
    foot(&mut out, report);
    let mut text = out.lines.join("\n");
    text.push('\n');
    text
}

struct Out {
    lines: Vec<String>,
    columns: usize,
}

impl Out {
    fn title(&mut self, text: &str) {
        self.lines.push(String::new());
        self.wrapped(text, 0, 0);
    }

    /// A sentence that begins after some blanks, its further lines after others.
    fn wrapped(&mut self, text: &str, first: usize, rest: usize) {
        let text = shown(text);
        let mut lines = wrap(&text, self.columns - first, rest.saturating_sub(first)).into_iter();
        self.lines.extend(
            lines
                .by_ref()
                .map(|line| format!("{}{line}", " ".repeat(first))),
        );
    }

    fn grid(&mut self, header: &[String], rows: &[Vec<String>]) {
        let clean: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| shown(cell)).collect())
            .collect();
        let header: Vec<String> = header.iter().map(|cell| shown(cell)).collect();
        self.lines.extend(grid(&header, &clean, self.columns));
    }
}

fn head(out: &mut Out, report: &Report) {
    let version = &report.version;
    out.wrapped(
        &format!(
            "strongroom bench {}, {}, took {} (version {version}, seed {})",
            report.command,
            super::moment(&report.began),
            duration(report.took_s),
            report.seed
        ),
        0,
        2,
    );
    let line = super::machine_words(&report.machine);
    if !line.is_empty() {
        out.wrapped(&line, 0, 2);
    }
}

fn stores(out: &mut Out, report: &Report) {
    if report.stores.is_empty() {
        return;
    }
    out.lines.push(String::new());
    for store in &report.stores {
        out.wrapped(
            &format!("{}: {}", store.label, super::store_words(store)),
            0,
            2,
        );
    }
}

/// Works in the order they first come, each with its rows.
pub(super) fn by_work(report: &Report) -> Vec<(&str, Vec<&Row>)> {
    super::grouped(&report.rows, |of| &of.work)
}

/// The comparison that has this row on its other side.
pub(super) fn against<'a>(report: &'a Report, row: &Row) -> Option<&'a Comparison> {
    report
        .comparisons
        .iter()
        .find(|of| of.work == row.work && of.other == row.store)
}

fn rates(out: &mut Out, report: &Report) {
    let groups = by_work(report);
    if groups.is_empty() {
        return;
    }
    // Where there is one store, its name on every line says nothing.
    let single = groups.len() > 1 && groups.iter().all(|(_, rows)| rows.len() == 1);
    let label_width = if single {
        widest(report, |row| &row.work, 46)
    } else {
        widest(report, |row| &row.store, 18)
    };
    let number = |row: &Row| {
        row.summary
            .map_or(NOTHING.into(), |s| significant(s.median))
    };
    let spread = |row: &Row| {
        row.summary.map_or(String::new(), |s| {
            format!("({}–{})", significant(s.least), significant(s.most))
        })
    };
    let widest = |of: &dyn Fn(&Row) -> String| report.rows.iter().map(|row| width(&of(row))).max();
    let numbers = widest(&number).unwrap_or(1);
    let spreads = widest(&spread).unwrap_or(1);
    out.title("Medians with the least and the most; ratios with their 95 % interval");
    let mut last = None;
    for (work, rows) in groups {
        let unit = words::unit(rows[0].unit);
        if !single {
            out.lines.push(String::new());
            out.wrapped(&format!("{work}, {unit}"), 0, 2);
        } else if last.replace(unit) != Some(unit) {
            out.lines.extend([String::new(), unit.to_owned()]);
        }
        for row in rows {
            let label = cut(
                &shown(if single { &row.work } else { &row.store }),
                label_width,
            );
            let blanks = label_width - width(&label);
            let mut line = format!("  {label}{}  ", " ".repeat(blanks));
            let after = if single { 6 } else { width(&line) };
            if row.verdict.invalid {
                line.push_str("INVALID");
                out.lines.push(line);
                for said in super::why_invalid(report, row) {
                    out.wrapped(said, after, after);
                }
                continue;
            }
            line.push_str(&format!(
                "{:>numbers$}  {:<spreads$}",
                number(row),
                spread(row)
            ));
            if let Some(of) = against(report, row) {
                // The reason is with the row that is INVALID: this one is not.
                let words = match &of.invalid {
                    Some(_) => format!("no ratio to {}", cut(&shown(&of.base), label_width)),
                    None => words::comparison(of),
                };
                if width(&line) + 2 + width(&words) <= out.columns {
                    line.push_str("  ");
                    line.push_str(&words);
                } else {
                    out.lines.push(std::mem::take(&mut line).trim_end().into());
                    line = format!("{}{words}", " ".repeat(after));
                }
            }
            out.lines.push(line.trim_end().into());
            for (said, count) in refused(row) {
                let all = row.rounds.len();
                out.wrapped(
                    &format!("{count} of {all} rounds INVALID: {said}"),
                    after,
                    after + 2,
                );
            }
            issues(out, report, &row.verdict.issues, after);
        }
    }
}

/// Why single rounds are left out, one a kind, with how many.
fn refused(row: &Row) -> Vec<(&str, usize)> {
    let mut kinds: BTreeMap<IssueKind, (&str, usize)> = BTreeMap::new();
    for round in &row.rounds {
        for issue in round.issues.iter().filter(|issue| issue.kind.invalidates()) {
            kinds.entry(issue.kind).or_insert((&issue.said, 0)).1 += 1;
        }
    }
    kinds.into_values().collect()
}

fn issues(out: &mut Out, report: &Report, issues: &[Issue], indent: usize) {
    let mut said: Vec<&str> = super::said_by_most(report);
    for issue in issues {
        if !said.contains(&issue.said.as_str()) {
            said.push(&issue.said);
            out.wrapped(&issue.said, indent, indent);
        }
    }
}

/// The width of the longest of the rows' texts, up to `most`.
fn widest(report: &Report, text: fn(&Row) -> &str, most: usize) -> usize {
    let widths = report.rows.iter().map(|row| width(&shown(text(row))));
    widths.max().unwrap_or(0).min(most)
}

fn latencies(out: &mut Out, report: &Report) {
    let has = |row: &&Row| {
        !row.verdict.invalid
            && (row.latency.is_some()
                || row
                    .summary
                    .is_some_and(|s| s.cpu_s_per_gb.is_some() || s.write_amplification.is_some()))
    };
    if !report.rows.iter().any(|row| has(&row)) {
        return;
    }
    let label_width = widest(report, |row| &row.store, 14);
    out.title(
        "Latency of an operation; processor seconds for 10⁹ bytes; bytes that reached the device for each one written",
    );
    let fixed = |cells: [&str; 7]| {
        let [p50, p90, p99, p999, max, cpu, written] = cells;
        format!("{p50:>8} {p90:>8} {p99:>8} {p999:>8} {max:>8} {cpu:>6} {written:>7}")
    };
    let header = fixed(["p50", "p90", "p99", "p99.9", "max", "s/GB", "written"]);
    out.lines
        .push(format!("  {}  {header}", " ".repeat(label_width)));
    for (work, rows) in by_work(report) {
        let rows: Vec<&Row> = rows.into_iter().filter(has).collect();
        if rows.is_empty() {
            continue;
        }
        out.wrapped(work, 0, 2);
        for row in rows {
            let label = cut(&shown(&row.store), label_width);
            let times = row
                .latency
                .as_ref()
                .map_or([const { String::new() }; 5], |of| {
                    [of.p50_ns, of.p90_ns, of.p99_ns, of.p999_ns, of.max_ns]
                        .map(|ns| time_ns(ns as f64))
                });
            let summary = row.summary;
            let cpu = summary
                .and_then(|s| s.cpu_s_per_gb)
                .map_or(NOTHING.into(), significant);
            let written = summary
                .and_then(|s| s.write_amplification)
                .map_or(NOTHING.into(), |w| format!("×{}", words::ratio(w)));
            let [p50, p90, p99, p999, max] = times
                .each_ref()
                .map(|t| if t.is_empty() { NOTHING } else { t });
            out.lines.push(format!(
                "  {label}{}  {}",
                " ".repeat(label_width - width(&label)),
                fixed([p50, p90, p99, p999, max, &cpu, &written])
            ));
        }
    }
}

/// Comparisons beside no row have a list of their own.
fn loose_comparisons(out: &mut Out, report: &Report) {
    let beside = |of: &Comparison| {
        let mut rows = report.rows.iter();
        rows.any(|row| row.work == of.work && row.store == of.other)
    };
    let loose: Vec<&Comparison> = report.comparisons.iter().filter(|of| !beside(of)).collect();
    if loose.is_empty() {
        return;
    }
    out.title("Comparisons");
    for of in loose {
        let why = of
            .invalid
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        out.wrapped(
            &format!(
                "{}, {} to {}: {}{why}",
                of.work,
                of.other,
                of.base,
                words::comparison(of)
            ),
            2,
            4,
        );
    }
}

fn parts(out: &mut Out, parts: &[Parts]) {
    for (store, of) in super::parts_by_store(parts) {
        out.title(&format!(
            "Where the time goes in {store}: mean of an operation"
        ));
        let (header, rows) = super::parts_table(&of);
        out.grid(&header, &rows);
    }
}

fn published(out: &mut Out, report: &Report) {
    for table in &report.tables {
        out.title(&table.title);
        out.wrapped(
            &format!("Published: {}.", table.source.trim_end_matches('.')),
            0,
            0,
        );
        let (header, rows) = table.texts();
        out.grid(&header, &rows);
    }
}

fn foot(out: &mut Out, report: &Report) {
    out.lines.push(String::new());
    for line in super::noise_words(report) {
        out.wrapped(&line, 0, 2);
    }
    for said in super::said_by_most(report) {
        out.wrapped(&format!("Most rows: {said}."), 0, 2);
    }
    for note in &report.notes {
        out.wrapped(note, 0, 2);
    }
    let invalid = report.rows.iter().filter(|row| row.verdict.invalid).count();
    if invalid > 0 {
        let all = report.rows.len();
        out.wrapped(
            &format!("{invalid} of {all} rows are INVALID and enter no ratio."),
            0,
            2,
        );
    }
    if report.interrupted {
        out.wrapped(
            "Stopped before everything was done: what is shown is what was finished.",
            0,
            2,
        );
    }
}

#[cfg(test)]
mod tests;
