//! The document as one page for a browser.
//!
//! 1. It is whole: no script, nothing fetched, and a content policy that says so.
//! 2. Everything that came from outside is escaped, by maud in the text and by plotters in the charts.
//! 3. Under every chart its numbers are in a table.
//! 4. The page does not scroll sideways; wide tables scroll in themselves.

mod chart;
mod growth;
mod latency;
mod over_time;
mod ratios;
mod stacks;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::table::{against, by_work};
use super::{
    machine_words, moment, noise_words, parts_by_store, parts_table, said_by_most, store_words,
};
use crate::model::{PublishedTable, Report, Row};
use crate::words::{self, NOTHING, significant, time_ns};

const STYLE: &str = include_str!("page/style.css");
/// Nothing may be fetched and nothing run; the style is in the page, and so is the empty icon.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// Works that are shown open; the others open at a touch.
const OPEN: usize = 3;

/// The whole page.
pub fn html(report: &Report) -> String {
    let title = format!(
        "strongroom bench {}, {}",
        report.command,
        moment(&report.began)
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head(report))
                    (ratio_section(report))
                    (growth_section(report))
                    (published(&report.tables))
                    (stacks_section(report))
                    (works(report))
                    (foot(report))
                }
            }
        }
    }
    .into_string()
}

fn head(report: &Report) -> Markup {
    let invalid = report.rows.iter().filter(|row| row.verdict.invalid).count();
    let noise = noise_words(report);
    let unfired = report.noise.as_ref().map_or(0, |noise| noise.unfired.len());
    html! {
        header {
            h1 { "strongroom bench " (report.command) }
            p.quiet {
                (moment(&report.began)) ", took " (words::duration(report.took_s)) ", version " (report.version) ", seed "
                (report.seed)
            }
        }
        @if report.interrupted {
            p.warning { "Stopped before everything was done: what is shown is what was finished." }
        }
        @if invalid > 0 {
            p.warning { (invalid) " of " (report.rows.len()) " rows are INVALID and enter no ratio; each says why." }
        }
        @for (at, line) in noise.iter().enumerate() {
            p class=(if at >= noise.len() - unfired { "warning" } else { "quiet" }) { (line) }
        }
    }
}

fn ratio_section(report: &Report) -> Markup {
    if report.comparisons.is_empty() {
        return html! {};
    }
    let base = &report.comparisons[0].base;
    html! {
        section {
            h2 { "How fast, with " (base) " as 1" }
            p.quiet {
                "How to read this: a bar's length is how many times as fast a store is as " (base) ". A bar that ends at 0.5 is a \
                 store of half the speed, and one that ends right of the line at 1 is faster. Ratios are of medians; the thin line \
                 is the 95 % interval, in which the true ratio is in 19 of 20 measurements. Pale bars are differences inside the \
                 noise: " (base) " differs as much from itself."
            }
            (legend(others(report).into_iter().map(|store| (store.to_owned(), store_colour(report, store)))))
            (ratios::chart(report))
            (scroll(html! {
                table {
                    thead { tr { th { "work" } th { "store" } th.n { "ratio" } th.n { "95 % interval" } th { "" } } }
                    tbody {
                        @for of in &report.comparisons {
                            tr {
                                th { (of.work) }
                                td { (of.other) }
                                td.n { (of.ratio.map_or(NOTHING.into(), words::ratio)) }
                                td.n {
                                    @if let (Some(low), Some(high)) = (of.low, of.high) {
                                        (words::ratio(low)) "–" (words::ratio(high))
                                    }
                                }
                                td {
                                    @if let Some(why) = &of.invalid { span.bad { "INVALID" } ": " (why) }
                                    @else if !of.differs { (words::comparison(of)) }
                                }
                            }
                        }
                    }
                }
            }))
        }
    }
}

/// Stores that are compared with the first.
fn others(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for of in &report.comparisons {
        if !names.contains(&of.other.as_str()) {
            names.push(&of.other);
        }
    }
    names
}

