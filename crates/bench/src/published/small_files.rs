//! Sub-operations of small files on a network disk with capabilities.

use super::{INVALID, row};
use crate::model::{Parts, PublishedTable};
use crate::words::{NOTHING, significant};

/// What a published row is here: the sum of parts of these names in these operations.
enum Here {
    /// Means of the parts of a name: of reads, then of writes.
    ReadAndWrite(&'static [&'static str]),
    /// Mean of the parts of a name for one time they happen, whatever the operation.
    Once(&'static [&'static str]),
    /// A whole operation.
    Whole(&'static [&'static str]),
    /// How much longer the second is than the first.
    Longer(&'static [(&'static str, &'static str)]),
}

const ROWS: [(&str, &str, Here); 9] = [
    (
        "disk access, read / write",
        "9.3 / 10.2",
        Here::ReadAndWrite(&["device"]),
    ),
    ("MAC", "0.4", Here::Once(&["authentication"])),
    ("encryption", "1.4", Here::Once(&["sealing", "opening"])),
    ("disk communication", "1.6", Here::Once(&["network"])),
    (
        "a round trip for a capability",
        "2.3",
        Here::Once(&["capability"]),
    ),
    (
        "request with a revoked capability, secure / private",
        "1.8 / 2.5",
        Here::Once(&["revoked request"]),
    ),
    (
        "extra for chmod or unlink that revokes",
        "about 1.4",
        Here::Longer(&[
            ("chmod beside revocations", "chmod with revocation"),
            ("unlink beside revocations", "unlink with revocation"),
        ]),
    ),
    ("chmod", "under 1 / under 3", Here::Whole(&["chmod"])),
    ("unlink", "under 1 / under 3", Here::Whole(&["unlink"])),
];

/// The table of sub-operations, milliseconds: published, and each store of `parts` in a column.
pub fn small_files(parts: &[Parts]) -> PublishedTable {
    let mut stores: Vec<&str> = Vec::new();
    for of in parts {
        if !stores.contains(&of.store.as_str()) {
            stores.push(&of.store);
        }
    }
    PublishedTable {
        title: "Sub-operations of small files, ms".into(),
        source: "Aguilera et al., FAST 2003: 700 files of 4 KiB, each operation once a file in a random order".into(),
        columns: std::iter::once("Snapdragon (published)".into())
            .chain(stores.iter().map(|store| format!("{store} (here)")))
            .collect(),
        rows: ROWS
            .iter()
            .map(|(name, published, here)| {
                let cells = stores.iter().map(|store| {
                    let of: Vec<&Parts> = parts.iter().filter(|of| of.store == *store).collect();
                    cell(&of, here)
                });
                row(name, std::iter::once((*published).into()).chain(cells))
            })
            .collect(),
    }
}

/// A time in a cell, where there is one: INVALID where its operation is.
#[derive(Clone, Copy)]
enum Time {
    Valid(f64),
    Invalid,
}

impl Time {
    fn of(parts: &Parts, ns: f64) -> Time {
        match parts.invalid {
            true => Time::Invalid,
            false => Time::Valid(ns),
        }
    }
}

fn shown(time: Option<Time>) -> String {
    match time {
        None => NOTHING.into(),
        Some(Time::Invalid) => INVALID.into(),
        Some(Time::Valid(ns)) => significant(ns / 1e6),
    }
}

