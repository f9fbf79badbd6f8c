//! 2 MB into one file of an encrypted database, step by step faster.

use super::{row, seconds};
use crate::model::{PublishedTable, Row};
use crate::words::{NOTHING, bytes};

/// One step, measured.
#[derive(Debug, Clone, Copy)]
pub struct LadderStep<'a> {
    /// Bytes a call.
    pub call: u64,
    /// Whether every call is committed, rather than all at the end.
    pub each: bool,
    /// Whether the calls go through a buffer before they reach the store.
    pub buffered: bool,
    /// What came out; its rounds' seconds are shown.
    pub row: Option<&'a Row>,
}

/// Call, commit a call, buffered; the words; seconds as published; seconds of the same library in 2026.
type Published = (u64, bool, bool, &'static str, &'static str, &'static str);

const PUBLISHED: [Published; 6] = [
    (
        256,
        true,
        false,
        "256 B blocks, no buffer, a transaction a block",
        "710",
        NOTHING,
    ),
    (
        256,
        false,
        false,
        "the same calls in one transaction",
        "65",
        NOTHING,
    ),
    (
        256,
        false,
        true,
        "and a buffered stream on top",
        "20",
        NOTHING,
    ),
    // 4 KiB blocks inside, where calls of 256 B are gathered: here calls of the block's size.
    (4096, false, true, "and 4 KiB blocks inside", "5", NOTHING),
    // 2,097,152 bytes at the 19 and 88 MB/s measured.
    (
        8192,
        true,
        false,
        "8 KiB blocks and calls, a transaction a block",
        "10",
        "0.11",
    ),
    (
        8192,
        false,
        false,
        "and all blocks in one transaction",
        "1",
        "0.024",
    ),
];

/// The ladder: the published steps first, then what else was measured.
pub fn ladder(measured: &[LadderStep<'_>]) -> PublishedTable {
    let same = |of: &LadderStep<'_>, published: &Published| {
        (of.call, of.each, of.buffered) == (published.0, published.1, published.2)
    };
    let published = PUBLISHED.iter().map(|of| {
        let here = measured
            .iter()
            .find(|step| same(step, of))
            .and_then(|step| step.row);
        row(of.3, [of.4.into(), of.5.into(), seconds(here)])
    });
    let others = measured
        .iter()
        .filter(|step| !PUBLISHED.iter().any(|of| same(step, of)))
        .map(|step| {
            row(
                &words(step),
                [NOTHING.into(), NOTHING.into(), seconds(step.row)],
            )
        });
    PublishedTable {
        title: "2 MiB into one file, seconds".into(),
        source: "Guardian Project and Zetetic, 2013: IOCipher, libsqlfs on SQLCipher; the same library in 2026 on a \
                 2-core cloud machine"
            .into(),
        columns: vec![
            "IOCipher (published)".into(),
            "the same, 2026 (published)".into(),
            "here".into(),
        ],
        rows: published.chain(others).collect(),
    }
}

/// A step in words.
fn words(step: &LadderStep<'_>) -> String {
    format!(
        "{} calls, {}, {}",
        bytes(step.call),
        if step.buffered {
            "buffered"
        } else {
            "no buffer"
        },
        if step.each {
            "a commit a call"
        } else {
            "one commit"
        },
    )
}