/// The colour of a store, the same in every chart of the page.
fn store_colour(report: &Report, label: &str) -> usize {
    let mut names: Vec<&str> = report
        .stores
        .iter()
        .map(|store| store.label.as_str())
        .collect();
    for row in &report.rows {
        if !names.contains(&row.store.as_str()) {
            names.push(&row.store);
        }
    }
    names
        .iter()
        .position(|name| *name == label)
        .unwrap_or(names.len())
}

/// Names beside their colours, with a line break wherever the screen needs one.
fn legend(of: impl IntoIterator<Item = (String, usize)>) -> Markup {
    html! {
        ul.legend {
            @for (name, colour) in of {
                li { span.key style=(format!("background:{}", chart::css(colour))) {} (name) }
            }
        }
    }
}

/// A table that scrolls in itself; the keyboard reaches it.
fn scroll(table: Markup) -> Markup {
    html! { div.scroll tabindex="0" { (table) } }
}

fn growth_section(report: &Report) -> Markup {
    let overs = growth::overs(&report.growth);
    html! {
        @for (over, of) in &overs {
            section {
                h2 { "How cost grows with " (over) }
                p.quiet {
                    "How to read this: both axes are logarithmic. A level line is a cost that does not grow; one that rises by a step for each \
                     step to the right grows as fast as the size. The tables below have the numbers."
                }
                (legend(of.iter().enumerate().map(|(at, of)| (of.operation.clone(), at + 1))))
                @for chart in growth::charts(over, of) { (chart) }
            }
        }
    }
}

fn published(tables: &[PublishedTable]) -> Markup {
    html! {
        @for table in tables {
            section {
                h2 { (table.title) }
                p.quiet {
                    "What others published of their machines, beside what was measured here. Compare the relations, not the \
                     speeds: the machines differ."
                }
                p.quiet { "Published: " (table.source.trim_end_matches('.')) "." }
                (scroll(html! {
                    table {
                        thead { tr { th {} @for name in &table.columns { th.n { (name) } } } }
                        tbody {
                            @for row in &table.rows {
                                tr {
                                    th { (row.name) }
                                    @for (at, cell) in row.cells.iter().enumerate() {
                                        @let here = table.columns.get(at).is_some_and(|name| !name.contains("published"));
                                        td.n.here[here].bad[cell == "INVALID"] { (cell) }
                                    }
                                }
                            }
                        }
                    }
                }))
            }
        }
    }
}

fn stacks_section(report: &Report) -> Markup {
    html! {
        @for (store, of) in parts_by_store(&report.parts) {
            section {
                h2 { "Where the time goes in " (store) }
                p.quiet { "Mean of an operation. What no span covers is grey; it is negative where parts overlap." }
                (legend(stacks::colours(&of)))
                (stacks::chart(store, &of))
                @let (head, rows) = parts_table(&of);
                (scroll(html! {
                    table {
                        thead { tr { th {} @for operation in &head[1..] { th.n { (operation) } } } }
                        tbody {
                            @for row in &rows {
                                tr { th { (row[0]) } @for cell in &row[1..] { td.n { (cell) } } }
                            }
                            tr { th { "times" } @for of in &of { td.n { (of.count) } } }
                        }
                    }
                }))
            }
        }
    }
}

fn works(report: &Report) -> Markup {
    html! {
        @for (at, (work, rows)) in by_work(report).into_iter().enumerate() {
            section {
                details open[at < OPEN] {
                    summary { h2 { (work) } }
                    (rates(report, &rows))
                    @let colours = rows.iter().filter(|row| !row.verdict.invalid);
                    @let colours: Vec<_> = colours.map(|row| (row.store.clone(), store_colour(report, &row.store))).collect();
                    @let curves = latency::chart(report, work, &rows);
                    @if let Some(curves) = curves {
                        h3 { "Latency of an operation" }
                        (legend(colours.clone()))
                        (curves)
                        (latencies(&rows))
                    }
                    @if let Some(curves) = over_time::chart(report, work, &rows) {
                        h3 { "Rate over time, " (words::unit(rows[0].unit)) }
                        p.quiet { "Rounds one after the other, with gaps between them; pale is what was cut off as not steady." }
                        (legend(colours))
                        (curves)
                        (scroll(over_time::table(&rows)))
                    }
                }
            }
        }
    }
}

