//! Results that are kept beside sources, as one document: `docs/performance.md`.
//!
//! 1. Every number in it comes from a result; what a person has to say about them is given as text and kept apart.
//! 2. Nothing of a result can end a cell or begin markup.

use super::table::{against, by_work};
use super::{
    machine_words, moment, noise_words, parts_by_store, parts_table, said_by_most, store_words,
    why_invalid,
};
use crate::model::{PublishedTable, Report, Row};
use crate::published;
use crate::words::{self, NOTHING, duration, significant, time_ns};

/// Sections in their order: the result's name, the heading, and what it answers.
const SECTIONS: [(&str, &str, &str); 16] = [
    (
        "cost",
        "What a room costs",
        "A plain directory and a mounted room beside each other, in the rows of the phone tables.",
    ),
    (
        "dd",
        "Raw against decrypted",
        "One stream from a raw image and from what a mounted room makes of it.",
    ),
    (
        "dd-volume",
        "A volume, raw against decrypted",
        "One stream from the image of a LUKS2 volume and from its contents, decrypted by the process that reads them.",
    ),
    (
        "dd-served",
        "A volume, raw against served",
        "One stream from the image of a LUKS2 volume and from our NBD server of its contents; the processor time is the reader's alone.",
    ),
    (
        "small-files",
        "Small files, and where their time goes",
        "Each operation once a file, in a random order.",
    ),
    (
        "ladder",
        "Calls and commits",
        "2 MiB into one file, through the library.",
    ),
    (
        "scale",
        "How cost grows",
        "Rooms of rising sizes through the library: files, the length of one file, how full the disk is.",
    ),
    (
        "stores",
        "Beside other stores",
        "All in turns in one run; the plain directory is 1.",
    ),
    (
        "peers",
        "Beside other stores, on a source tree",
        "The work by which one of them compares itself with others.",
    ),
    (
        "tools-memory",
        "The same, on a disk in memory",
        "What the processor has to do, where the disk is as fast as memory and never slow for reasons of its own.",
    ),
    (
        "tools-io-uring",
        "The same, with requests over io_uring",
        "Where root lets the kernel offer it, a room and the files in memory get requests over io_uring. The other tools do not.",
    ),
    (
        "storage",
        "One store, all of it",
        "A plain directory, every row.",
    ),
    (
        "cipher",
        "Ciphers in memory",
        "What the processor can do without a disk.",
    ),
    (
        "cipher-soft",
        "Ciphers in memory, without AES instructions",
        "The same on the same processor, as if it had none: a phone or a small board.",
    ),
    (
        "volumes",
        "Serving volumes",
        "Plain images and encrypted volumes over NBD, through our server and two others, in one interleaved run.",
    ),
    (
        "small-files-shared",
        "Small files on shared storage",
        "A network disk, a metadata server and their client on one machine, in three set-ups.",
    ),
];

/// The document. `results` are names (without ending) and reports; `remarks` is Markdown by a person, which ends it.
pub fn performance(results: &[(String, Report)], remarks: &str) -> String {
    let mut out = vec![
        "# How fast a room is".to_owned(),
        String::new(),
        "Made by `make performance` from the results in [benches/results](../benches/results), which `make bench` measures; do not \
         edit. How it is measured, and when a number is INVALID: [benchmark.md](benchmark.md). Ratios are to the first \
         store of the same run, above 1 is faster, with their 95 % interval. Absolute numbers belong to the machine they were \
         measured on."
            .into(),
    ];
    let known = SECTIONS.iter().filter_map(|(name, heading, what)| {
        let (name, report) = results.iter().find(|(of, _)| of == name)?;
        Some((name, *heading, *what, report))
    });
    let others = results
        .iter()
        .filter(|(name, _)| !SECTIONS.iter().any(|(of, ..)| of == name))
        .map(|(name, report)| (name, name.as_str(), "", report));
    for (name, heading, what, report) in known.chain(others) {
        out.push(String::new());
        out.push(format!("## {}", safe(heading)));
        section(&mut out, name, what, report);
    }
    if !remarks.trim().is_empty() {
        out.push(String::new());
        out.push(remarks.trim().to_owned());
    }
    let mut text = out.join("\n");
    text.push('\n');
    text
}