fn cell(parts: &[&Parts], here: &Here) -> String {
    let find = |operation: &str| parts.iter().find(|of| of.operation == operation);
    let whole = |operation: &str| find(operation).map(|of| Time::of(of, of.whole_ns));
    let in_operation = |operation: &str, names: &[&str]| {
        let of = find(operation)?;
        let found: Vec<f64> = of
            .parts
            .iter()
            .filter(|part| is(&part.name, names))
            .map(|part| part.mean_ns)
            .collect();
        (!found.is_empty()).then(|| Time::of(of, found.iter().sum::<f64>()))
    };
    match here {
        Here::ReadAndWrite(names) => {
            match (in_operation("read", names), in_operation("write", names)) {
                (None, None) => NOTHING.into(),
                (read, write) => format!("{} / {}", shown(read), shown(write)),
            }
        }
        Here::Once(names) => {
            let (mut sum, mut times, mut invalid) = (0.0, 0.0, false);
            for of in parts {
                for part in of.parts.iter().filter(|part| is(&part.name, names)) {
                    if of.invalid {
                        invalid = true;
                        continue;
                    }
                    sum += part.mean_ns * of.count as f64;
                    times += part.times * of.count as f64;
                }
            }
            let valid = (times > 0.0).then(|| Time::Valid(sum / times));
            shown(valid.or(invalid.then_some(Time::Invalid)))
        }
        Here::Whole(operations) => shown(operations.iter().find_map(|operation| whole(operation))),
        Here::Longer(pairs) => {
            let longer: Vec<Time> = pairs
                .iter()
                .filter_map(|(without, with)| Some((whole(without)?, whole(with)?)))
                .map(|pair| match pair {
                    (Time::Valid(without), Time::Valid(with)) => Time::Valid(with - without),
                    _ => Time::Invalid,
                })
                .collect();
            // The mean of both pairs: of one it would be another number.
            let valid: Option<Vec<f64>> = longer
                .iter()
                .map(|time| match time {
                    Time::Valid(ns) => Some(*ns),
                    Time::Invalid => None,
                })
                .collect();
            shown((!longer.is_empty()).then(|| match valid {
                Some(valid) => Time::Valid(valid.iter().sum::<f64>() / valid.len() as f64),
                None => Time::Invalid,
            }))
        }
    }
}

/// Whether a part has one of these names, or is a kind of it: "device sync" is "device".
fn is(name: &str, names: &[&str]) -> bool {
    names.iter().any(|wanted| {
        name.strip_prefix(wanted)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SubOperation;

    fn operation(name: &str, parts: &[(&str, f64)]) -> Parts {
        Parts {
            store: "room".into(),
            operation: name.into(),
            count: 700,
            whole_ns: 5e6,
            parts: parts
                .iter()
                .map(|(name, mean_ns)| SubOperation {
                    name: (*name).into(),
                    mean_ns: *mean_ns,
                    times: 2.0,
                })
                .collect(),
            rest_ns: 0.0,
            invalid: false,
        }
    }

    #[test]
    fn every_published_row_finds_its_parts() {
        let read = [
            ("device read", 1e6),
            ("device names", 5e5),
            ("opening", 2e6),
            ("authentication", 4e5),
            ("network", 6e6),
            ("revoked request", 3e6),
        ];
        let write = [
            ("device write", 2e6),
            ("device sync", 3e6),
            ("sealing", 4e6),
            ("capability", 8e6),
            ("deviceless", 9e9),
        ];
        let table = small_files(&[
            operation("read", &read),
            operation("write", &write),
            operation("chmod", &[]),
        ]);
        let cell = |row: &str| &table.rows.iter().find(|of| of.name == row).unwrap().cells[1];
        assert_eq!(cell("disk access, read / write"), "1.50 / 5.00");
        // Six milliseconds for four times that it happened.
        assert_eq!(cell("encryption"), "1.50");
        assert_eq!(cell("MAC"), "0.200");
        assert_eq!(cell("disk communication"), "3.00");
        assert_eq!(cell("a round trip for a capability"), "4.00");
        let revoked = "request with a revoked capability, secure / private";
        assert_eq!(cell(revoked), "1.50");
        assert_eq!(cell("chmod"), "5.00");
        assert_eq!(cell("unlink"), "–");
        assert_eq!(table.rows[0].cells[0], "9.3 / 10.2");
    }

    /// What failed: a note said that an operation was INVALID, and its number was shown all the same.
    #[test]
    fn an_operation_that_is_invalid_has_no_number() {
        let parts = [("device read", 1e6), ("sealing", 4e6), ("opening", 2e6)];
        let invalid = |name: &str, parts: &[(&str, f64)]| Parts {
            invalid: true,
            ..operation(name, parts)
        };
        let table = small_files(&[
            invalid("read", &parts),
            operation("write", &[("device write", 2e6), ("sealing", 4e6)]),
            invalid("chmod", &[("network", 1e6)]),
            operation("chmod beside revocations", &[]),
            invalid("chmod with revocation", &[]),
        ]);
        let cell = |row: &str| &table.rows.iter().find(|of| of.name == row).unwrap().cells[1];
        assert_eq!(cell("disk access, read / write"), "INVALID / 2.00");
        assert_eq!(cell("chmod"), "INVALID");
        assert_eq!(cell("extra for chmod or unlink that revokes"), "INVALID");
        // Of those that are valid, where there are such.
        assert_eq!(cell("encryption"), "2.00");
        assert_eq!(cell("disk communication"), "INVALID");
        assert_eq!(cell("unlink"), "–");
    }
}
