//! Names of objects below the room's prefix. Numbers have twenty digits, so that the order of names is that of numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) const COMMITS: &str = "commits";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const DATA: &str = "data";
/// Records of commits that are too large for their log.
pub(crate) const RECORDS: &str = "records";
/// Where all objects of a room are, but [`LOG`] and [`LAST`].
pub(crate) const DIRECTORIES: [&str; 4] = [COMMITS, CHECKPOINTS, RECORDS, DATA];
/// What says that the commits are in a log elsewhere.
pub(crate) const LOG: &str = "log";
/// Beside it, the number of a writer's last commit.
pub(crate) const LAST: &str = "last";

/// An object that holds bytes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum ObjectName {
    /// The bytes at the end of a commit.
    Commit(u64),
    /// Bytes and nothing else. No two writers of a history have the same epoch, and a writer's numbers begin at random, so no two objects ever
    /// have one name.
    Data {
        /// The number of the commit with which its writer began.
        epoch: u64,
        number: u64,
    },
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit(number) => f.write_str(&commit(*number)),
            Self::Data { epoch, number } => write!(f, "{DATA}/{epoch:020}-{number:020}"),
        }
    }
}

impl ObjectName {
    /// The object of data that a name means.
    pub(crate) fn parse_data(name: &str) -> Option<Self> {
        let numbers = name.strip_prefix(DATA)?.strip_prefix('/')?;
        let (epoch, number) = numbers.split_once('-')?;
        let parsed = Self::Data {
            epoch: epoch.parse().ok()?,
            number: number.parse().ok()?,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

pub(crate) fn commit(number: u64) -> String {
    format!("{COMMITS}/{number:020}")
}

pub(crate) fn checkpoint(number: u64) -> String {
    format!("{CHECKPOINTS}/{number:020}")
}

/// The object with a record, by the number and the hash of that.
pub(crate) fn record(number: u64, hash: &blake3::Hash) -> String {
    format!("{RECORDS}/{number:020}-{}", &hash.to_hex()[..32])
}

/// The number in the name of an object with a record.
pub(crate) fn number_of_record(name: &str) -> Option<u64> {
    let (number, _) = name
        .strip_prefix(RECORDS)?
        .strip_prefix('/')?
        .split_once('-')?;
    number.parse().ok()
}

/// The number in the name of a commit or checkpoint.
pub(crate) fn number_of(directory: &str, name: &str) -> Option<u64> {
    let number = name.strip_prefix(directory)?.strip_prefix('/')?;
    (number.len() == 20).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_sorted_like_numbers() {
        let data = ObjectName::Data {
            epoch: 7,
            number: 12,
        };
        assert_eq!(ObjectName::parse_data(&data.to_string()), Some(data));
        assert_eq!(ObjectName::parse_data("data/7-12"), None);
        assert_eq!(ObjectName::parse_data("data/x"), None);
        assert_eq!(number_of(COMMITS, &commit(41)), Some(41));
        assert_eq!(number_of(COMMITS, "commits/41"), None);
        assert_eq!(number_of(COMMITS, &checkpoint(41)), None);
        let name = record(41, &blake3::hash(b"x"));
        assert_eq!(number_of_record(&name), Some(41), "{name}");
        assert_eq!(number_of_record("records/x"), None);
        assert!(commit(9) < commit(10) && commit(10) < commit(u64::MAX));
    }
}