fn section(out: &mut Vec<String>, name: &str, what: &str, report: &Report) {
    let asked =
        std::iter::once(report.command.as_str()).chain(report.options.iter().map(String::as_str));
    let asked = asked.collect::<Vec<_>>().join(" ").replace('`', "'");
    // What measures other programs too is a script.
    let program = if report.command.starts_with("scripts/") {
        ""
    } else {
        "strongroom bench "
    };
    paragraph(out, what);
    out.push(String::new());
    out.push(format!(
        "`{program}{asked}`, {}, {}; {} ([every round](../benches/results/{}.json)).",
        safe(&moment(&report.began)),
        duration(report.took_s),
        safe(&machine_words(&report.machine)),
        safe(name)
    ));
    if !report.stores.is_empty() {
        out.push(String::new());
        for store in &report.stores {
            out.push(format!(
                "- {}: {}",
                safe(&store.label),
                safe(&store_words(store))
            ));
        }
    }
    for published in &report.tables {
        table(out, published);
    }
    let tools = !report
        .tables
        .iter()
        .any(|table| table.title == published::TOOLS_TITLE);
    if let Some(tools) = published::tools_of(report).filter(|_| tools) {
        table(out, &tools);
    }
    if report.comparisons.is_empty() {
        if report.tables.is_empty() {
            rates(out, report);
        }
    } else {
        ratios(out, report);
    }
    parts(out, report);
    issues(out, report);
}

fn table(out: &mut Vec<String>, of: &PublishedTable) {
    out.push(String::new());
    out.push(format!(
        "**{}.** {}.",
        safe(of.title.trim_end_matches('.')),
        safe(of.source.trim_end_matches('.'))
    ));
    let (head, rows) = of.texts();
    grid(out, &head, &rows);
}

/// Works against stores: the first store's median, then ratios.
fn ratios(out: &mut Vec<String>, report: &Report) {
    let base = &report.comparisons[0].base;
    let mut others: Vec<&str> = Vec::new();
    for of in &report.comparisons {
        if !others.contains(&of.other.as_str()) {
            others.push(&of.other);
        }
    }
    let head: Vec<String> = [String::new(), base.clone()]
        .into_iter()
        .chain(others.iter().map(|name| format!("{name} to {base}")))
        .collect();
    let rows: Vec<Vec<String>> = by_work(report)
        .into_iter()
        .map(|(work, rows)| {
            let of = |store: &str| rows.iter().find(|row| row.store == store);
            let median = of(base).map_or(NOTHING.into(), |row| median(row));
            let ratios = others.iter().map(|store| {
                let found = of(store).and_then(|row| against(report, row));
                found.map_or(NOTHING.into(), words::comparison)
            });
            [work.to_owned(), median]
                .into_iter()
                .chain(ratios)
                .collect()
        })
        .collect();
    grid(out, &head, &rows);
}

fn median(row: &Row) -> String {
    match row.summary {
        _ if row.verdict.invalid => "INVALID".into(),
        Some(summary) => format!("{} {}", significant(summary.median), words::unit(row.unit)),
        None => NOTHING.into(),
    }
}

/// Rows of one store, or of several that are not compared.
fn rates(out: &mut Vec<String>, report: &Report) {
    if report.rows.is_empty() {
        return;
    }
    let several = report.stores.len() > 1;
    let head = [
        "",
        "median (least–most)",
        "p50",
        "p99",
        "max",
        "CPU s/GB",
        "device bytes a byte",
    ]
    .map(String::from);
    let rows: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|row| {
            let name = if several {
                format!("{}: {}", row.store, row.work)
            } else {
                row.work.clone()
            };
            let summary = row.summary.filter(|_| !row.verdict.invalid);
            let spread = summary.map_or(String::new(), |s| {
                format!(" ({}–{})", significant(s.least), significant(s.most))
            });
            let latency = row.latency.as_ref().filter(|_| !row.verdict.invalid);
            let time = |ns: Option<u64>| ns.map_or(NOTHING.into(), |ns| time_ns(ns as f64));
            vec![
                name,
                format!("{}{spread}", median(row)),
                time(latency.map(|of| of.p50_ns)),
                time(latency.map(|of| of.p99_ns)),
                time(latency.map(|of| of.max_ns)),
                words::maybe(summary.and_then(|s| s.cpu_s_per_gb)),
                words::maybe(summary.and_then(|s| s.write_amplification)),
            ]
        })
        .collect();
    grid(out, &head, &rows);
}