fn rates(report: &Report, rows: &[&Row]) -> Markup {
    let unit = words::unit(rows[0].unit);
    scroll(html! {
        table {
            thead {
                tr {
                    th { "store" } th.n { "median, " (unit) } th.n { "least–most" } th.n { "ratio (95 %)" }
                    th.n { "CPU s/GB" } th.n { "device bytes for a byte written" } th.n { "rounds" }
                }
            }
            tbody {
                @for row in rows {
                    tr {
                        th { (row.store) }
                        @if row.verdict.invalid {
                            td.bad colspan="6" { "INVALID" }
                        } @else {
                            @let s = row.summary;
                            td.n { (s.map_or(NOTHING.into(), |s| significant(s.median))) }
                            td.n { (s.map_or(String::new(), |s| format!("{}–{}", significant(s.least), significant(s.most)))) }
                            td.n { (against(report, row).map_or(String::new(), words::comparison)) }
                            td.n { (words::maybe(s.and_then(|s| s.cpu_s_per_gb))) }
                            td.n { (words::maybe(s.and_then(|s| s.write_amplification))) }
                            td.n { (row.rounds.iter().filter(|round| round.is_valid()).count()) "/" (row.rounds.len()) }
                        }
                    }
                    @for said in said(report, row) {
                        tr.said { td colspan="7" { (row.store) ": " (said) } }
                    }
                }
            }
        }
    })
}

/// Every validity issue of a row and its rounds, once.
fn said<'a>(report: &'a Report, row: &'a Row) -> Vec<&'a str> {
    if row.verdict.invalid {
        return super::why_invalid(report, row);
    }
    let by_most = said_by_most(report);
    let mut said: Vec<&str> = Vec::new();
    let of_rounds = row.rounds.iter().flat_map(|round| &round.issues);
    for issue in row.verdict.issues.iter().chain(of_rounds) {
        let text = issue.said.as_str();
        if !said.contains(&text) && !by_most.contains(&text) {
            said.push(text);
        }
    }
    said
}

fn latencies(rows: &[&Row]) -> Markup {
    scroll(html! {
        table {
            thead {
                tr {
                    th { "store" } th.n { "p50" } th.n { "p90" } th.n { "p99" } th.n { "p99.9" } th.n { "max" }
                    th.n { "operations" }
                }
            }
            tbody {
                @for (row, of) in rows.iter().filter_map(|row| Some((row, row.latency.as_ref()?))) {
                    tr {
                        th { (row.store) }
                        @for ns in [of.p50_ns, of.p90_ns, of.p99_ns, of.p999_ns, of.max_ns] {
                            td.n { (time_ns(ns as f64)) }
                        }
                        td.n { (of.count) }
                    }
                }
            }
        }
    })
}

fn foot(report: &Report) -> Markup {
    let machine = machine_words(&report.machine);
    html! {
        section {
            h2 { "What was measured, and where" }
            @if !machine.is_empty() { p { (machine) } }
            @if !report.stores.is_empty() {
                dl {
                    @for store in &report.stores {
                        dt { (store.label) }
                        dd { (store_words(store)) }
                    }
                }
            }
            @if !report.options.is_empty() {
                p { "Asked for: " code { "strongroom bench " (report.command) @for option in &report.options { " " (option) } } }
            }
            @for said in said_by_most(report) { p { "Most rows: " (said) "." } }
            @for note in &report.notes { p { (note) } }
        }
    }
}

#[cfg(test)]
mod tests;
