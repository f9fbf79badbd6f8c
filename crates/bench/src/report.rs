//! One document, shown three ways: a terminal's table, JSON, a page.

pub mod json;
pub(crate) mod layout;
pub mod markdown;
mod older;
pub mod page;
#[cfg(test)]
pub(crate) mod sample;
pub mod table;

use crate::model::{Machine, Parts, Report, Row, StoreFacts};
use crate::published::INVALID;
use crate::words;

/// A time as people read it: RFC 3339 without parts of a second.
pub(crate) fn moment(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((whole, _)) if rfc3339.ends_with('Z') => format!("{whole}Z"),
        _ => rfc3339.to_owned(),
    }
}

/// Remarks that more than half of several rows make: they are of the machine, not of a row.
fn said_by_most(report: &Report) -> Vec<&str> {
    let mut said: Vec<(&str, usize)> = Vec::new();
    for row in &report.rows {
        let mut own: Vec<&str> = Vec::new();
        for issue in row
            .verdict
            .issues
            .iter()
            .filter(|issue| !issue.kind.invalidates())
        {
            if !own.contains(&issue.said.as_str()) {
                own.push(&issue.said);
            }
        }
        for text in own {
            match said.iter_mut().find(|(of, _)| *of == text) {
                Some((_, count)) => *count += 1,
                None => said.push((text, 1)),
            }
        }
    }
    said.retain(|(_, count)| report.rows.len() > 2 && 2 * count > report.rows.len());
    said.into_iter().map(|(text, _)| text).collect()
}

/// Why a row is INVALID, without what most rows say; something even where nobody said why.
fn why_invalid<'a>(report: &'a Report, row: &'a Row) -> Vec<&'a str> {
    let by_most = said_by_most(report);
    let mut why: Vec<&str> = Vec::new();
    let of_rounds = row.rounds.iter().flat_map(|round| &round.issues);
    for issue in row
        .verdict
        .issues
        .iter()
        .chain(of_rounds.filter(|_| row.verdict.issues.is_empty()))
    {
        let said = issue.said.as_str();
        if !why.contains(&said) && !by_most.contains(&said) {
            why.push(said);
        }
    }
    if why.is_empty() {
        why.push("no round of it was finished");
    }
    why
}

/// The machine in a sentence.
fn machine_words(of: &Machine) -> String {
    let mut words: Vec<String> = Vec::new();
    if !of.kernel.is_empty() {
        words.push(format!("Linux {}", of.kernel));
    }
    if !of.processor.is_empty() {
        words.push(of.processor.clone());
    }
    match of.processors {
        0 => {}
        1 => words.push("1 processor".into()),
        n => words.push(format!("{n} processors")),
    }
    if !of.features.is_empty() {
        words.push(of.features.join(" "));
    }
    if of.memory_bytes > 0 {
        words.push(format!("{} of memory", words::bytes(of.memory_bytes)));
    }
    if let Some(governor) = &of.governor {
        words.push(format!("governor {governor}"));
    }
    if of.virtual_machine {
        words.push("a virtual machine".into());
    }
    words.join(", ")
}

/// What is known of a store.
fn store_words(of: &StoreFacts) -> String {
    let mut words = of.kind.clone();
    // Some programs' versions begin with their name.
    if of
        .version
        .as_ref()
        .is_some_and(|version| version.starts_with(&words))
    {
        words.clear();
    }
    for (before, what) in [(" ", &of.version), (", ", &of.cipher)] {
        if let Some(what) = what {
            words = format!("{words}{before}{what}").trim_start().to_owned();
        }
    }
    if let Some(transport) = &of.transport {
        let by = if transport == "device" {
            "/dev/fuse"
        } else {
            transport
        };
        words = format!("{words}, requests over {by}");
    }
    if !of.target.is_empty() {
        words = format!("{words}, {}", of.target);
    }
    let beneath: Vec<String> = [
        of.file_system.clone(),
        of.mount_options
            .as_ref()
            .map(|options| format!("({options})")),
        of.device.as_ref().map(|device| format!("on {device}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if beneath.is_empty() {
        words
    } else {
        format!("{words}; {}", beneath.join(" "))
    }
}

/// What the noise floor and the checks tried at the start say, one sentence a line.
fn noise_words(report: &Report) -> Vec<String> {
    let Some(of) = &report.noise else {
        return Vec::new();
    };
    let which = match report.floors().count() {
        0 | 1 => "Noise floor".to_owned(),
        works => format!("Widest noise floor of {works} works"),
    };
    let mut lines = vec![format!(
        "{which}: {} against itself is {} ({}–{}) at {}.",
        of.store,
        words::ratio(of.ratio),
        words::ratio(of.low),
        words::ratio(of.high),
        of.work
    )];
    if !of.fired.is_empty() {
        lines.push(format!(
            "Tried at the start and caught: {}.",
            of.fired.join("; ")
        ));
    }
    for unfired in &of.unfired {
        lines.push(format!(
            "A CHECK DOES NOT WORK HERE: {unfired} was tried at the start and not noticed. No number of this report is valid."
        ));
    }
    lines
}

/// Names in the order they first come, each with what has it.
fn grouped<T>(all: &[T], name: impl Fn(&T) -> &str) -> Vec<(&str, Vec<&T>)> {
    let mut groups: Vec<(&str, Vec<&T>)> = Vec::new();
    for of in all {
        match groups.iter_mut().find(|(known, _)| *known == name(of)) {
            Some((_, list)) => list.push(of),
            None => groups.push((name(of), vec![of])),
        }
    }
    groups
}

/// Stores in the order they come, with their operations.
fn parts_by_store(parts: &[Parts]) -> Vec<(&str, Vec<&Parts>)> {
    grouped(parts, |of| &of.store)
}

/// Names of the parts of some operations in the order they first come.
fn part_names(of: &[&Parts]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in of.iter().flat_map(|of| &of.parts) {
        if !names.contains(&part.name) {
            names.push(part.name.clone());
        }
    }
    names
}

/// Parts as a table, its head first: a row a part, then what no part covers and the whole; a column an operation.
fn parts_table(of: &[&Parts]) -> (Vec<String>, Vec<Vec<String>>) {
    let row = |name: String, cell: &dyn Fn(&Parts) -> String| -> Vec<String> {
        let valid = |of: &&Parts| match of.invalid {
            true => INVALID.into(),
            false => cell(of),
        };
        std::iter::once(name).chain(of.iter().map(valid)).collect()
    };
    let part = |name: String| {
        row(name.clone(), &|of| {
            let mut here = of.parts.iter().filter(|part| part.name == name).peekable();
            match here.peek() {
                None => words::NOTHING.into(),
                Some(_) => words::time_ns(here.map(|part| part.mean_ns).sum()),
            }
        })
    };
    let mut rows: Vec<Vec<String>> = part_names(of).into_iter().map(part).collect();
    rows.push(row("not covered".into(), &|of| words::time_ns(of.rest_ns)));
    rows.push(row("whole".into(), &|of| words::time_ns(of.whole_ns)));
    let operations = of.iter().map(|of| of.operation.clone());
    (
        std::iter::once(String::new()).chain(operations).collect(),
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What failed: the parts of an operation that was INVALID were shown as numbers.
    #[test]
    fn parts_of_an_invalid_operation_have_no_number() {
        let mut parts = sample::small_files().parts;
        parts[0].invalid = true;
        let of: Vec<&Parts> = parts.iter().take(2).collect();
        for row in parts_table(&of).1 {
            assert_eq!(row[1], "INVALID", "{row:?}");
            assert_ne!(row[2], "INVALID", "{row:?}");
        }
    }
}