fn parts(out: &mut Vec<String>, report: &Report) {
    for (store, of) in parts_by_store(&report.parts) {
        paragraph(
            out,
            &format!("Where the time goes in {store}, mean of an operation:"),
        );
        let (head, rows) = parts_table(&of);
        grid(out, &head, &rows);
    }
}

/// What is not valid, and why; what else is to be known.
fn issues(out: &mut Vec<String>, report: &Report) {
    let mut said: Vec<String> = Vec::new();
    for row in report.rows.iter().filter(|row| row.verdict.invalid) {
        let why = why_invalid(report, row);
        said.push(format!(
            "INVALID: {} of {}: {}",
            row.work,
            row.store,
            why.join("; ")
        ));
    }
    said.extend(noise_words(report));
    said.extend(
        said_by_most(report)
            .iter()
            .map(|said| format!("Most rows: {said}")),
    );
    said.extend(report.notes.iter().cloned());
    if report.interrupted {
        said.push("This run was stopped before everything was done.".into());
    }
    if !said.is_empty() {
        out.push(String::new());
        out.extend(said.iter().map(|line| format!("- {}", safe(line))));
    }
}

fn paragraph(out: &mut Vec<String>, text: &str) {
    if !text.is_empty() {
        out.push(String::new());
        out.push(safe(text));
    }
}

fn grid(out: &mut Vec<String>, head: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| safe(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    out.push(String::new());
    out.push(line(head));
    let rule: Vec<&str> = head
        .iter()
        .enumerate()
        .map(|(at, _)| if at == 0 { "---" } else { "---:" })
        .collect();
    out.push(format!("|{}|", rule.join("|")));
    out.extend(rows.iter().map(|row| line(row)));
}

/// A text that is only text in Markdown, on one line.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in super::layout::shown(text).chars() {
        if matches!(letter, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '#') {
            safe.push('\\');
        }
        safe.push(letter);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn samples() -> Vec<(String, Report)> {
        [
            ("other", sample::empty()),
            ("peers", sample::compare()),
            ("small-files", sample::small_files()),
        ]
        .map(|(name, report)| (name.to_owned(), report))
        .into()
    }

    #[test]
    fn each_result_has_a_section_with_its_tables() {
        let text = performance(&samples(), "## Remarks\n\nMine.\n");
        for wanted in [
            "## Beside other stores",
            "## Small files, and where their time goes",
            "## other",
            "../benches/results/peers.json",
            "| random read | 62.9 % | 59 % (56 to 61) |",
            "| INVALID |",
            "- INVALID: random read, 4 KiB, depth 1, cold of gocryptfs: 37 %",
            "no difference seen (±6 %)",
            "Snapdragon (published)",
            "- Noise floor: plain against itself is 1.00 (0.98–1.03)",
            "## Remarks\n\nMine.",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in:\n{text}");
        }
        assert!(text.find("## Small files").unwrap() < text.find("## Beside").unwrap());
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_head() {
        let mut results = samples();
        for row in &mut results[1].1.rows {
            row.work = format!("{} | <b>*x*", row.work);
        }
        let text = performance(&results, "");
        assert!(!text.contains(" <b>"));
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        for table in text.split("\n\n").filter(|piece| piece.starts_with('|')) {
            let wanted = cells(table.lines().next().unwrap());
            assert!(table.lines().all(|line| cells(line) == wanted), "{table}");
        }
    }
}
