//! Raw disk against decrypted volume.

use super::{INVALID, median, middle, row};
use crate::model::{Comparison, PublishedTable, Row};
use crate::words::{NOTHING, bytes, loss};

/// One block size, measured.
#[derive(Debug, Clone, Copy)]
pub struct DdRow<'a> {
    /// Size of a read, bytes.
    pub block: u64,
    /// Bytes read in all.
    pub total: u64,
    /// The raw device, in MB/s.
    pub raw: Option<&'a Row>,
    /// The decrypted volume, in MB/s.
    pub decrypted: Option<&'a Row>,
    /// Decrypted against raw.
    pub comparison: Option<&'a Comparison>,
}

/// Block size, total, and as published: raw B/s, decrypted B/s, loss, CPU of `dd` raw / decrypted.
const PUBLISHED: [(u64, u64, [&str; 4]); 2] = [
    (
        4 << 10,
        1 << 30,
        ["10,711,067", "9,212,994", "14.0 %", "15 % / 16 %"],
    ),
    (
        64 << 10,
        2 << 30,
        ["61,715,298", "50,307,875", "18.5 %", "7 % / 2 %"],
    ),
];

/// The table of `dd`: the published block sizes first, then whatever else was measured.
pub fn dd(measured: &[DdRow<'_>]) -> PublishedTable {
    let columns = [
        "raw, B/s (published)",
        "raw, B/s (here)",
        "decrypted, B/s (published)",
        "decrypted, B/s (here)",
        "loss (published)",
        "loss (here)",
        "CPU raw / decrypted (published)",
        "CPU raw / decrypted (here)",
    ];
    let known = |of: &DdRow<'_>| PUBLISHED.iter().any(|(block, ..)| *block == of.block);
    let published = PUBLISHED.iter().map(|(block, total, cells)| {
        let here = measured.iter().find(|of| of.block == *block);
        line(*block, *total, *cells, here)
    });
    let others = measured
        .iter()
        .filter(|of| !known(of))
        .map(|of| line(of.block, of.total, [NOTHING; 4], Some(of)));
    PublishedTable {
        title: "dd from the raw device and from the decrypted volume".into(),
        source: "Heimlicher: FileVault 2 on OS X 10.7".into(),
        columns: columns.map(String::from).into(),
        rows: published.chain(others).collect(),
    }
}

fn line(
    block: u64,
    total: u64,
    published: [&str; 4],
    here: Option<&DdRow<'_>>,
) -> crate::model::TableRow {
    let (raw, decrypted) = (here.and_then(|of| of.raw), here.and_then(|of| of.decrypted));
    let measured = [
        median(raw, |rate| rate * 1e6),
        median(decrypted, |rate| rate * 1e6),
        here.and_then(|of| of.comparison)
            .map_or(NOTHING.into(), loss),
        match here {
            None => NOTHING.into(),
            Some(_) => format!("{} / {}", busy(raw), busy(decrypted)),
        },
    ];
    let total = here.map_or(total, |of| of.total);
    row(
        &format!("{}, {}", bytes(block), bytes(total)),
        published
            .into_iter()
            .zip(measured)
            .flat_map(|(published, here)| [published.into(), here]),
    )
}

/// Processor time for wall time, per cent.
fn busy(of: Option<&Row>) -> String {
    let Some(of) = of else {
        return NOTHING.into();
    };
    if of.verdict.invalid {
        return INVALID.into();
    }
    middle(
        of.rounds
            .iter()
            .filter(|round| round.is_valid() && round.seconds > 0.0)
            .filter_map(|round| Some(round.cpu_s? / round.seconds)),
    )
    .map_or(NOTHING.into(), |share| format!("{:.0} %", 100.0 * share))
}
