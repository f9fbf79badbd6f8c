//! Encrypted file systems on one workload.

use super::{median, row, seconds};
use crate::model::{PublishedTable, Report, Row};
use crate::words::{NOTHING, significant};

/// A store measured here, by the rows of gocryptfs's own suite.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tool<'a> {
    /// Its label.
    pub store: &'a str,
    /// Sequential writes of 128 KiB, in MB/s.
    pub write: Option<&'a Row>,
    /// Sequential reads of 128 KiB, in MB/s.
    pub read: Option<&'a Row>,
    /// Unpacking the tree; its rounds' seconds are shown.
    pub untar: Option<&'a Row>,
    /// Reading all of it.
    pub md5sum: Option<&'a Row>,
    /// Listing all of it.
    pub ls: Option<&'a Row>,
    /// Removing it.
    pub rm: Option<&'a Row>,
    /// Bytes it takes on the disk, and bytes in its files.
    pub space: Option<(u64, u64)>,
}

/// What the table is called.
pub const TOOLS_TITLE: &str = "Encrypted file systems on one workload";

/// Names of our rows for the published ones: write, read, untar, md5sum, ls, rm.
pub const TOOL_WORKS: [&str; 6] = [
    "sequential write, 128 KiB, depth 1, synced",
    "sequential read, 128 KiB, depth 1, cold",
    "untar",
    "md5sum of all, cold",
    "ls -lR, cold",
    "rm -r",
];

/// The table of a report that has some of the rows [`TOOL_WORKS`] names, of each of its stores.
pub fn tools_of(report: &Report) -> Option<PublishedTable> {
    let known = |row: &Row| TOOL_WORKS.contains(&row.work.as_str());
    if !report.rows.iter().any(known) {
        return None;
    }
    let measured: Vec<Tool<'_>> = report
        .stores
        .iter()
        .map(|store| {
            let of = |at: usize| {
                report
                    .rows
                    .iter()
                    .find(|row| row.store == store.label && row.work == TOOL_WORKS[at])
            };
            Tool {
                store: &store.label,
                write: of(0),
                read: of(1),
                untar: of(2),
                md5sum: of(3),
                ls: of(4),
                rm: of(5),
                space: None,
            }
        })
        .collect();
    Some(tools(&measured))
}

/// The published stores: name, write and read in MiB/s, then seconds for untar, md5sum, ls -lR, rm -r, and MiB for 494.
pub const TOOLS: [(&str, [&str; 7]); 6] = [
    (
        "gocryptfs 2.3",
        ["482", "944", "10.9", "5.1", "2.0", "2.4", "512"],
    ),
    (
        "EncFS 1.9.5",
        ["122", "451", "13", "5.7", "2.5", "3.4", NOTHING],
    ),
    (
        "eCryptfs",
        ["323", "961", "3.9", "1.2", "0.5", "0.7", "784"],
    ),
    (
        "Cryptomator 1.5",
        ["57", "113", "28", "15", "4.3", "10", "520"],
    ),
    (
        "securefs (slower CPU)",
        ["132", "155", "14", "7.7", "1.2", "2.2", "498"],
    ),
    (
        "CryFS 0.9 (slower CPU)",
        ["69", "99", "41", "42", "17", "21", "1485"],
    ),
];

/// The table of other tools: published columns first, then those measured.
pub fn tools(measured: &[Tool<'_>]) -> PublishedTable {
    const NAMES: [&str; 7] = [
        "write, MiB/s",
        "read, MiB/s",
        "untar, s",
        "md5sum of all, s",
        "ls -lR, s",
        "rm -r, s",
        "space, % of the data",
    ];
    let here: Vec<[String; 7]> = measured.iter().map(cells).collect();
    let published = |at: usize, cells: &[&str; 7]| match cells[at].parse::<f64>() {
        // 494 MiB on ext4.
        Ok(taken) if at == 6 => significant(100.0 * taken / 494.0),
        _ => cells[at].to_owned(),
    };
    PublishedTable {
        title: TOOLS_TITLE.into(),
        source: "gocryptfs's own suite on an i5-3470, ciphertext on tmpfs: 128 KiB writes ×2000, the tree of linux-3.0. Here \
                 the tree is smaller: compare within a column's kind, not across"
            .into(),
        columns: TOOLS
            .iter()
            .map(|(name, _)| format!("{name} (published)"))
            .chain(measured.iter().map(|of| format!("{} (here)", of.store)))
            .collect(),
        rows: NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| {
                row(
                    name,
                    TOOLS
                        .iter()
                        .map(|(_, cells)| published(at, cells))
                        .chain(here.iter().map(|cells| cells[at].clone())),
                )
            })
            .collect(),
    }
}

fn cells(of: &Tool<'_>) -> [String; 7] {
    let mebibytes = |rate: f64| rate * 1e6 / f64::from(1 << 20);
    [
        median(of.write, mebibytes),
        median(of.read, mebibytes),
        seconds(of.untar),
        seconds(of.md5sum),
        seconds(of.ls),
        seconds(of.rm),
        of.space
            .filter(|(_, data)| *data > 0)
            .map_or(NOTHING.into(), |(taken, data)| {
                significant(100.0 * taken as f64 / data as f64)
            }),
    ]
}
